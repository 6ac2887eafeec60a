"""Leader election with Go's keys and transactions: Go programs and `etcdctl elect` take part in the same one.

Key: `prefix/` + lease id in lower-case hex; its value is the leader's proclamation. The oldest key leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Self

from msgspec import Struct

from leasehold.concurrency.errors import NoLeader, NotLeader
from leasehold.concurrency.held import Held, HoldScope
from leasehold.concurrency.keys import as_bytes, lease_key
from leasehold.concurrency.observe import observe_leader
from leasehold.concurrency.place import Place, enter, first_created, leave_shielded, leaving_on_failure
from leasehold.concurrency.session import Session
from leasehold.concurrency.time_limit import time_limit
from leasehold.concurrency.turn import turn
from leasehold.mvcc.model import Header, KeyValue, Put, prefix_end


class Leader(Struct, frozen=True):
    """The leader as of `header.revision`. `kv` is None if there is none (only from `observe`)."""

    header: Header
    kv: KeyValue | None

    @property
    def value(self) -> bytes:
        """The leader's proclamation; empty if there is no leader."""
        return self.kv.value if self.kv else b""


class Election:
    """`campaign(value)`, `proclaim(value)`, `resign()`; `leader()` and `observe()` need no candidacy."""

    def __init__(self, session: Session, prefix: str | bytes) -> None:
        self._session = session
        self._prefix = as_bytes(prefix) + b"/"
        self._held: Held | None = None
        self._header: Header | None = None

    @classmethod
    def resume(cls, session: Session, prefix: str | bytes, key: str | bytes, revision: int) -> Self:
        """Resume a leadership won earlier with this session's lease; `prefix` as in `Election(...)`.

        Go's `ResumeElection` expects the slash that `NewElection` adds; here a trailing one is removed.
        """
        election = cls(session, as_bytes(prefix).removesuffix(b"/"))
        place = Place(as_bytes(key), revision)
        session.own_keys.add(place.key, place.revision)
        election._held = Held(session, place, Header(revision))
        return election

    @property
    def key(self) -> bytes:
        """The leader's key while this object leads; empty otherwise."""
        return self._held.key if self._held else b""

    @property
    def rev(self) -> int:
        """The create revision of that key, a fencing token; 0 when not leading."""
        return self._held.token if self._held else 0

    @property
    def header(self) -> Header | None:
        """The header of the last successful campaign, proclaim or resign."""
        return self._header

    async def campaign(self, value: str | bytes, *, timeout_s: float | None = None) -> Held:
        """Wait until elected: the own key was the oldest when it was read.

        Raises `SessionLost` as soon as the session ends, `WaitTimeout` after `timeout_s`. Then, and when cancelled, the
        candidacy is withdrawn. If this object leads already, it proclaims the value, and keeps leading even if this
        call fails.
        """
        async with time_limit(timeout_s, f"campaign {self._prefix.decode(errors='replace')}"):
            if self._held is not None and (again := await self._campaign_again(self._held, as_bytes(value))):
                return again
            key = lease_key(self._prefix, self._session.lease_id)
            entered = await enter(self._session, key, as_bytes(value), queue=self._prefix)
            async with leaving_on_failure(self._session, entered.place):
                if entered.existing is not None and entered.existing.value != as_bytes(value):
                    await self._write(entered.place, as_bytes(value))
                header = await turn(self._session, entered.place, self._prefix, entered.ahead)
        self._held = Held(self._session, entered.place, header)
        self._header = header
        return self._held

    async def _campaign_again(self, held: Held, value: bytes) -> Held | None:
        """Campaign while leading: no key can be older than one that leads."""
        try:
            await self.proclaim(value)
        except NotLeader:
            return None
        return held

    def lead(self, value: str | bytes, *, timeout_s: float | None = None) -> HoldScope:
        """`async with election.lead("me") as held`: the body runs while elected, then resigns."""

        async def resign(_held: Held) -> None:
            await self.resign()

        return HoldScope(self._session, lambda: self.campaign(value, timeout_s=timeout_s), resign)

    async def proclaim(self, value: str | bytes) -> None:
        """Publish a new value without another election. `NotLeader` if leadership was lost."""
        if self._held is None:
            raise NotLeader("this election object does not lead: campaign first")
        try:
            self._header = await self._write(self._held.place, as_bytes(value))
        except NotLeader:
            self._forget()
            raise

    async def resign(self) -> None:
        """Give up leadership, if this object leads."""
        held = self._held
        if held is None:
            return
        self._forget()
        self._header = await leave_shielded(self._session, held.place)

    async def leader(self, *, timeout_s: float | None = None) -> Leader:
        """The current leader; `NoLeader` if there is none."""
        head = first_created(self._prefix)
        found = await self._session.coord.get(
            head.key,
            prefix_end(self._prefix),
            limit=1,
            sort_order=head.sort_order,
            sort_target=head.sort_target,
            timeout_s=timeout_s,
        )
        if not found.kvs:
            raise NoLeader(f"{self._prefix.decode(errors='replace')}: there is no leader")
        return Leader(found.header, found.kvs[0])

    async def observe(self) -> AsyncIterator[Leader]:
        """Every proclamation of every leader from now on, in order, and `kv=None` when there is no leader.

        After a compaction it may skip changes, but never the newest state. It does not depend on the session: it ends
        when its reader does.
        """
        async for header, kv in observe_leader(self._session.coord, self._prefix):
            yield Leader(header, kv)

    def _forget(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.release()
            self._session.own_keys.remove(held.key, held.token)

    async def _write(self, place: Place, value: bytes) -> Header:
        put = Put(place.key, value, lease=self._session.lease_id)
        writing = self._session.spawn(self._session.settle(lambda: self._session.coord.txn([place.exists()], [put])))
        result = await asyncio.shield(writing)
        if not result.succeeded:
            raise NotLeader(
                f"the key {place.key.decode(errors='replace')} of this leadership was deleted: campaign again"
            )
        return result.header
