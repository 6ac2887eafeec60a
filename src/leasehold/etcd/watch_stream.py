"""The stream that feeds all watches of one client.

It is ended and opened elsewhere when it breaks, when its member has lost the leader, and when its endpoint does not
answer a sign of life asked for in silence: a frozen process keeps its connections open.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque

from leasehold.coord.errors import ClientClosed, PermissionDenied
from leasehold.coord.url import ConnectOptions
from leasehold.etcd import codec
from leasehold.etcd.auth import REQUIRE_LEADER, Authenticator
from leasehold.etcd.endpoint_search import PAUSE_S
from leasehold.etcd.endpoints import Endpoint, Endpoints
from leasehold.etcd.errors import Verdict, classify, meaning
from leasehold.etcd.pb import rpc_pb2
from leasehold.etcd.retry import Caller
from leasehold.etcd.transport.channel import MessageStream, Metadata
from leasehold.etcd.transport.failures import RpcFailed
from leasehold.etcd.watch import EtcdWatch
from leasehold.mvcc.errors import Code, StoreError
from leasehold.mvcc.model import Watch
from leasehold.runtime.log import get_logger

# After this long without a sign of life one is asked for.
SILENCE_S = 0.4
# With nobody else to ask, patience costs nothing, and a busy machine is not taken for a frozen one.
ALONE_PATIENCE_S = 5.0
BROADCAST = -1
_STATUS_TEXT = re.compile(r"rpc error: code = (\w+) desc = (.*)", re.DOTALL)
_STATUS_NAMES = {code.name.replace("_", "").lower(): code for code in Code}
_LIFELESS = "its endpoint gave no sign of life"
log = get_logger("leasehold.etcd.watch")


class Hub:
    """All watches of a client. The stream is opened with the first of them."""

    def __init__(
        self, endpoints: Endpoints, caller: Caller, authenticator: Authenticator, options: ConnectOptions
    ) -> None:
        self._endpoints = endpoints
        self._caller = caller
        self._authenticator = authenticator
        self._options = options
        self._watches: dict[int, EtcdWatch] = {}
        self._live: set[int] = set()  # taken by the store on the stream of now
        self._asked: deque[int] = deque()  # asked for on the stream of now, not yet answered
        self._next_id = 1
        self._stream: MessageStream | None = None
        self._task: asyncio.Task[None] | None = None

    def add(self, request: Watch) -> EtcdWatch:
        """Start a watch; it is asked for at once, and again wherever the stream is opened anew."""
        watch = EtcdWatch(self, self._next_id, request, self._options.watch_queue_events_max)
        self._next_id += 1
        self._watches[watch.watch_id] = watch
        self._send(codec.watch_request(request, watch.watch_id, request.start_revision))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        return watch

    def remove(self, watch: EtcdWatch) -> None:
        """The reader has enough."""
        if self._watches.pop(watch.watch_id, None) is not None:
            self._live.discard(watch.watch_id)
            cancel = rpc_pb2.WatchCancelRequest(watch_id=watch.watch_id)
            self._send(rpc_pb2.WatchRequest(cancel_request=cancel))

    def request_progress(self) -> None:
        self._send(rpc_pb2.WatchRequest(progress_request=rpc_pb2.WatchProgressRequest()))

    async def close(self) -> None:
        """End all watches; their readers are told."""
        for watch in list(self._watches.values()):
            watch.end(ClientClosed())
        self._watches.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _send(self, request: rpc_pb2.WatchRequest) -> None:
        # Without a stream there is nobody to tell: a new one starts with asking for all watches.
        if self._stream is not None:
            if request.HasField("create_request"):
                self._asked.append(request.create_request.watch_id)
            self._stream.send(request)

    async def _run(self) -> None:
        failures = 0
        alone = len(self._endpoints) == 1
        while self._watches:
            if not self._endpoints.current.proven:
                await self._caller.search.find(self._options.attempt_timeout_s)
            endpoint = self._endpoints.current
            metadata: Metadata = ()
            try:
                if not await endpoint.ready(self._options.attempt_timeout_s, insist=alone):
                    reason = f"no connection: {endpoint.channel.failure or 'not in time'}"
                else:
                    metadata = await self._authenticator.metadata(endpoint, self._options.attempt_timeout_s)
                    reason = await self._stream_at(endpoint, metadata)
                    failures = 0
            except RpcFailed as error:
                failure = meaning(error)
                if failure.message == _LIFELESS:
                    endpoint.renew()
                if failure.verdict is Verdict.TOKEN:
                    self._authenticator.forget(metadata)
                    if not self._authenticator.enabled:
                        self._end_all(failure.to_error())
                        return
                elif failure.verdict is Verdict.ANSWERED:
                    self._end_all(failure.to_error())
                    return
                reason = failure.message
            except Exception as error:  # nobody may be left to wait for events that will never come
                log.exception("watching failed unexpectedly: this is a bug; watches are resumed")
                reason = repr(error)
            if not self._watches:
                return
            log.info("watches are resumed at the next endpoint", left=endpoint.address, reason=reason)
            self._endpoints.leave(endpoint)
            failures += 1
            if failures % len(self._endpoints) == 0:
                await asyncio.sleep(PAUSE_S)

    def _end_all(self, error: StoreError) -> None:
        for watch in self._watches.values():
            watch.end(error)
        self._watches.clear()

    async def _stream_at(self, endpoint: Endpoint, metadata: Metadata) -> str:
        """Feed all watches from `endpoint` until its stream ends; the reason why it did."""
        stream = endpoint.streams["Watch"](metadata + REQUIRE_LEADER)
        self._live.clear()
        self._asked.clear()
        self._stream = stream
        loop = asyncio.get_running_loop()
        listening = loop.create_task(self._listen_for_life(stream, endpoint, metadata))

        def hear(message: rpc_pb2.WatchResponse) -> None:
            endpoint.heard_s = loop.time()
            try:
                if not self._dispatch(message, endpoint, metadata):
                    stream.cancel("the token went stale")
            except Exception as error:  # nobody may be left to wait for events that will never come
                log.exception("watching failed unexpectedly: this is a bug; watches are resumed")
                stream.cancel(repr(error))

        try:
            for watch in self._watches.values():
                self._send(codec.watch_request(watch.request, watch.watch_id, watch.next_revision))
            await stream.tell(hear)
            return "the stream was ended"
        finally:
            self._stream = None
            listening.cancel()
            stream.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _listen_for_life(self, stream: MessageStream, endpoint: Endpoint, metadata: Metadata) -> None:
        """Ask a silent endpoint for a sign of life; cancel the stream if there is none."""
        loop = asyncio.get_running_loop()
        alone = len(self._endpoints) == 1
        patience_s = ALONE_PATIENCE_S if alone else self._options.attempt_timeout_s
        while True:
            if self._watches and (not endpoint.version or loop.time() - endpoint.heard_s >= SILENCE_S):
                try:
                    answer: rpc_pb2.StatusResponse
                    answer = await endpoint.unary["Status"](
                        rpc_pb2.StatusRequest(), timeout=patience_s, metadata=metadata
                    )
                    endpoint.version = answer.version
                except RpcFailed as error:
                    if meaning(error).verdict is Verdict.UNKNOWN:
                        stream.cancel(_LIFELESS)
                        return
                endpoint.heard_s = loop.time()
            await asyncio.sleep(SILENCE_S)

    def _dispatch(self, message: rpc_pb2.WatchResponse, endpoint: Endpoint, metadata: Metadata) -> bool:
        """Hand one response to its watch; False if the stream has to be opened anew with a new token."""
        if message.watch_id == BROADCAST and not message.canceled:
            self._progress_of_all(message, endpoint)
            return True
        watch = self._watches.get(self._addressed(message))
        if watch is None:
            return True  # closed meanwhile
        if message.created and not message.canceled:
            self._live.add(watch.watch_id)
            self._caller.saw(message.header.revision)
            watch.created(message.header.revision)
        elif message.canceled:
            return self._canceled(watch, message, metadata)
        else:
            if not message.fragment:
                self._caller.saw(message.header.revision)
            if not watch.take(message):
                self.remove(watch)
        return True

    def _addressed(self, message: rpc_pb2.WatchResponse) -> int:
        """The watch that a response is for. etcd refuses a watch without naming it; but it answers in order."""
        if not message.created:
            return message.watch_id
        if message.watch_id in self._asked:
            self._asked.remove(message.watch_id)
            return message.watch_id
        return self._asked.popleft() if message.watch_id == BROADCAST and self._asked else message.watch_id

    def _canceled(self, watch: EtcdWatch, message: rpc_pb2.WatchResponse, metadata: Metadata) -> bool:
        if message.compact_revision:
            watch.compacted(message.compact_revision)
        else:
            match = _STATUS_TEXT.fullmatch(message.cancel_reason)
            name, text = (match[1], match[2]) if match else ("unknown", message.cancel_reason)
            failure = classify(_STATUS_NAMES.get(name.lower(), Code.UNKNOWN), text)
            error = failure.to_error()
            stale = failure.verdict is Verdict.TOKEN
            if isinstance(error, PermissionDenied) and not watch.denied:
                # etcd 3.5 says this also of a stream whose token has expired: believed with a new token only.
                watch.denied = stale = True
            if stale and self._authenticator.enabled:
                self._authenticator.forget(metadata)
                return False
            watch.end(error)
        self._watches.pop(watch.watch_id, None)
        self._live.discard(watch.watch_id)
        return True

    def _progress_of_all(self, message: rpc_pb2.WatchResponse, endpoint: Endpoint) -> None:
        """A report for the whole stream, which was asked for."""
        if not tells_progress_truly(endpoint.version):
            return
        header = codec.header(message.header)
        for watch_id in self._live:
            watch = self._watches[watch_id]
            if watch.wants_progress:
                watch.progressed(header)


def tells_progress_truly(version: str) -> bool:
    """Whether this etcd answers a progress request only after the events up to there (issue 15220 there).

    Older ones answer past events that are still in their queues: believed, it would lose events.
    """
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if match is None:
        return False
    major, minor, patch = (int(part) for part in match.groups())
    fixed_in = {(3, 4): 25, (3, 5): 8}
    return (major, minor) >= (3, 4) and patch >= fixed_in.get((major, minor), 0)
