"""One of the two servers: calls with their answers or errors, and a watch stream that records its responses."""

from __future__ import annotations

import asyncio

from google.protobuf.message import Message
from msgspec import Struct

from leasehold.base.invariants import ensure
from leasehold.etcd.endpoints import Endpoint
from leasehold.etcd.pb import rpc_pb2
from leasehold.etcd.transport.failures import RpcFailed
from leasehold.testing.differential.exempt import exempt, settle_ties
from leasehold.testing.differential.generate import Step

CALL_TIMEOUT_S = 20.0


class Answer(Struct, frozen=True):
    """The result of a call: a message, or an error code with its text."""

    message: Message | None = None
    code: str = ""
    details: str = ""

    def __str__(self) -> str:
        if self.message is None:
            return f"{self.code}: {self.details}"
        return f"{type(self.message).__name__} {str(self.message).strip()}"


class WatchLog:
    """The responses to one watch: its events in order, and every other response."""

    def __init__(self) -> None:
        self.events: list[Message] = []
        self.batches: list[tuple[int, int]] = []  # (header revision, number of events)
        self.others: list[rpc_pb2.WatchResponse] = []


class Side:
    """A server of the etcd API."""

    @classmethod
    async def open(cls, name: str, address: str) -> Side:
        endpoint = Endpoint(address, None)
        ensure(await endpoint.ready(CALL_TIMEOUT_S, insist=True), f"{name} at {address} accepts connections")
        return cls(name, endpoint)

    def __init__(self, name: str, endpoint: Endpoint) -> None:
        self.name = name
        self._endpoint = endpoint
        self._stream = endpoint.streams["Watch"]()
        self._reader = asyncio.get_running_loop().create_task(self._read())
        self.watches: dict[int, WatchLog] = {}
        self._changed = asyncio.Event()

    async def call(self, step: Step) -> Answer:
        method = self._endpoint.unary[step.method]
        try:
            answer: Message = await method(step.request, timeout=CALL_TIMEOUT_S, metadata=())
            settle_ties(step.request, answer)
            return Answer(exempt(answer))
        except RpcFailed as error:
            return Answer(code=error.code.name, details=error.message)

    async def send(self, request: rpc_pb2.WatchRequest) -> None:
        self._stream.send(request)

    def log(self, watch_id: int) -> WatchLog:
        return self.watches.setdefault(watch_id, WatchLog())

    async def wait_for_response(self, timeout_s: float) -> None:
        """Wait for a response on the stream, at most `timeout_s`."""
        self._changed.clear()
        await asyncio.wait({asyncio.ensure_future(self._changed.wait())}, timeout=timeout_s)

    async def close(self) -> None:
        self._reader.cancel()
        self._stream.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._endpoint.close()

    async def _read(self) -> None:
        while True:
            message: rpc_pb2.WatchResponse | None = await self._stream.read()
            if message is None:
                return
            log = self.log(message.watch_id)
            if message.events:
                log.events += message.events
                log.batches.append((message.header.revision, len(message.events)))
            else:
                log.others.append(exempt(message))
            self._changed.set()
