"""The keys that a session has created, and late creations of unanswered requests.

A request that was never answered may still arrive: after a repetition of it has acquired the lock and released it
again. Then the queue contains a key without an owner, under a lease that is kept alive, and every client behind it
would wait until the session ends. So after an unknown outcome the key is watched for a while, and deleted if it appears
without an owner.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from leasehold.base.errors import LeaseholdError, Unavailable
from leasehold.coord.errors import SlowConsumer
from leasehold.mvcc.errors import Compacted
from leasehold.mvcc.model import Compare, CompareResult, CompareTarget, DeleteRange, WatchFilter

if TYPE_CHECKING:
    from leasehold.concurrency.session import Session

# With default timeouts etcd gives up on a request after 7 s; a frozen member may have delayed it before that.
LATE_CREATION_S = 60.0
PAUSE_S = 0.1


class OwnKeys:
    """The keys of one session, and those that an unanswered request may still create."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        self._owned: set[tuple[bytes, int]] = set()
        self._watched: set[bytes] = set()

    def exclusive(self, key: bytes) -> asyncio.Lock:
        """A lock for creating `key`, and for deleting one without an owner, which a creation could adopt."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    def add(self, key: bytes, revision: int) -> None:
        """The key created at `revision` has an owner in this process."""
        self._owned.add((key, revision))

    def owns(self, key: bytes, revision: int) -> bool:
        """Whether that key has an owner that has not released it. Callable from any thread."""
        return (key, revision) in self._owned

    def remove(self, key: bytes, revision: int) -> None:
        """The owner releases the key."""
        self._owned.discard((key, revision))

    def creation_unknown(self, key: bytes) -> None:
        """A request to create `key` was not answered."""
        if key not in self._watched:
            self._watched.add(key)
            self._session.spawn(self._sweep(key))

    async def _sweep(self, key: bytes) -> None:
        try:
            async with asyncio.timeout(LATE_CREATION_S):
                while True:
                    await self._until_put(key)
                    await self._delete_unowned(key)
        except (TimeoutError, LeaseholdError):
            return  # no late creation is possible any more, or the session has expired with all its keys
        finally:
            self._watched.discard(key)

    async def _until_put(self, key: bytes) -> None:
        """Wait until the key is put, or must be read again for another reason."""
        try:
            async with self._session.coord.watch(key, filters=[WatchFilter.NO_DELETE]) as stream:
                await stream.ready()
                if await self._unowned(key):
                    return
                async for batch in stream:
                    if batch.events:
                        return
        except (Compacted, SlowConsumer, Unavailable):
            await asyncio.sleep(PAUSE_S)

    async def _unowned(self, key: bytes) -> int:
        """The create revision of the key if it exists without an owner in this process; else 0."""
        found = await self._session.settle(lambda: self._session.coord.get(key))
        for kv in found.kvs:
            if kv.lease == self._session.lease_id and (key, kv.create_revision) not in self._owned:
                return kv.create_revision
        return 0

    async def _delete_unowned(self, key: bytes) -> None:
        async with self.exclusive(key):
            if revision := await self._unowned(key):
                same = Compare(key, CompareTarget.CREATE, CompareResult.EQUAL, revision)
                await self._session.settle(lambda: self._session.coord.txn([same], [DeleteRange(key)]))
