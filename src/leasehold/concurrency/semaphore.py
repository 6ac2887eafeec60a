"""A fair semaphore: at most `permits` holders at a time, first come, first served. Keys: `prefix/<ns>`.

The oldest `permits` keys hold a permit. A waiting client lists the keys ahead once, then counts deletions in one watch.
It reads again only when its turn may have come. So a release costs each waiting client an event, not a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from leasehold.base.errors import InvalidArgument
from leasehold.concurrency.errors import Locked, LockReleased
from leasehold.concurrency.held import Held, HoldScope
from leasehold.concurrency.keys import as_bytes
from leasehold.concurrency.place import (
    Place,
    enter_unique,
    kvs_of,
    leave_shielded,
    leaving_on_failure,
    own_key_gone,
)
from leasehold.concurrency.session import Session
from leasehold.concurrency.time_limit import time_limit
from leasehold.concurrency.watches import WATCH_BROKEN, set_up
from leasehold.coord.api import WatchStream
from leasehold.mvcc.model import EventType, Header, Range, WatchFilter, prefix_end


class Countdown:
    """The keys ahead of a place, counted down as they are deleted. Pure."""

    __slots__ = ("_keys", "_own_key", "_permits", "own_deleted")

    def __init__(self, own_key: bytes, keys: set[bytes], permits: int) -> None:
        self._own_key = own_key
        self._keys = keys
        self._permits = permits
        self.own_deleted = False

    @property
    def turn_has_come(self) -> bool:
        return len(self._keys) < self._permits

    def deleted(self, key: bytes) -> bool:
        """Count a deletion; returns whether the queue must be read again."""
        self._keys.discard(key)
        self.own_deleted = self.own_deleted or key == self._own_key
        return self.own_deleted or self.turn_has_come


class Semaphore:
    """`async with Semaphore(session, "name", permits=3).hold() as held:`. All users must pass the same number."""

    def __init__(self, session: Session, prefix: str | bytes, permits: int) -> None:
        if permits < 1:
            raise InvalidArgument(f"a semaphore has at least one permit, not {permits}")
        self._session = session
        self._prefix = as_bytes(prefix)
        self._permits = permits

    def hold(self, *, timeout_s: float | None = None) -> HoldScope:
        """Hold one permit during the body."""
        return HoldScope(self._session, lambda: self.acquire(timeout_s=timeout_s), self.release)

    async def acquire(self, *, timeout_s: float | None = None) -> Held:
        """Wait for a permit; `WaitTimeout` or `SessionLost` leave nothing in the store."""
        async with time_limit(timeout_s, f"semaphore {self._prefix.decode(errors='replace')}"):
            entered = await enter_unique(self._session, self._prefix)
            async with leaving_on_failure(self._session, entered.place):
                header = await self._turn(entered.place)
        return Held(self._session, entered.place, header)

    async def try_acquire(self) -> Held:
        """Acquire a permit without waiting, or raise `Locked`."""
        entered = await enter_unique(self._session, self._prefix)
        async with leaving_on_failure(self._session, entered.place):
            header, ahead = await self._read_ahead(entered.place)
            if not ahead.turn_has_come:
                raise Locked(f"all {self._permits} permits of {self._prefix.decode(errors='replace')} are taken")
        return Held(self._session, entered.place, header)

    async def release(self, held: Held) -> None:
        """Release the permit; a second time raises `LockReleased`."""
        if held.released:
            raise LockReleased(f"{held.key.decode(errors='replace')} has already been released")
        held.release()
        await leave_shielded(self._session, held.place)

    async def _turn(self, place: Place) -> Header:
        header, ahead = await self._read_ahead(place)
        while not ahead.turn_has_come:
            async with self._deletions() as stream:
                header, ahead = await self._read_ahead(place)
                if stream is None or ahead.turn_has_come:
                    continue
                following = asyncio.create_task(_count_down(stream, ahead))
                try:
                    await self._session.or_lost(following)
                finally:
                    following.cancel()
            header, ahead = await self._read_ahead(place)
        return header

    async def _read_ahead(self, place: Place) -> tuple[Header, Countdown]:
        prefix = self._prefix + b"/"
        older = Range(prefix, prefix_end(prefix), keys_only=True, max_create_revision=place.revision - 1)
        result = await self._session.settle(lambda: self._session.coord.txn([place.exists()], [older]))
        if not result.succeeded:
            raise own_key_gone(self._session, place)
        return result.header, Countdown(place.key, {kv.key for kv in kvs_of(result, 0)}, self._permits)

    @asynccontextmanager
    async def _deletions(self) -> AsyncIterator[WatchStream | None]:
        prefix = self._prefix + b"/"
        stream = self._session.coord.watch(prefix, prefix_end(prefix), filters=[WatchFilter.NO_PUT])
        try:
            yield stream if await set_up(self._session, stream) else None
        finally:
            await stream.close()


async def _count_down(stream: WatchStream, ahead: Countdown) -> None:
    """Wait until the queue must be read again: the turn may have come, the own key was deleted, or the watch broke."""
    try:
        async for batch in stream:
            if any(ahead.deleted(event.kv.key) for event in batch.events if event.type is EventType.DELETE):
                return
    except WATCH_BROKEN:
        return
