"""The stream that feeds all watches of one client.

It is reopened at another endpoint when it breaks, when its member loses the leader, and when a silent endpoint does not
answer a probe: a frozen process keeps its connections open.
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

# A silent endpoint is probed after this long.
SILENCE_S = 0.4
# With a single endpoint, a long wait costs nothing, and a busy machine is not mistaken for a frozen one.
ALONE_PATIENCE_S = 5.0
BROADCAST = -1
_STATUS_TEXT = re.compile(r"rpc error: code = (\w+) desc = (.*)", re.DOTALL)
_STATUS_NAMES = {code.name.replace("_", "").lower(): code for code in Code}
log = get_logger("leasehold.etcd.watch")


class Hub:
    """All watches of a client. The first watch opens the stream."""

    def __init__(
        self, endpoints: Endpoints, caller: Caller, authenticator: Authenticator, options: ConnectOptions
    ) -> None:
        self._endpoints = endpoints
        self._caller = caller
        self._authenticator = authenticator
        self._options = options
        self._watches: dict[int, EtcdWatch] = {}
        self._live: set[int] = set()  # created by the store on the current stream
        self._requested: deque[int] = deque()  # requested on the current stream, not yet answered
        self._next_id = 1
        self._stream: MessageStream | None = None
        self._task: asyncio.Task[None] | None = None

    def add(self, request: Watch) -> EtcdWatch:
        """Start a watch. It is requested now, and again on every later stream."""
        watch = EtcdWatch(self, self._next_id, request, self._options.watch_queue_events_max)
        self._next_id += 1
        self._watches[watch.watch_id] = watch
        self._send(codec.watch_request(request, watch.watch_id, request.start_revision))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        return watch

    def remove(self, watch: EtcdWatch) -> None:
        """The reader has closed the watch."""
        if self._watches.pop(watch.watch_id, None) is not None:
            self._live.discard(watch.watch_id)
            cancel = rpc_pb2.WatchCancelRequest(watch_id=watch.watch_id)
            self._send(rpc_pb2.WatchRequest(cancel_request=cancel))

    def request_progress(self) -> None:
        self._send(rpc_pb2.WatchRequest(progress_request=rpc_pb2.WatchProgressRequest()))

    async def close(self) -> None:
        """End all watches with an error for their readers."""
        for watch in list(self._watches.values()):
            watch.end(ClientClosed())
        self._watches.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _send(self, request: rpc_pb2.WatchRequest) -> None:
        # A new stream begins by requesting all watches.
        if self._stream is not None:
            if request.HasField("create_request"):
                self._requested.append(request.create_request.watch_id)
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
                if failure.verdict is Verdict.TOKEN:
                    self._authenticator.forget(metadata)
                    if not self._authenticator.enabled:
                        self._end_all(failure.to_error())
                        return
                elif failure.verdict is Verdict.ANSWERED:
                    self._end_all(failure.to_error())
                    return
                reason = failure.message
            except Exception as error:  # no reader may wait for events that will never come
                log.exception("watching failed unexpectedly: this is a bug; the watches are resumed")
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
        """Feed all watches from `endpoint` until its stream ends. Returns the reason."""
        stream = endpoint.streams["Watch"](metadata + REQUIRE_LEADER)
        self._live.clear()
        self._requested.clear()
        self._stream = stream
        loop = asyncio.get_running_loop()
        probing = loop.create_task(self._probe_silent_endpoint(stream, endpoint, metadata))

        def receive(message: rpc_pb2.WatchResponse) -> None:
            endpoint.last_seen_s = loop.time()
            try:
                if not self._dispatch(message, endpoint, metadata):
                    stream.cancel("the token has expired")
            except Exception as error:  # no reader may wait for events that will never come
                log.exception("watching failed unexpectedly: this is a bug; the watches are resumed")
                stream.cancel(repr(error))

        try:
            for watch in self._watches.values():
                self._send(codec.watch_request(watch.request, watch.watch_id, watch.next_revision))
            await stream.deliver(receive)
            return "the stream was ended"
        finally:
            self._stream = None
            probing.cancel()
            stream.cancel()
            await asyncio.gather(probing, return_exceptions=True)

    async def _probe_silent_endpoint(self, stream: MessageStream, endpoint: Endpoint, metadata: Metadata) -> None:
        """Probe a silent endpoint, and cancel the stream if it does not answer."""
        loop = asyncio.get_running_loop()
        alone = len(self._endpoints) == 1
        patience_s = ALONE_PATIENCE_S if alone else self._options.attempt_timeout_s
        while True:
            if self._watches and (not endpoint.version or loop.time() - endpoint.last_seen_s >= SILENCE_S):
                try:
                    answer: rpc_pb2.StatusResponse
                    answer = await endpoint.unary["Status"](
                        rpc_pb2.StatusRequest(), timeout=patience_s, metadata=metadata
                    )
                    endpoint.version = answer.version
                except RpcFailed as error:
                    if meaning(error).verdict is Verdict.UNKNOWN:
                        stream.cancel("its endpoint did not answer a probe")
                        endpoint.renew()  # the connection may be half open
                        return
                endpoint.last_seen_s = loop.time()
            await asyncio.sleep(SILENCE_S)

    def _dispatch(self, message: rpc_pb2.WatchResponse, endpoint: Endpoint, metadata: Metadata) -> bool:
        """Pass one response to its watch. Returns False if the stream must be reopened with a new token."""
        if message.watch_id == BROADCAST and not message.canceled:
            self._progress_of_all(message, endpoint)
            return True
        watch = self._watches.get(self._addressed(message))
        if watch is None:
            return True  # the watch was closed meanwhile
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
        """The watch that a response is for. etcd does not name a watch that it refuses, but it answers in order."""
        if not message.created:
            return message.watch_id
        if message.watch_id in self._requested:
            self._requested.remove(message.watch_id)
            return message.watch_id
        return self._requested.popleft() if message.watch_id == BROADCAST and self._requested else message.watch_id

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
                # etcd 3.5 answers this also if the stream's token has expired: retry once with a new token.
                watch.denied = stale = True
            if stale and self._authenticator.enabled:
                self._authenticator.forget(metadata)
                return False
            watch.end(error)
        self._watches.pop(watch.watch_id, None)
        self._live.discard(watch.watch_id)
        return True

    def _progress_of_all(self, message: rpc_pb2.WatchResponse, endpoint: Endpoint) -> None:
        """Pass on a progress report for the whole stream, to the watches that requested it."""
        if not progress_is_reliable(endpoint.version):
            return
        header = codec.header(message.header)
        for watch_id in self._live:
            watch = self._watches[watch_id]
            if watch.wants_progress:
                watch.progressed(header)


def progress_is_reliable(version: str) -> bool:
    """Whether this etcd answers a progress request only after the events up to there (etcd issue 15220).

    Older releases report progress beyond events that are still queued: trusting it would lose those events.
    """
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if match is None:
        return False
    major, minor, patch = (int(part) for part in match.groups())
    fixed_in = {(3, 4): 25, (3, 5): 8}
    return (major, minor) >= (3, 4) and patch >= fixed_in.get((major, minor), 0)
