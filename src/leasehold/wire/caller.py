"""Calls that survive connections: find the master, connect, call, and after a failure repeat the call if allowed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from msgspec import Struct

from leasehold.base.errors import CallerError, LeaseholdError, Unavailable
from leasehold.runtime.clock import BootClock
from leasehold.runtime.tasks import TaskSet
from leasehold.runtime.tls import Tls
from leasehold.wire import peer_timeout
from leasehold.wire.body import pack, unpack
from leasehold.wire.channel import Channel, open_channel
from leasehold.wire.errors import CallLost, MasterError
from leasehold.wire.finder import Finder
from leasehold.wire.peer_timeout import PeerTimeout
from leasehold.wire.rpc import Method
from leasehold.wire.schema import Failed
from leasehold.wire.tables import NEWEST, Release

T = TypeVar("T")
Q = TypeVar("Q", bound=Struct)
A = TypeVar("A", bound=Struct)

_PAUSE_MS = 20  # after a failure; short, because the deadline bounds the attempts
_PAUSE_MAX_MS = 500
_CONNECT_MS = 2_000


class Caller:
    """One connection at a time to the current master. Safe for many concurrent tasks on one loop."""

    def __init__(
        self, finder: Finder, *, release: Release = NEWEST, timeout_ms: int = 10_000, tls: Tls | None = None
    ) -> None:
        self._tls = tls
        self.release = release
        self.timeout_ms = timeout_ms
        self.reconnects = 0
        self._finder = finder
        self._clock = BootClock()
        self._channel: Channel | None = None
        self._peer_timeout = PeerTimeout(release.functions["ServiceReady"].id, self._look_elsewhere)
        self._looking = TaskSet()
        self._closed = False
        self._connecting = asyncio.Lock()

    async def mooncake(self, name: str, *arguments: Any, repeat: bool = False, timeout_ms: int | None = None) -> Any:
        """Call a function of Mooncake's table. Returns the result, with `Failed` inside lists; a failed call raises.

        `repeat`: whether a call whose answer was lost may be sent again.
        """
        function = self.release.functions[name]
        body = b""
        if function.request is not None:
            sent = function.sent(arguments)
            body = pack(function.request, tuple(sent) if len(sent) > 1 else sent[0], literal=False)

        async def once(channel: Channel, left_ms: int) -> Any:
            answered = await channel.raw_call(function.id, body, timeout_ms=left_ms)
            return unpack(function.returns, answered.body)

        result = await self._persist(once, repeat, timeout_ms)
        if isinstance(result, Failed):
            raise MasterError(result.code, name)
        return result

    async def own(self, function: Method[Q, A], message: Q, *, repeat: bool, timeout_ms: int | None = None) -> A:
        """Call one of Leasehold's own functions."""
        answer, _ = await self.own_attached(function, message, repeat=repeat, timeout_ms=timeout_ms)
        return answer

    async def own_attached(
        self, function: Method[Q, A], message: Q, *, repeat: bool, timeout_ms: int | None = None
    ) -> tuple[A, bytes]:
        """The same, with the attachment of the answer."""

        async def once(channel: Channel, left_ms: int) -> tuple[A, bytes]:
            return await channel.exchange(function, message, timeout_ms=left_ms)

        return await self._persist(once, repeat, timeout_ms)

    async def _persist(self, once: Callable[[Channel, int], Awaitable[T]], repeat: bool, timeout_ms: int | None) -> T:
        """Retry until an answer or the deadline; a call that must not be repeated is not retried after `CallLost`."""
        deadline_ms = self._clock.now_ms() + (timeout_ms if timeout_ms is not None else self.timeout_ms)
        pause_ms = _PAUSE_MS
        while True:
            channel = None
            try:
                channel = await self._connected_until(deadline_ms)
                self._peer_timeout.watch(channel)
                return await once(channel, max(deadline_ms - self._clock.now_ms(), 1))
            except (Unavailable, CallLost) as error:
                if channel is not None and not channel.ever_received and not channel.waits:
                    channel.close("it never answered")  # otherwise the next call would wait there too
                if isinstance(error, CallLost) and not repeat:
                    raise
                if self._clock.now_ms() + pause_ms >= deadline_ms:
                    raise
            # Random: a thousand clients that lost the same master must not reconnect at the same moment.
            await asyncio.sleep(pause_ms / 1000 * random.uniform(0.5, 1.0))
            pause_ms = min(pause_ms * 2, _PAUSE_MAX_MS)

    async def _connected_until(self, deadline_ms: int) -> Channel:
        """The current connection, or a new one, found and opened within the remaining time."""
        channel = self._channel
        if channel is not None and channel.usable:
            return channel
        left_ms = max(deadline_ms - self._clock.now_ms(), 1)
        try:
            async with asyncio.timeout(left_ms / 1000), self._connecting:
                return await self._connected(left_ms)
        except TimeoutError:
            raise Unavailable("no master was found in time; nothing was sent") from None

    async def _connected(self, left_ms: int) -> Channel:
        if self._channel is not None and self._channel.usable:
            return self._channel
        self._refuse_if_closed()
        host, port = await self._finder.find()
        channel = await open_channel(host, port, timeout_ms=min(left_ms, _CONNECT_MS), tls=self._tls)
        if self._closed:
            channel.close()
            self._refuse_if_closed()
        self._channel = channel
        self.reconnects += 1
        return channel

    def _look_elsewhere(self, silent: Channel) -> None:
        if not len(self._looking):
            self._looking.start(self._replace(silent))

    async def _replace(self, silent: Channel) -> None:
        """Leave a connection without any answer if another address answers.

        Its guardian may be holding it until a node leads; then no other address answers either. But the kernel also
        accepts connections for a frozen process, which never answers.
        """
        timeout_ms = min(self.timeout_ms, _CONNECT_MS)
        other = None
        try:
            host, port = await self._finder.find()
            if f"{host}:{port}" == silent.address:
                return
            other = await open_channel(host, port, timeout_ms=timeout_ms, tls=self._tls)
            await other.raw_call(self.release.functions["ServiceReady"].id, b"", timeout_ms=timeout_ms)
            await asyncio.sleep(peer_timeout.SILENCE_S)  # if a node leads since now, the held connection is next
            if self._channel is silent and not silent.ever_received and not self._closed:
                self._channel, other = other, None
                self.reconnects += 1
                silent.close("it never answered, and another address does")
        except LeaseholdError:
            return  # none answers: the connection may be held until a node leads
        finally:
            if other is not None:
                other.close()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise CallerError("this client is closed: create a new one")

    def forget_connection(self) -> None:
        """Close the current connection; the next call looks up the master again."""
        if self._channel is not None:
            self._channel.close()

    def close(self) -> None:
        """Close permanently: calls in flight fail with `CallLost`, later calls are refused."""
        self._closed = True
        self.forget_connection()
