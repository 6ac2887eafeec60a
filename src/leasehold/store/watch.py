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
    """A reader that waits for data: one future, which any thread may resolve.

    `notify` and `wait` are called with the engine's lock held.
    """

    __slots__ = ("_future", "_loop", "_thread")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def wait(self) -> asyncio.Future[None]:
        """The future to await after releasing the lock."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._future = self._loop.create_future()
        return self._future

    def notify(self) -> None:
        future, self._future = self._future, None
        if future is None or self._loop is None:
            return
        if self._thread == threading.get_ident():
            _resolve(future)
            return
        with suppress(RuntimeError):  # the reader's loop is closed
            self._loop.call_soon_threadsafe(_resolve, future)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class LocalWatch(AsyncClosing):
    """A watch without a queue: events that a slow reader has not read stay in the store's history.

    It raises `Compacted` if they were compacted.
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
        self._engine.wake(self._reader.notify)

    def _schedule_progress(self) -> None:
        engine = self._engine

        def due(_now_ms: int) -> None:
            if self._closed:
                return
            if self._quiet:
                self._progress_wanted = True
                engine.wake(self._reader.notify)
            self._quiet = True
            self._schedule_progress()

        self._stop_progress = engine.schedule(engine.now_ms() + engine.settings.progress_interval_ms, due)

    @property
    def ended(self) -> bool:
        return self._closed or self._error is not None

    async def ready(self, timeout_s: float | None = None) -> int:
        """Returns the first revision that the watch covers. A local watch is ready when it is created."""
        return self._from_revision

    async def request_progress(self) -> None:
        """Request a batch without events, after all events so far."""
        with self._engine.lock:
            self._progress_wanted = True
            self._reader.notify()

    async def close(self) -> None:
        with self._engine.lock:
            self._closed = True
            self._engine.store.unwatch(self._watcher)
            if self._stop_progress is not None:
                self._stop_progress()
            self._reader.notify()

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
            engine.wake(self._reader.notify)  # there are more events, perhaps not durable yet
        if batch is None and self._progress_wanted:
            self._progress_wanted = False
            store = engine.store
            return WatchBatch(Header(engine.durable_revision, store.cluster_id, store.member_id, store.term))
        if batch is None:
            engine.check_open()
        return batch
