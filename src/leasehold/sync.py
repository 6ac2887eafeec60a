"""The same client for synchronous code: `leasehold.sync.connect(url)`.

One core, written once, async. Here each call runs on the background loop of a `Portal` and waits for its answer; a
watch is a plain iterator. One client may be used from many threads.

    with leasehold.sync.connect("etcd://127.0.0.1:2379") as store:
        store.put(b"key", b"value")
        with store.watch(b"key") as events:
            for batch in events: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec

import leasehold.coord.connect
from leasehold.coord.api import Coord, KeepAlive, WatchStream
from leasehold.mvcc.model import WatchBatch
from leasehold.runtime.closing import Closing
from leasehold.runtime.portal import Portal, Through
from leasehold.wire.sync import SyncClient as Client

__all__ = ["Client", "SyncCoord", "SyncWatch", "connect"]


def connect(
    url: str,
    *,
    namespace: bytes | str = b"",
    timeout_s: float = 5.0,
    attempt_timeout_s: float = 1.0,
    user: str = "",
    password: str = "",
    ca: bytes | str | Path | None = None,
    cert: bytes | str | Path | None = None,
    key: bytes | str | Path | None = None,
    watch_queue_events_max: int = 20_000,
    portal: Portal | None = None,
) -> SyncCoord:
    """Open a client for the store at `url`; options are those of `leasehold.connect`."""
    portal = portal or Portal.shared()
    coord = portal.call(
        leasehold.coord.connect.connect,
        url,
        namespace=namespace,
        timeout_s=timeout_s,
        attempt_timeout_s=attempt_timeout_s,
        user=user,
        password=password,
        ca=ca,
        cert=cert,
        key=key,
        watch_queue_events_max=watch_queue_events_max,
    )
    return SyncCoord(coord, portal)


P = ParamSpec("P")


def _watch_on_loop(
    method: Callable[Concatenate[Coord, P], WatchStream],
) -> Callable[Concatenate[SyncCoord, P], SyncWatch]:
    """`Coord.watch` as a plain method with the same signature."""

    @wraps(method)
    def watch(self: SyncCoord, /, *args: P.args, **options: P.kwargs) -> SyncWatch:
        async def start() -> WatchStream:
            return method(self.coord, *args, **options)

        return SyncWatch(self.portal.call(start), self.portal)

    return watch


class SyncCoord(Closing):
    """A coordination store for synchronous code; every method takes what its async twin on `Coord` takes."""

    def __init__(self, coord: Coord, portal: Portal) -> None:
        self.coord = coord
        self.portal = portal

    @property
    def core(self) -> Coord:
        return self.coord

    get = Through(Coord.get)
    get_one = Through(Coord.get_one)
    put = Through(Coord.put)
    delete = Through(Coord.delete)
    txn = Through(Coord.txn)
    compact = Through(Coord.compact)
    lease_grant = Through(Coord.lease_grant)
    lease_revoke = Through(Coord.lease_revoke)
    lease_keep_alive_once = Through(Coord.lease_keep_alive_once)
    lease_time_to_live = Through(Coord.lease_time_to_live)
    leases = Through(Coord.leases)
    status = Through(Coord.status)

    def keep_alive(self, lease_id: int, ttl_s: int, granted_sent_ms: int) -> KeepAlive:
        async def start() -> KeepAlive:
            return self.coord.keep_alive(lease_id, ttl_s, granted_sent_ms)

        return self.portal.call(start)

    watch = _watch_on_loop(Coord.watch)

    def now_ms(self) -> int:
        return self.coord.now_ms()

    def close(self) -> None:
        self.portal.call(self.coord.close)


class SyncWatch(Closing):
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
