"""The state of a node and of its cluster as a stream of server-sent events, for the dashboard and `leasehold top`.

A stream begins with the samples of the last hour (`samples`). Then it has the node every second (`node`), and the
cluster every few seconds (`cluster`); both also as soon as a role or the leader changes. All streams share one task,
which runs only while a page is connected.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, Protocol

import msgspec
from aiohttp import web
from msgspec import Struct

from leasehold.admin.samples import Sample
from leasehold.admin.status import ClusterStatus, HistoryLine, NodeStatus
from leasehold.admin.worries import Worry, cluster_worries
from leasehold.base.errors import LeaseholdError, Unavailable
from leasehold.base.measures import SlowCall
from leasehold.index.survey import SegmentUse
from leasehold.runtime.clock import BootClock
from leasehold.runtime.tasks import TaskSet

STREAMS_MAX: Final = 32
LOOK_S: Final = 0.25
NODE_MS: Final = 1_000
CLUSTER_MS: Final = 3_000
HISTORY_LINES: Final = 60
_QUEUED_MAX: Final = 8  # frames that a slow reader may be behind; then it misses some


class LiveNode(Struct, frozen=True, kw_only=True):
    """Everything that changes all the time on one node."""

    wall_ms: int
    status: NodeStatus
    lease_ms: int  # the length of a leader lease
    lease_left_ms: int = -1  # -1: this node has none
    sample: Sample | None = None
    pool: tuple[SegmentUse, ...] = ()
    slow: tuple[SlowCall, ...] = ()
    worries: tuple[Worry, ...] = ()


class LiveCluster(Struct, frozen=True):
    """The cluster as the store records it. `problem`: the store does not answer, and the rest is empty."""

    cluster: ClusterStatus | None = None
    history: tuple[HistoryLine, ...] = ()
    worries: tuple[Worry, ...] = ()
    problem: str = ""


class LiveFace(Protocol):
    """The part of a running node that is streamed."""

    def live(self) -> LiveNode: ...

    def samples(self) -> list[Sample]: ...

    def moment(self) -> object:
        """Compared with an earlier one, it shows that a role, the leader or a registered node has changed."""
        ...

    async def cluster(self) -> ClusterStatus: ...

    async def history(self, limit: int) -> list[HistoryLine]: ...


def frame(event: str, value: object) -> bytes:
    """One server-sent event."""
    return f"event: {event}\ndata: ".encode() + msgspec.json.encode(value) + b"\n\n"


class LiveHub:
    """All streams of one node."""

    def __init__(self, face: LiveFace) -> None:
        self._face = face
        self._clock = BootClock()
        self._readers: set[asyncio.Queue[bytes]] = set()
        self._tasks = TaskSet()
        self._cluster = b""  # the last frame
        self._changed = asyncio.Event()

    async def close(self) -> None:
        await self._tasks.close()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """One stream, until its reader closes it."""
        if len(self._readers) >= STREAMS_MAX:
            raise Unavailable(f"{STREAMS_MAX} pages are connected to this node: close one, or use another node")
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        queue.put_nowait(b"retry: 1000\n\n")
        queue.put_nowait(frame("samples", self._face.samples()) + frame("node", self._face.live()) + self._cluster)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await answer.prepare(request)
        if request.method == "HEAD":
            return answer
        if not self._readers:
            self._tasks.start(self._look())
            self._tasks.start(self._read_cluster())
        self._readers.add(queue)
        try:
            while True:
                await answer.write(await queue.get())
        except ConnectionError:
            return answer
        finally:
            self._readers.discard(queue)

    def _publish(self, data: bytes) -> None:
        for queue in self._readers:
            if queue.qsize() < _QUEUED_MAX:
                queue.put_nowait(data)

    async def _look(self) -> None:
        """Publish the node: every second, and when something has changed."""
        moment, published_ms = self._face.moment(), 0
        while self._readers or not published_ms:
            now_ms, found = self._clock.now_ms(), self._face.moment()
            if found != moment:
                moment = found
                self._changed.set()
                published_ms = 0
            if now_ms - published_ms >= NODE_MS:
                published_ms = now_ms
                self._publish(frame("node", self._face.live()))
            await asyncio.sleep(LOOK_S)

    async def _read_cluster(self) -> None:
        """Publish the cluster. It reads the store, so not as often as the node."""
        first = True
        while self._readers or first:
            first = False
            self._changed.clear()
            self._cluster = frame("cluster", await self._read_once())
            self._publish(self._cluster)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLUSTER_MS / 1000):
                    await self._changed.wait()
        self._cluster = b""

    async def _read_once(self) -> LiveCluster:
        try:
            cluster = await self._face.cluster()
            history = await self._face.history(HISTORY_LINES)
        except LeaseholdError as error:
            return LiveCluster(problem=str(error))
        standbys = sum(peer.ready and not peer.leads for peer in cluster.nodes)
        level = self._face.live().status.feature_level
        return LiveCluster(cluster, tuple(history), tuple(cluster_worries(cluster, standbys, level)))
