"""A client's connection to an authority: opened when needed, reopened when lost, moved on when refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from leasehold.base.errors import CallerError, LeaseholdError, Unavailable
from leasehold.cache import client_events as c
from leasehold.cache.authority import Authority
from leasehold.cache.client_links import Dialer, Link, LocalDialer, WireDialer
from leasehold.cache.errors import NotServing
from leasehold.cache.model import FromAuthority, FromClient, Release
from leasehold.runtime.clock import BootClock
from leasehold.runtime.tls import Tls

_REDIAL_S: Final = (0.02, 0.05, 0.1, 0.25, 0.5)

now_ms = BootClock().now_ms


class Connector:
    """At most one link at a time. `feed` gets the messages that arrive, and `Connected` and `Lost`."""

    def __init__(
        self,
        where: str | Sequence[str] | Authority,
        identity: str,
        feed: Callable[[c.ClientEvent], None],
        tls: Tls | None = None,
    ) -> None:
        self._where = where
        self._identity = identity
        self._feed = feed
        self._dialer: Dialer = (
            LocalDialer(where)
            if isinstance(where, Authority)
            else WireDialer([where] if isinstance(where, str) else where, tls=tls)
        )
        self.link: Link | None = None
        self.closed = False
        self._link_number = 0
        self._dialing: asyncio.Task[None] | None = None
        self._refused_everywhere = asyncio.Event()
        self._outgoing: list[FromClient] = []
        self._receiving = False

    # --- messages ---

    def send(self, message: FromClient) -> None:
        """Send at the end of this turn of the loop, together with the other messages of the turn."""
        if not self._outgoing and not self._receiving:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outgoing.append(message)

    def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        if self.link is not None and outgoing:
            self.link.send(outgoing)

    def _on_messages(self, messages: list[FromAuthority]) -> None:
        """Handle messages and send the replies together, immediately: writers wait for acknowledgements."""
        if self.closed:
            return  # everything was released: no writer waits for a lease that arrives now
        self._receiving = True
        try:
            self._feed(c.FromServer(messages))
        finally:
            self._receiving = False
            self._flush()

    # --- connecting ---

    async def linked(self, deadline_ms: int, *, patient: bool = True) -> None:
        """Wait for a link; `Unavailable` if there is none in time or, unless `patient`, if nothing listens anywhere."""
        self._refused_everywhere.clear()
        if self.link is not None:
            return
        if self.closed:
            raise self._is_closed()
        dialing = self._redial()
        refused = asyncio.ensure_future(self._refused_everywhere.wait())
        try:
            await asyncio.wait(
                (dialing,) if patient else (dialing, refused),
                timeout=max(0, deadline_ms - now_ms()) / 1_000,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            refused.cancel()
        if not dialing.done():
            raise self._no_answer()
        if self.closed:
            raise self._is_closed()
        dialing.result()  # raises an error that dialling again would not fix

    async def answered(self, deadline_ms: int) -> None:
        """Wait for an answer of an authority; `Unavailable` if there is none in time, or if nothing listens."""
        while True:
            await self.linked(deadline_ms, patient=False)
            try:
                async with asyncio.timeout(max(0, deadline_ms - now_ms()) / 1_000):
                    if self.link is not None and await self.link.answered():
                        return
            except TimeoutError:
                raise self._no_answer() from None

    def _is_closed(self) -> CallerError:
        return CallerError("the cache client is closed: make a new one")

    def _no_answer(self) -> Unavailable:
        return Unavailable(f"no cache authority answers at {self._place}: is `leasehold cache serve` running?")

    @property
    def _place(self) -> str:
        if isinstance(self._where, Authority):
            return "this process"
        return self._where if isinstance(self._where, str) else ", ".join(self._where)

    def _redial(self) -> asyncio.Task[None]:
        if self._dialing is None or self._dialing.done():
            self._dialing = asyncio.get_running_loop().create_task(self._dial())
        return self._dialing

    async def _dial(self) -> None:
        for attempt in range(10**9):
            self._link_number += 1
            lost = partial(self._lost, self._link_number)
            try:
                link = await self._dialer.dial(self._identity, self._on_messages, lost)
            except LeaseholdError:
                if self._dialer.refused_everywhere:
                    self._refused_everywhere.set()
                await asyncio.sleep(_REDIAL_S[min(attempt, len(_REDIAL_S) - 1)])
                continue
            self.link = link
            if isinstance(self._dialer, WireDialer):
                self._dialer.prefer_last()
            self._feed(c.Connected())
            return

    # --- disconnecting ---

    def _lost(self, number: int) -> None:
        """Leases stay valid: the authority waits for them if it cannot reach this client. Reconnect immediately."""
        if self.link is None or self._link_number != number:
            return
        self.link = None
        if self.closed:
            return
        self._feed(c.Lost())
        self._redial()

    async def elsewhere(self, refused_by: Link | None, deadline_ms: int) -> None:
        """That authority does not serve: try the next address. Many refused calls leave a link only once."""
        if now_ms() >= deadline_ms:
            raise NotServing(f"no cache authority serves at {self._place}: is one elected?")
        if self.link is refused_by and refused_by is not None:
            self.cut()
            self._skip()
        await asyncio.sleep(_REDIAL_S[1])

    def leave(self) -> None:
        """The authority is silent: try the next address immediately."""
        self.cut()
        self._skip()
        if not self.closed:
            self._redial()

    def _skip(self) -> None:
        if isinstance(self._dialer, WireDialer):
            self._dialer.skip()

    def cut(self) -> None:
        """Close the link, if there is one."""
        link, self.link = self.link, None
        if link is not None:
            link.close()
            if not self.closed:
                self._feed(c.Lost())

    async def close(self) -> None:
        """Send the remaining messages and a release, so that no write waits for this client, and disconnect."""
        self.closed = True
        if self._dialing is not None:
            self._dialing.cancel()
        link, self.link = self.link, None
        if link is not None:
            link.send([*self._outgoing, Release()])
            self._outgoing = []
            await link.drain()
            link.close()
