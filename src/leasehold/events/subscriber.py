"""Follow the events of a pool: `Subscriber` keeps a picture of its objects, through failovers and lost messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import structlog

from leasehold.base.decoding import UNDECODABLE
from leasehold.events import protocol, sockets
from leasehold.events.follower import Follower
from leasehold.events.messages import Message, NotOurMessage, events_of
from leasehold.events.protocol import NotLeading
from leasehold.runtime.tasks import TaskSet

log = structlog.get_logger("leasehold.events")

ANSWER_TIMEOUT_S = 1.0
QUIET_S = 1.0  # after this time without a message the subscriber requests missed ones
PAUSE_S = 0.05


class Subscriber:
    """`async with Subscriber([("h1:5557", "h1:5558"), ...]) as pool:` then `pool.objects`, once `pool.whole` is set.

    Each entry is one node: where it publishes, and where it answers requests.
    """

    def __init__(self, nodes: Sequence[tuple[str, str]], *, server_key: bytes = b"", secret_key: bytes = b"") -> None:
        self._zmq = zmq = sockets.import_zmq()
        self._context = zmq.asyncio.Context()
        self._keys = (server_key, secret_key)
        self._nodes = list(nodes)
        self._leader = 0  # where the last answer came from
        self.follower = Follower()
        self._tasks = TaskSet(self._failed)
        self._received = asyncio.Event()
        self.failed: BaseException | None = None

    @property
    def objects(self) -> dict[tuple[bytes, bytes], int]:
        """Put numbers of the readable objects, by tenant and key."""
        return self.follower.picture

    @property
    def whole(self) -> bool:
        """Whether `objects` is the pool as of the last message."""
        return self.follower.whole

    async def __aenter__(self) -> Self:
        self._tasks.start(self._receive())
        self._tasks.start(self._request())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._tasks.close()
        self._context.destroy(linger=0)

    def _failed(self, error: BaseException) -> None:
        self.failed = error
        log.error("the subscriber stops", error=str(error))

    def _socket(self, kind: int) -> Any:
        sock = self._context.socket(kind)
        if self._keys[0]:
            sockets.secure_client(self._zmq, sock, *self._keys)
        return sock

    async def _receive(self) -> None:
        sock = self._socket(self._zmq.SUB)
        sock.subscribe(b"")
        for publisher, _ in self._nodes:
            sock.connect(f"tcp://{publisher}")
        while True:
            frames = await sock.recv_multipart()
            if len(frames) != 3:
                continue
            _, count, payload = frames
            try:
                epoch, _ = events_of(payload)
            except NotOurMessage:
                continue  # if it was a damaged one of ours, the next message shows the gap
            self.follower.received(Message(epoch, int.from_bytes(count, "big"), payload))
            self._received.set()

    async def _request(self) -> None:
        """Request what is missing; in quiet times, check that nothing is."""
        while True:
            if self.whole:
                self._received.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(QUIET_S):
                        await self._received.wait()
                    continue
            if not await self._ask(self._nodes[self._leader][1]):
                self._leader = (self._leader + 1) % len(self._nodes)
                await asyncio.sleep(PAUSE_S)

    async def _ask(self, address: str) -> bool:
        """One request to one node. Returns whether it leads and answered."""
        sock = self._socket(self._zmq.REQ)
        try:
            sock.connect(f"tcp://{address}")
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await sock.send(protocol.encode(self.follower.request()))
                answer = protocol.decode_answer(await sock.recv())
        except (*UNDECODABLE, TimeoutError, self._zmq.ZMQError):
            return False
        finally:
            sock.close(linger=0)
        if isinstance(answer, NotLeading):
            return False
        self.follower.answered(answer)
        return True
