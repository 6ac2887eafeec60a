"""A double barrier: `count` clients enter together and leave together. Go's layout: `key/waiters/<ns>`, `key/ready`."""

from __future__ import annotations

import asyncio

from leasehold.base.errors import NotHeld
from leasehold.concurrency.errors import TooManyClients
from leasehold.concurrency.keys import as_bytes
from leasehold.concurrency.place import (
    Place,
    create_compare,
    enter_unique,
    kvs_of,
    leave_shielded,
    leaving_on_failure,
    own_key_gone,
)
from leasehold.concurrency.session import Session
from leasehold.concurrency.time_limit import time_limit
from leasehold.concurrency.watches import watching, watching_deletes
from leasehold.mvcc.model import DeleteRange, KeyValue, Put, Range, SortOrder, SortTarget, prefix_end


class DoubleBarrier:
    """`enter()` returns when `count` clients have entered, `leave()` when all have left."""

    def __init__(self, session: Session, key: str | bytes, count: int) -> None:
        self._session = session
        self._waiters = as_bytes(key) + b"/waiters"
        self._ready = as_bytes(key) + b"/ready"
        self._count = count
        self._place: Place | None = None

    async def enter(self, *, timeout_s: float | None = None) -> None:
        """Wait until `count` clients are inside; `TooManyClients` for any further client."""
        async with time_limit(timeout_s, f"double barrier {self._waiters.decode(errors='replace')}"):
            if len(await self._inside()) >= self._count:
                raise self._full()
            place = (await enter_unique(self._session, self._waiters)).place
            async with leaving_on_failure(self._session, place):
                await self._gather(place)
        self._place = place

    async def leave(self, *, timeout_s: float | None = None) -> None:
        """Wait until all clients have left. A client that dies leaves when its lease expires."""
        place = self._place
        if place is None:
            raise NotHeld("this double barrier was not entered through this object: enter first")
        async with time_limit(timeout_s, f"leave {self._waiters.decode(errors='replace')}"):
            while inside := await self._inside():
                lowest = min(inside, key=lambda kv: kv.mod_revision)
                highest = max(inside, key=lambda kv: kv.mod_revision)
                if lowest.key != place.key:
                    await leave_shielded(self._session, place)
                    await self._until_deleted(lowest)
                elif len(inside) == 1:
                    await self._last_one_out(place)
                else:
                    await self._until_deleted(highest)
        self._place = None

    async def _gather(self, place: Place) -> None:
        """Wait for the key `ready`. The client that completes the count creates it; a late one leaves again."""
        while True:
            async with watching(self._session, self._ready, place.key) as changed:
                inside = await self._inside()
                if len(inside) >= self._count:
                    last = inside[self._count - 1]
                    if place.revision > last.create_revision:
                        raise self._full()
                    if place.revision == last.create_revision:
                        await self._put_ready(place)
                if await self._open(place):
                    return
                if changed:
                    await self._session.or_lost(*changed.fired)

    async def _put_ready(self, place: Place) -> None:
        coord = self._session.coord
        await self._session.settle(lambda: coord.txn([place.exists()], [Put(self._ready)]))

    async def _open(self, place: Place) -> bool:
        coord = self._session.coord
        result = await self._session.settle(lambda: coord.txn([place.exists()], [Range(self._ready)]))
        if not result.succeeded:
            raise own_key_gone(self._session, place)
        # A `ready` from before the own key belongs to an earlier group, which has not left completely.
        return any(ready.mod_revision > place.revision for ready in kvs_of(result, 0))

    async def _until_deleted(self, kv: KeyValue) -> None:
        async with watching_deletes(self._session, kv.key) as watches:
            found = await self._session.settle(lambda: self._session.coord.get(kv.key))
            if watches and found.kvs and found.kvs[0].create_revision == kv.create_revision:
                await self._session.or_lost(*watches.fired)

    async def _last_one_out(self, place: Place) -> None:
        """Delete `ready` and the own key in one transaction: a new client never sees only one of them."""
        both = [DeleteRange(self._ready), DeleteRange(place.key)]
        coord = self._session.coord
        self._session.own_keys.remove(place.key, place.revision)
        work = self._session.settle(lambda: coord.txn([create_compare(place.key, place.revision)], both))
        await asyncio.shield(self._session.spawn(work))

    async def _inside(self) -> tuple[KeyValue, ...]:
        prefix = self._waiters + b"/"
        found = await self._session.settle(
            lambda: self._session.coord.get(
                prefix, prefix_end(prefix), sort_order=SortOrder.ASCEND, sort_target=SortTarget.CREATE
            )
        )
        return found.kvs

    def _full(self) -> TooManyClients:
        return TooManyClients(f"{self._count} clients are in {self._waiters.decode(errors='replace')} already")
