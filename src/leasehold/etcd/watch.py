"""A watch: fed by the client's stream, and resumed at another endpoint without loss or duplicate."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

from leasehold.base.limits import watch_queue_bytes_max
from leasehold.coord.errors import ClientClosed, SlowConsumer
from leasehold.etcd import codec
from leasehold.etcd.pb import rpc_pb2
from leasehold.mvcc.errors import Compacted
from leasehold.mvcc.model import Event, Header, Watch, WatchBatch
from leasehold.runtime.closing import AsyncClosing

if TYPE_CHECKING:
    from leasehold.etcd.watch_stream import Hub


class EtcdWatch(AsyncClosing):
    """The reader's side of one watch. It survives the streams that feed it."""

    def __init__(self, hub: Hub, watch_id: int, request: Watch, queue_events_max: int) -> None:
        self.watch_id = watch_id
        self.request = request
        self.next_revision = request.start_revision  # 0 (from now on) until the store has answered
        self.wants_progress = False
        self.denied = False  # once, perhaps because of an expired token
        self._hub = hub
        self._queue: deque[tuple[WatchBatch, int]] = deque()  # each with its size in bytes
        self._queued_events = 0
        self._queued_bytes = 0
        self._queue_events_max = queue_events_max
        self._fragments: list[Event] = []
        self._fragments_bytes = 0
        self._error: BaseException | None = None
        self._ended = False
        self._waiting: list[asyncio.Future[None]] = []
        self._created: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    # ---- for the reader ----

    async def ready(self, timeout_s: float | None = None) -> int:
        """Wait until the store has created the watch. Returns the first revision that it covers."""
        async with asyncio.timeout(timeout_s):  # not wait_for, which can lose a cancellation (Python 3.11)
            return await asyncio.shield(self._created)

    async def request_progress(self) -> None:
        """Request a progress report; the answer is a batch without events.

        etcd before 3.4.25 and 3.5.8 may answer ahead of events that are still queued: its answer is dropped.
        """
        self.wants_progress = True
        self._hub.request_progress()

    async def close(self) -> None:
        """End the watch. Queued batches can still be read."""
        self.end(None)
        self._hub.remove(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchBatch:
        while not self._queue:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
        batch, size_bytes = self._queue.popleft()
        self._queued_events -= len(batch.events)
        self._queued_bytes -= size_bytes
        return batch

    # ---- for the hub ----

    def created(self, revision: int) -> None:
        """The store has created the watch, at `revision`."""
        self._fragments.clear()
        self._fragments_bytes = 0
        if self.next_revision == 0:
            self.next_revision = revision + 1
        if not self._created.done():
            self._created.set_result(self.next_revision)

    def take(self, message: rpc_pb2.WatchResponse) -> bool:
        """Queue the events of one response. Returns False if the queue is full."""
        events = [codec.event(item) for item in message.events]
        size_bytes = message.ByteSize()
        if message.fragment or self._fragments:
            self._fragments += events
            self._fragments_bytes += size_bytes
            if message.fragment:
                return True
            events, self._fragments = self._fragments, []
            size_bytes, self._fragments_bytes = self._fragments_bytes, 0
        header = codec.header(message.header)
        if not events:
            return self.progressed(header)
        # After a resume the store may repeat events: drop them.
        fresh = tuple([event for event in events if event.kv.mod_revision >= self.next_revision])
        if not fresh:
            return True
        too_many = self._queued_events + len(fresh) > self._queue_events_max
        if self._queue and (too_many or self._queued_bytes + size_bytes > watch_queue_bytes_max):
            self.end(SlowConsumer(self.next_revision))
            return False
        self.next_revision = fresh[-1].kv.mod_revision + 1
        self._queue.append((WatchBatch(header, fresh), size_bytes))
        self._queued_events += len(fresh)
        self._queued_bytes += size_bytes
        self._wake()
        return True

    def progressed(self, header: Header) -> bool:
        """Nothing up to `header.revision` is missing."""
        self.wants_progress = False
        self.next_revision = max(self.next_revision, header.revision + 1)
        if self._queue and not self._queue[-1][0].events:
            self._queue.pop()  # of two consecutive progress reports only the later one matters
        self._queue.append((WatchBatch(header), 0))
        self._wake()
        return True

    def compacted(self, compact_revision: int) -> None:
        self.end(Compacted(compact_revision))

    def end(self, error: BaseException | None) -> None:
        """No more events. The reader gets the queued batches, then `error` or the end."""
        if self._ended:
            return
        self._ended = True
        self._error = error
        if not self._created.done():
            self._created.set_exception(error or ClientClosed("the watch was closed before the store had created it"))
            self._created.exception()  # retrieved, or asyncio would warn: not every reader awaits `ready`
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
