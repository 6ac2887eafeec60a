"""A barrier: clients wait while its key exists. Go's layout: the key itself, without a lease.

Without a lease it stays closed when the process that closed it dies, as in Go. With `leased=True` it opens then.
"""

from __future__ import annotations

import asyncio

from leasehold.concurrency.errors import KeyExists
from leasehold.concurrency.keys import as_bytes, unique_key
from leasehold.concurrency.place import kvs_of
from leasehold.concurrency.session import Session
from leasehold.concurrency.time_limit import time_limit
from leasehold.concurrency.watches import watching_deletes
from leasehold.mvcc.model import Compare, CompareResult, CompareTarget, Put, Range


class Barrier:
    """`hold()` closes, `release()` opens, `wait()` waits until it is open."""

    def __init__(self, session: Session, key: str | bytes, *, leased: bool = False) -> None:
        self._session = session
        self._key = as_bytes(key)
        self._leased = leased

    async def hold(self) -> None:
        """Close the barrier; `KeyExists` if it is closed already."""
        # The value is unique to this call: after a lost answer it shows whether the key is ours.
        mine = unique_key(f"{self._session.lease_id:x}".encode())
        put = Put(self._key, mine, lease=self._session.lease_id if self._leased else 0)
        absent = Compare(self._key, CompareTarget.VERSION, CompareResult.EQUAL, 0)
        coord = self._session.coord
        closing = self._session.settle(lambda: coord.txn([absent], [put], [Range(self._key)]))
        result = await asyncio.shield(self._session.spawn(closing))
        if not result.succeeded and [kv.value for kv in kvs_of(result, 0)] != [mine]:
            raise KeyExists(f"the barrier {self._key.decode(errors='replace')} is held already")

    async def release(self) -> None:
        """Open the barrier, even if another client closed it."""
        coord = self._session.coord
        await asyncio.shield(self._session.spawn(self._session.settle(lambda: coord.delete(self._key))))

    async def wait(self, *, timeout_s: float | None = None) -> None:
        """Wait until the barrier is open. `SessionLost` if the session ends meanwhile."""
        async with time_limit(timeout_s, f"barrier {self._key.decode(errors='replace')}"):
            while await self._closed():
                async with watching_deletes(self._session, self._key) as watches:
                    if watches and await self._closed():
                        await self._session.or_lost(*watches.fired)

    async def _closed(self) -> bool:
        return bool((await self._session.settle(lambda: self._session.coord.get(self._key, keys_only=True))).kvs)
