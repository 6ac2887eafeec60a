"""The same client for synchronous code: `leasehold.sync.connect(url)`.

One core, written once, async. Here each call runs on the background loop of a `Portal` and waits for its answer; a
watch is a plain iterator. One client may be used from many threads.

    with leasehold.sync.connect("etcd://127.0.0.1:2379") as store:
        store.put(b"key", b"value")
        with store.watch(b"key") as events:
            for batch in events: ...
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import leasehold.coord.connect
from leasehold.coord.api import Coord, KeepAlive, WatchStream
from leasehold.mvcc.model import (
    CompactResult,
    DeleteResult,
    KeyValue,
    LeaseGrantResult,
    LeaseKeepAliveResult,
    LeaseListResult,
    LeaseRevokeResult,
    LeaseTimeToLiveResult,
    PutResult,
    RangeResult,
    Status,
    TxnResult,
    WatchBatch,
)
from leasehold.runtime.portal import Portal
from leasehold.wire.sync import SyncClient as Client

__all__ = ["Client", "SyncCoord", "SyncWatch", "connect"]


def connect(url: str, *, portal: Portal | None = None, **options: Any) -> SyncCoord:
    """Open a client for the store at `url`; options are those of `leasehold.connect`."""
    portal = portal or Portal.shared()
    return SyncCoord(portal.call(leasehold.coord.connect.connect, url, **options), portal)


class SyncCoord:
    """A coordination store for synchronous code; every method takes what its async twin on `Coord` takes."""

    def __init__(self, coord: Coord, portal: Portal) -> None:
        self.coord = coord
        self.portal = portal

    def get(self, key: bytes, range_end: bytes = b"", **options: Any) -> RangeResult:
        return self.portal.call(self.coord.get, key, range_end, **options)

    def get_one(self, key: bytes, **options: Any) -> KeyValue | None:
        return self.portal.call(self.coord.get_one, key, **options)

    def put(self, key: bytes, value: bytes = b"", **options: Any) -> PutResult:
        return self.portal.call(self.coord.put, key, value, **options)

    def delete(self, key: bytes, range_end: bytes = b"", **options: Any) -> DeleteResult:
        return self.portal.call(self.coord.delete, key, range_end, **options)

    def txn(self, *args: Any, **options: Any) -> TxnResult:
        return self.portal.call(self.coord.txn, *args, **options)

    def compact(self, revision: int, **options: Any) -> CompactResult:
        return self.portal.call(self.coord.compact, revision, **options)

    def lease_grant(self, ttl_s: int, lease_id: int = 0, **options: Any) -> LeaseGrantResult:
        return self.portal.call(self.coord.lease_grant, ttl_s, lease_id, **options)

    def lease_revoke(self, lease_id: int, **options: Any) -> LeaseRevokeResult:
        return self.portal.call(self.coord.lease_revoke, lease_id, **options)

    def lease_keep_alive_once(self, lease_id: int, **options: Any) -> LeaseKeepAliveResult:
        return self.portal.call(self.coord.lease_keep_alive_once, lease_id, **options)

    def lease_time_to_live(self, lease_id: int, **options: Any) -> LeaseTimeToLiveResult:
        return self.portal.call(self.coord.lease_time_to_live, lease_id, **options)

    def leases(self, **options: Any) -> LeaseListResult:
        return self.portal.call(self.coord.leases, **options)

    def keep_alive(self, lease_id: int, ttl_s: int, granted_sent_ms: int) -> KeepAlive:
        async def start() -> KeepAlive:
            return self.coord.keep_alive(lease_id, ttl_s, granted_sent_ms)

        return self.portal.call(start)

    def watch(self, key: bytes, range_end: bytes = b"", **options: Any) -> SyncWatch:
        async def start() -> WatchStream:
            return self.coord.watch(key, range_end, **options)

        return SyncWatch(self.portal.call(start), self.portal)

    def status(self, **options: Any) -> Status:
        return self.portal.call(self.coord.status, **options)

    def now_ms(self) -> int:
        return self.coord.now_ms()

    def close(self) -> None:
        self.portal.call(self.coord.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SyncWatch:
    """A watch as a plain iterator of batches. `close` from another thread ends a waiting reader."""

    def __init__(self, stream: WatchStream, portal: Portal) -> None:
        self._stream = stream
        self._portal = portal

    def ready(self, timeout_s: float | None = None) -> int:
        """Wait until the store has taken the watch; the revision from which it is complete."""
        return self._portal.call(self._stream.ready, timeout_s)

    def request_progress(self) -> None:
        self._portal.call(self._stream.request_progress)

    def close(self) -> None:
        self._portal.call(self._stream.close)

    def __iter__(self) -> Iterator[WatchBatch]:
        return self._portal.iterate(self._stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
