"""A watch on a store in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from leasehold.mvcc.errors import Compacted
from leasehold.mvcc.model import Header, Watch, WatchBatch
from leasehold.mvcc.watch import Watcher
from leasehold.runtime.closing import AsyncClosing
from leasehold.store.engine import Engine


class Reader:
    """Somebody who waits for something to read: one future, resolved from whatever thread has the news.

    `tell` and `wait` are called with the engine's lock held.
    """

    __slots__ = ("_future", "_loop", "_thread")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def wait(self) -> asyncio.Future[None]:
        """What to await, after the lock was given up."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._future = self._loop.create_future()
        return self._future

    def tell(self) -> None:
        future, self._future = self._future, None
        if future is None or self._loop is None:
            return
        if self._thread == threading.get_ident():
            _resolve(future)
            return
        with suppress(RuntimeError):  # the reader's loop has ended
            self._loop.call_soon_threadsafe(_resolve, future)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class LocalWatch(AsyncClosing):
    """A watch as the store's place-keeper sees it: nothing is queued here, a reader that is slow reads later.

    What it has not read stays in the store's history; `Compacted` tells when that has gone.
    """

    def __init__(self, engine: Engine, watch: Watch) -> None:
        self._engine = engine
        self._reader = Reader()
        self._closed = False
        self._error: BaseException | None = None
        self._progress_wanted = False
        self._quiet = True
        self._stop_progress: Callable[[], None] | None = None
        with engine.lock:
            engine.enter()
            self._watcher = engine.store.watch(watch, self._wake)
            self._from_revision = self._watcher.next_revision
            if watch.progress_notify:
                self._schedule_progress()

    def _wake(self, _watcher: Watcher) -> None:
        self._quiet = False
        self._engine.wake(self._reader.tell)

    def _schedule_progress(self) -> None:
        engine = self._engine

        def due(_now_ms: int) -> None:
            if self._closed:
                return
            if self._quiet:
                self._progress_wanted = True
                engine.wake(self._reader.tell)
            self._quiet = True
            self._schedule_progress()

        self._stop_progress = engine.schedule(engine.now_ms() + engine.settings.progress_interval_ms, due)

    @property
    def ended(self) -> bool:
        return self._closed or self._error is not None

    async def ready(self, timeout_s: float | None = None) -> int:
        """A local watch is complete from the moment it is made; the revision from which it is."""
        return self._from_revision

    async def request_progress(self) -> None:
        """Have a batch without events once everything up to now has been told."""
        with self._engine.lock:
            self._progress_wanted = True
            self._reader.tell()

    async def close(self) -> None:
        with self._engine.lock:
            self._closed = True
            self._engine.store.unwatch(self._watcher)
            if self._stop_progress is not None:
                self._stop_progress()
            self._reader.tell()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchBatch:
        engine = self._engine
        while True:
            with engine.lock:
                batch = self._next()
                if batch is not None:
                    return batch
                waiting = self._reader.wait()
            await waiting

    def _next(self) -> WatchBatch | None:
        if self._closed:
            raise StopAsyncIteration
        if self._error is not None:
            raise self._error
        engine = self._engine
        try:
            batch = engine.store.pull(self._watcher, upto_revision=engine.durable_revision)
        except Compacted as error:
            self._error = error
            raise
        if not self._watcher.idle:
            engine.wake(self._reader.tell)  # there is more, or what there is is not durable yet
        if batch is None and self._progress_wanted:
            self._progress_wanted = False
            store = engine.store
            return WatchBatch(Header(engine.durable_revision, store.cluster_id, store.member_id, store.term))
        if batch is None:
            engine.check_open()
        return batch
