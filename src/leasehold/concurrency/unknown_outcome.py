"""Requests that were never answered may still arrive: after the lock was had by a repetition, and released again.

Then a key stands in the queue that nobody owns, under a lease that is kept alive: everybody behind it would wait as
long as the session lives. So a key about which there was a doubt is watched for a while, and an incarnation of it that
belongs to nobody here is deleted.
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

# etcd gives up on a request of its own after 7 s with default timeouts; a frozen member may sleep before that.
DOUBT_S = 60.0
PAUSE_S = 0.1


class Doubts:
    """The places of one session, and the keys of which one more may come into being."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._alone: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        self._owned: set[tuple[bytes, int]] = set()
        self._watched: set[bytes] = set()

    def alone(self, key: bytes) -> asyncio.Lock:
        """Held by whoever creates `key`, and by whoever removes one that is nobody's: else that could be adopted."""
        lock = self._alone.get(key)
        if lock is None:
            lock = self._alone[key] = asyncio.Lock()
        return lock

    def owned(self, key: bytes, revision: int) -> None:
        """The key created at `revision` is somebody's place."""
        self._owned.add((key, revision))

    def owns(self, key: bytes, revision: int) -> bool:
        """Whether that place is still somebody's: nobody here has given it up. From any thread."""
        return (key, revision) in self._owned

    def left(self, key: bytes, revision: int) -> None:
        """The place is being given up."""
        self._owned.discard((key, revision))

    def arose(self, key: bytes) -> None:
        """A request to create `key` was not answered."""
        if key not in self._watched:
            self._watched.add(key)
            self._session.spawn(self._sweep(key))

    async def _sweep(self, key: bytes) -> None:
        try:
            async with asyncio.timeout(DOUBT_S):
                while True:
                    await self._until_put(key)
                    await self._remove_if_nobodys(key)
        except (TimeoutError, LeaseholdError):
            return  # the doubt is over, or the session is, and with it every key
        finally:
            self._watched.discard(key)

    async def _until_put(self, key: bytes) -> None:
        """Until the key is put, or has to be looked at for another reason."""
        try:
            async with self._session.coord.watch(key, filters=[WatchFilter.NO_DELETE]) as stream:
                await stream.ready()
                if await self._nobodys(key):
                    return
                async for batch in stream:
                    if batch.events:
                        return
        except (Compacted, SlowConsumer, Unavailable):
            await asyncio.sleep(PAUSE_S)

    async def _nobodys(self, key: bytes) -> int:
        """The create revision of the key if it stands and belongs to nobody here; else 0."""
        found = await self._session.settle(lambda: self._session.coord.get(key))
        for kv in found.kvs:
            if kv.lease == self._session.lease_id and (key, kv.create_revision) not in self._owned:
                return kv.create_revision
        return 0

    async def _remove_if_nobodys(self, key: bytes) -> None:
        async with self.alone(key):
            if revision := await self._nobodys(key):
                same = Compare(key, CompareTarget.CREATE, CompareResult.EQUAL, revision)
                await self._session.settle(lambda: self._session.coord.txn([same], [DeleteRange(key)]))
