"""A client's links to its authority: over the network, or within one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from leasehold.base.errors import InvalidArgument, LeaseholdError
from leasehold.cache.authority import Authority
from leasehold.cache.model import Drop, FromAuthority, FromClient, Hello, Item, Refill, Release
from leasehold.cache.wire_functions import SAY, TELL, Parcel, decode_from_authority, packed
from leasehold.runtime.tls import Tls
from leasehold.wire.channel import Channel, open_channel
from leasehold.wire.errors import NoListener
from leasehold.wire.finder import parse_address

OnMessages = Callable[[list[FromAuthority]], None]
_CALL_TIMEOUT_MS = 60_000  # the machine has its own deadlines; this only frees abandoned calls
_CALLED: Final = (Hello, Release)

_DRAIN_S = 0.2


class Link(Protocol):
    """An open connection to the authority. Messages on a lost link are lost; `on_lost` is called once."""

    def send(self, messages: list[FromClient]) -> None: ...

    async def drain(self) -> None:
        """Wait, at most `_DRAIN_S`, until the messages have arrived."""
        ...

    async def answered(self) -> bool:
        """Wait for the first answer; False if the link was lost before."""
        ...

    def close(self) -> None: ...


class Dialer(Protocol):
    """Opens links; each call may try another address."""

    @property
    def refused_everywhere(self) -> bool:
        """Whether every address refused the connection when it was last tried."""
        ...

    async def dial(self, identity: str, on_messages: OnMessages, on_lost: Callable[[], None]) -> Link: ...


class WireLink:
    """A link over one connection. Several parcels may be in flight."""

    def __init__(self, channel: Channel, on_messages: OnMessages, on_lost: Callable[[], None]) -> None:
        self._channel = channel
        self._on_messages = on_messages
        self._tasks: set[asyncio.Task[None]] = set()
        self._answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        channel.on_push(SAY, self._pushed)
        channel.on_close(lambda: self._settle(answered=False))
        channel.on_close(on_lost)

    def send(self, messages: list[FromClient]) -> None:
        answered = type(messages[-1]) in _CALLED
        for body in packed(messages):
            if answered or not self._channel.writable:
                self._call(body)
            else:
                self._channel.say(SAY, body)

    def _call(self, body: bytes) -> None:
        """Send in a call, which is answered: the arrival must be known, or the peer must accept more first."""
        task = asyncio.get_running_loop().create_task(self._send_call(Parcel(body)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_DRAIN_S)

    async def answered(self) -> bool:
        return await asyncio.shield(self._answered)

    def _settle(self, *, answered: bool) -> None:
        if not self._answered.done():
            self._answered.set_result(answered)

    def close(self) -> None:
        self._settle(answered=False)
        self._channel.close_silently()

    async def _send_call(self, parcel: Parcel) -> None:
        try:
            answer = await self._channel.call(TELL, parcel, timeout_ms=_CALL_TIMEOUT_MS)
        except LeaseholdError:
            self._channel.close()  # the machine repeats its requests on the next link
            return
        self._settle(answered=True)
        self._on_messages(decode_from_authority(answer.messages))

    def _pushed(self, body: bytes) -> None:
        self._on_messages(decode_from_authority(body))


class WireDialer:
    """Tries the addresses in turn, starting with the one that worked last."""

    def __init__(self, addresses: Sequence[str], timeout_ms: int = 1_000, tls: Tls | None = None) -> None:
        self._tls = tls
        self._addresses = [parse_address(address) for address in addresses]
        if not self._addresses:
            raise InvalidArgument("a cache client needs at least one address, such as 127.0.0.1:7400")
        self._next = 0
        self._timeout_ms = timeout_ms
        self._refusals = 0

    @property
    def refused_everywhere(self) -> bool:
        return self._refusals >= len(self._addresses)

    async def dial(self, identity: str, on_messages: OnMessages, on_lost: Callable[[], None]) -> Link:
        host, port = self._addresses[self._next % len(self._addresses)]
        self._next += 1
        refusals, self._refusals = self._refusals, 0
        try:
            channel = await open_channel(host, port, timeout_ms=self._timeout_ms, tls=self._tls)
        except NoListener:
            self._refusals = refusals + 1
            raise
        link = WireLink(channel, on_messages, on_lost)
        link.send([Hello(identity)])
        return link

    def skip(self) -> None:
        """The authority at the last address does not serve: take the next address."""
        self._next += 1

    def prefer_last(self) -> None:
        """The last address answered: try it first next time."""
        self._next -= 1


class LocalLink:
    """A link to an authority in this process, on this loop."""

    def __init__(self, authority: Authority, identity: str, on_messages: OnMessages) -> None:
        self._authority = authority
        self._identity = identity
        self._on_messages = on_messages
        self._incoming: list[FromAuthority] = []
        authority.attach(identity, self)

    def send(self, messages: list[FromClient]) -> None:
        self._authority.receive(self._identity, messages)

    async def drain(self) -> None:
        return None

    async def answered(self) -> bool:
        return True

    def close(self) -> None:
        self._authority.detach(self._identity, self)

    def take(self, message: FromAuthority) -> None:
        if not self._incoming:
            asyncio.get_running_loop().call_soon(self._hand_over)
        self._incoming.append(message)

    def call_back(self, drop: Drop) -> None:
        self.take(drop)

    def refill(self, seq: int, item: Item) -> None:
        self.take(Refill(((seq, item),)))

    def _hand_over(self) -> None:
        incoming, self._incoming = self._incoming, []
        self._on_messages(incoming)


class LocalDialer:
    refused_everywhere = False

    def __init__(self, authority: Authority) -> None:
        self._authority = authority

    async def dial(self, identity: str, on_messages: OnMessages, on_lost: Callable[[], None]) -> Link:
        return LocalLink(self._authority, identity, on_messages)
