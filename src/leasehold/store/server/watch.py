"""The Watch service: many watches on one stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from leasehold.etcd.pb import rpc_pb2
from leasehold.mvcc.errors import Compacted, EmptyWatchRange
from leasehold.mvcc.model import Header, Watch, WatchBatch, WatchFilter
from leasehold.mvcc.watch import Watcher
from leasehold.store.engine import Engine
from leasehold.store.server import convert
from leasehold.store.server.dispatch import Methods
from leasehold.store.server.http2.streams import MESSAGE_BYTES_MAX, Handler, Message, StreamCall, parse
from leasehold.store.watch import Reader

_FILTERS = tuple(WatchFilter)
CONTROL_MAX = 1_000  # unsent answers to requests; beyond this, further requests wait
# The limit for all watches of a stream together: a thousand of them may be a megabyte behind each, with a slow client.
BATCHES_BYTES_MAX = 2 << 20
EVENT_BYTES = 100
_DUPLICATE_ID = "mvcc: duplicate watch ID provided on the WatchStream"


def watch_service(engine: Engine) -> Methods:
    """Method -> handler."""

    async def watch(call: StreamCall) -> None:
        await _Stream(engine, call).serve()

    return {"Watch": Handler(stream=watch)}


class _Served(Struct):
    """One watch of the stream."""

    id: int
    watcher: Watcher
    fragment: bool
    progress: bool
    quiet: bool = True


class _Stream:
    """One Watch call: one task reads requests, another writes all answers, in order."""

    def __init__(self, engine: Engine, call: StreamCall) -> None:
        self._engine = engine
        self._call = call
        self._served: dict[int, _Served] = {}
        # Ended by compaction. As in etcd, their ids stay in use until they are cancelled.
        self._compacted: set[int] = set()
        self._by_watcher: dict[Watcher, _Served] = {}
        self._next_id = 0
        # Answers to requests (None for progress), with the revision that must be durable before they are sent: a
        # client that resumes after a revision that a crash has undone would miss the revision that replaced it.
        self._control: deque[tuple[int, Message | None]] = deque()
        self._room = asyncio.Event()
        self._behind: dict[int, None] = {}  # ids of watches with unsent events, in order
        self._reader = Reader()
        self._ended = False
        self._failure: BaseException | None = None
        self._stop_progress: Callable[[], None] | None = None

    async def serve(self) -> None:
        reading = asyncio.create_task(self._read())
        reading.add_done_callback(self._read_ended)
        try:
            await self._write()
        finally:
            reading.cancel()
            with self._engine.lock:
                self._ended = True
                for served in self._served.values():
                    self._engine.store.unwatch(served.watcher)
                if self._stop_progress is not None:
                    self._stop_progress()

    # --- requests ---

    async def _read(self) -> None:
        """Read requests until the client ends its side. As in etcd, its watches continue until it cancels the call."""
        while (data := await self._call.read()) is not None:
            message = parse(rpc_pb2.WatchRequest, data)
            with self._engine.lock:
                self._take(message)
                self._reader.notify()
            while len(self._control) > CONTROL_MAX:
                self._room.clear()
                await self._room.wait()

    def _read_ended(self, reading: asyncio.Task[None]) -> None:
        """A request that failed ends the call: the writer sends the status."""
        error = None if reading.cancelled() else reading.exception()
        if error is not None:
            with self._engine.lock:
                self._failure = error
                self._reader.notify()

    def _take(self, m: Message) -> None:
        kind = m.WhichOneof("request_union")
        if kind == "create_request":
            self._create(m.create_request)
        elif kind == "cancel_request":
            self._cancel(m.cancel_request.watch_id)
        elif kind == "progress_request":
            self._control.append((self._engine.durable_revision, None))

    def _create(self, m: Message) -> None:
        engine = self._engine
        engine.enter()
        header = convert.header(engine.store.header())
        created = rpc_pb2.WatchResponse(header=header, watch_id=-1, created=True, canceled=True)
        if m.watch_id and (m.watch_id in self._served or m.watch_id in self._compacted):
            created.cancel_reason = _DUPLICATE_ID
            self._tell(created)
            return
        if m.start_revision < 0:
            created.cancel_reason = Compacted.message
            self._tell(created)
            return
        filters = tuple(_FILTERS[number] for number in m.filters if 0 <= number < len(_FILTERS))
        spec = Watch(m.key, m.range_end, m.start_revision, m.prev_kv, m.progress_notify, m.fragment, filters)
        try:
            watcher = engine.store.watch(spec, self._wake)
        except EmptyWatchRange as error:
            created.cancel_reason = error.message
            self._tell(created)
            return
        served = _Served(m.watch_id or self._free_id(), watcher, m.fragment, m.progress_notify)
        self._served[served.id] = served
        self._by_watcher[watcher] = served
        self._tell(rpc_pb2.WatchResponse(header=header, watch_id=served.id, created=True))
        if not watcher.idle:
            self._behind[served.id] = None
        if served.progress and self._stop_progress is None:
            self._schedule_progress()

    def _tell(self, answer: Message) -> None:
        self._control.append((answer.header.revision, answer))

    def _free_id(self) -> int:
        while self._next_id in self._served or self._next_id in self._compacted:
            self._next_id += 1
        self._next_id += 1
        return self._next_id - 1

    def _cancel(self, watch_id: int) -> None:
        served = self._served.get(watch_id)
        if served is not None:
            self._end(served)
        elif watch_id in self._compacted:
            self._compacted.discard(watch_id)
        else:
            return
        header = convert.header(self._engine.store.header())
        self._tell(rpc_pb2.WatchResponse(header=header, watch_id=watch_id, canceled=True))

    def _end(self, served: _Served) -> None:
        self._engine.store.unwatch(served.watcher)
        del self._served[served.id]
        del self._by_watcher[served.watcher]
        self._behind.pop(served.id, None)

    def _wake(self, watcher: Watcher) -> None:
        served = self._by_watcher.get(watcher)
        if served is not None:  # None during its creation
            served.quiet = False
            self._behind[served.id] = None
            self._engine.wake(self._reader.notify)

    # --- answers ---

    async def _write(self) -> None:
        while True:
            with self._engine.lock:
                answers = self._answers()
                self._room.set()
                if not answers:
                    if self._failure is not None:
                        raise self._failure
                    self._engine.check_open()
                    waiting = self._reader.wait()
            for answer in answers:
                await self._call.write(answer.SerializeToString())
            if not answers:
                await waiting

    def _answers(self) -> list[Message]:
        """The messages to write now: answers to requests, then at most one batch per watch."""
        answers: list[Message] = []
        while self._control:
            revision, answer = self._control[0]
            if revision > self._engine.durable_revision:
                self._engine.wake(self._reader.notify)
                return answers  # and no events either: a watch's events come after its creation
            if answer is None:
                # Progress covers all watches: their pending events are sent first, batch by batch.
                while self._behind and self._deliverable():
                    batches = self._batches()
                    if batches:
                        return answers + batches
                answer = rpc_pb2.WatchResponse(header=self._durable_header(), watch_id=-1)
            self._control.popleft()
            answers.append(answer)
        return answers + self._batches()

    def _deliverable(self) -> bool:
        durable = self._engine.durable_revision
        return any(self._served[watch_id].watcher.next_revision <= durable for watch_id in self._behind)

    def _batches(self) -> list[Message]:
        """One batch for each watch that is behind, up to the limit. The remaining watches come first next time."""
        answers: list[Message] = []
        batches_bytes = 0
        for watch_id in list(self._behind):
            if batches_bytes >= BATCHES_BYTES_MAX:
                break
            served = self._served[watch_id]
            try:
                batch = self._engine.store.pull(served.watcher, upto_revision=self._engine.durable_revision)
            except Compacted as error:
                self._end(served)
                self._compacted.add(watch_id)
                answers.append(self._gone(watch_id, error.compact_revision))
                continue
            del self._behind[watch_id]
            if not served.watcher.idle:
                self._behind[watch_id] = None  # after all others
                self._engine.wake(self._reader.notify)
            if batch is not None:
                answers += self._batch(served, batch)
                batches_bytes += _bytes_of(batch)
        return answers

    def _gone(self, watch_id: int, compact_revision: int) -> Message:
        header = self._header(0)
        return rpc_pb2.WatchResponse(header=header, watch_id=watch_id, canceled=True, compact_revision=compact_revision)

    def _batch(self, served: _Served, batch: WatchBatch) -> list[Message]:
        events = [convert.event(event) for event in batch.events]
        header = convert.header(batch.header)
        if not served.fragment:
            return [rpc_pb2.WatchResponse(header=header, watch_id=served.id, events=events)]
        parts: list[list[Message]] = [[]]
        size = 0
        for event in events:
            event_bytes = event.ByteSize()
            if parts[-1] and size + event_bytes >= MESSAGE_BYTES_MAX:
                parts.append([])
                size = 0
            parts[-1].append(event)
            size += event_bytes
        last = len(parts) - 1
        return [
            rpc_pb2.WatchResponse(header=header, watch_id=served.id, events=part, fragment=place < last)
            for place, part in enumerate(parts)
        ]

    def _header(self, revision: int) -> Message:
        store = self._engine.store
        return convert.header(Header(revision, store.cluster_id, store.member_id, store.term))

    def _durable_header(self) -> Message:
        return self._header(self._engine.durable_revision)

    def _schedule_progress(self) -> None:
        """Send periodic progress reports to idle watches that requested them."""
        engine = self._engine

        def due(_now_ms: int) -> None:
            if self._ended:
                return
            for served in self._served.values():
                if served.progress and served.quiet and served.watcher.idle:
                    self._tell(rpc_pb2.WatchResponse(header=self._durable_header(), watch_id=served.id))
                served.quiet = True
            engine.wake(self._reader.notify)
            self._schedule_progress()

        self._stop_progress = engine.schedule(engine.now_ms() + engine.settings.progress_interval_ms, due)


def _bytes_of(batch: WatchBatch) -> int:
    """Its approximate size in memory."""
    return sum(
        EVENT_BYTES + len(event.kv.key) + len(event.kv.value) + (len(event.prev_kv.value) if event.prev_kv else 0)
        for event in batch.events
    )
