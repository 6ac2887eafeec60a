"""Watches with callbacks. They resume after a lost connection, where python-etcd3 reports an error and ends them."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from leasehold.base.errors import LeaseholdError, Unavailable
from leasehold.contrib.etcd3.events import Event, new_event
from leasehold.contrib.etcd3.exceptions import WatchTimedOut, translate
from leasehold.contrib.etcd3.utils import to_bytes
from leasehold.coord.api import WatchStream
from leasehold.mvcc.model import Header, WatchBatch, WatchFilter
from leasehold.sync import SyncCoord

log = logging.getLogger(__name__)


class WatchResponse:
    """Events of whole revisions, and the header of the answer. Without events: a report of progress."""

    def __init__(self, header: Header, events: list[Event]) -> None:
        self.header = header
        self.events = events


Callback = Callable[["WatchResponse | Exception"], object]


class Watcher:
    """All watches of one client. Callbacks run one after the other, on one thread, and may call the client."""

    def __init__(self, store: SyncCoord, timeout: float | None) -> None:
        self._store = store
        self._timeout = timeout
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._watches: dict[int, tuple[WatchStream, Callback]] = {}
        self._arrived: queue.SimpleQueue[tuple[int, WatchBatch | Exception] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def add_callback(
        self,
        key: bytes | str,
        callback: Callback,
        range_end: bytes | str | None = None,
        start_revision: int | None = None,
        progress_notify: bool = False,
        filters: Sequence[int] | None = None,
        prev_kv: bool = False,
    ) -> int:
        """Watch, and call `callback` with every response, or with the error that ended the watch."""
        portal = self._store.portal
        stream = portal.call(
            self._open,
            to_bytes(key),
            b"" if range_end is None else to_bytes(range_end),
            start_revision=start_revision or 0,
            prev_kv=prev_kv,
            progress_notify=progress_notify,
            filters=[WatchFilter(each) for each in filters or ()],
        )
        try:
            portal.call(stream.ready, self._timeout)
        except BaseException as error:
            portal.call(stream.close)
            if isinstance(error, TimeoutError | Unavailable):
                raise WatchTimedOut from None
            if isinstance(error, LeaseholdError):
                raise translate(error) from error
            raise
        with self._lock:
            number = next(self._numbers)
            self._watches[number] = stream, callback
            if self._thread is None:
                self._thread = threading.Thread(target=self._call_back, name="etcd3-watch", daemon=True)
                self._thread.start()
        portal.submit(self._follow, number, stream)
        return number

    async def _open(self, key: bytes, range_end: bytes, **options: Any) -> WatchStream:
        return self._store.coord.watch(key, range_end, **options)

    def cancel(self, watch_id: int) -> None:
        """End a watch. No callback for it begins after this."""
        with self._lock:
            found = self._watches.pop(watch_id, None)
        if found is not None:
            self._store.portal.call(found[0].close)

    def close(self) -> None:
        """End all watches and the thread of their callbacks."""
        for number in list(self._watches):
            self.cancel(number)
        self._arrived.put(None)

    async def _follow(self, number: int, stream: WatchStream) -> None:
        try:
            async for batch in stream:
                self._arrived.put((number, batch))
        except LeaseholdError as error:
            self._arrived.put((number, translate(error)))

    def _call_back(self) -> None:
        while (arrived := self._arrived.get()) is not None:
            number, found = arrived
            watch = self._watches.get(number)
            if watch is None:
                continue
            if isinstance(found, Exception):
                self._watches.pop(number, None)
                response: WatchResponse | Exception = found
            else:
                response = WatchResponse(found.header, [new_event(event) for event in found.events])
            try:
                watch[1](response)
            except Exception:  # as in python-etcd3: one failed callback does not end the others
                log.exception("Watch callback failed")
