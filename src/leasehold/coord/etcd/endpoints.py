"""The endpoints of a cluster: one channel each, one of them in use, the next one taken when it fails.

gRPC's own choice among several addresses never leaves a frozen one (seen), so the choice is ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from leasehold.coord.etcd.pb import rpc_pb2
from leasehold.coord.etcd.unhurried import UnhurriedCall, failed_call
from leasehold.coord.url import ConnectOptions

# A channel that was replaced may still carry calls of others: they get this long.
DRAIN_S = 10.0
# Not more often than this is one endpoint's channel replaced.
RENEW_INTERVAL_S = 1.0
# What must not be cut off gets this long when the client is closed.
LAST_ANSWERS_S = 1.0
CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    # Each of our channels is one connection of its own, so that a new channel is a new connection.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # etcd resets connections that ping more often than every 5 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),
)

READY = grpc.ChannelConnectivity.READY

# method -> (path, request, response)
UNARY: dict[str, tuple[str, Any, Any]] = {
    "Range": ("/etcdserverpb.KV/Range", rpc_pb2.RangeRequest, rpc_pb2.RangeResponse),
    "Put": ("/etcdserverpb.KV/Put", rpc_pb2.PutRequest, rpc_pb2.PutResponse),
    "DeleteRange": ("/etcdserverpb.KV/DeleteRange", rpc_pb2.DeleteRangeRequest, rpc_pb2.DeleteRangeResponse),
    "Txn": ("/etcdserverpb.KV/Txn", rpc_pb2.TxnRequest, rpc_pb2.TxnResponse),
    "Compact": ("/etcdserverpb.KV/Compact", rpc_pb2.CompactionRequest, rpc_pb2.CompactionResponse),
    "LeaseGrant": ("/etcdserverpb.Lease/LeaseGrant", rpc_pb2.LeaseGrantRequest, rpc_pb2.LeaseGrantResponse),
    "LeaseRevoke": ("/etcdserverpb.Lease/LeaseRevoke", rpc_pb2.LeaseRevokeRequest, rpc_pb2.LeaseRevokeResponse),
    "LeaseTimeToLive": (
        "/etcdserverpb.Lease/LeaseTimeToLive",
        rpc_pb2.LeaseTimeToLiveRequest,
        rpc_pb2.LeaseTimeToLiveResponse,
    ),
    "LeaseLeases": ("/etcdserverpb.Lease/LeaseLeases", rpc_pb2.LeaseLeasesRequest, rpc_pb2.LeaseLeasesResponse),
    "Status": ("/etcdserverpb.Maintenance/Status", rpc_pb2.StatusRequest, rpc_pb2.StatusResponse),
    "Authenticate": ("/etcdserverpb.Auth/Authenticate", rpc_pb2.AuthenticateRequest, rpc_pb2.AuthenticateResponse),
}
STREAMS: dict[str, tuple[str, Any, Any]] = {
    "Watch": ("/etcdserverpb.Watch/Watch", rpc_pb2.WatchRequest, rpc_pb2.WatchResponse),
    "LeaseKeepAlive": (
        "/etcdserverpb.Lease/LeaseKeepAlive",
        rpc_pb2.LeaseKeepAliveRequest,
        rpc_pb2.LeaseKeepAliveResponse,
    ),
}


class Endpoint:
    """One address: its channel, and when it was last heard of (on the loop's clock)."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None) -> None:
        self.address = address
        self.heard_s = 0.0
        self.version = ""  # as far as it was asked for
        self.failed_s = 0.0
        # False after a failure: it may be frozen, or hang on a leader that is.
        self.proven = True
        self._credentials = credentials
        self._renewed_s = 0.0
        self._draining: set[asyncio.Task[None]] = set()
        self._reading: set[asyncio.Task[Any]] = set()
        self._open()

    def _open(self) -> None:
        if self._credentials is None:
            channel = grpc.aio.insecure_channel(self.address, CHANNEL_OPTIONS)
        else:
            channel = grpc.aio.secure_channel(self.address, self._credentials, CHANNEL_OPTIONS)
        self.channel = channel
        self.unary: dict[str, Any] = {
            name: channel.unary_unary(path, request.SerializeToString, response.FromString)
            for name, (path, request, response) in UNARY.items()
        }
        self.unary["LeaseKeepAlive"] = self._keep_alive_once
        self.unary["ReadTxn"] = UnhurriedCall(self.unary["Txn"], self._reading)
        self.streams: dict[str, Any] = {
            name: channel.stream_stream(path, request.SerializeToString, response.FromString)
            for name, (path, request, response) in STREAMS.items()
        }

    async def _keep_alive_once(self, request: Any, timeout: float, metadata: Any = ()) -> Any:
        """The one call that etcd offers only as a stream, for one request and one answer."""
        stream = self.streams["LeaseKeepAlive"](timeout=timeout, metadata=metadata)
        try:
            await stream.write(request)
            answer = await stream.read()
            if isinstance(answer, rpc_pb2.LeaseKeepAliveResponse):
                return answer
            raise _ended_unanswered()
        except asyncio.InvalidStateError:  # it had ended before the request was written
            raise _ended_unanswered() from None
        finally:
            stream.cancel()

    def renew(self) -> None:
        """Connect anew: the old connection may be half open. Calls under way on it get `DRAIN_S` to end."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._renewed_s < RENEW_INTERVAL_S:
            return
        self._renewed_s = loop.time()
        task = loop.create_task(_close_later(self.channel))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)
        self._open()

    async def ready(self, timeout_s: float, *, insist: bool) -> bool:
        """Whether there is a connection, or one is made in time: what is sent then is really sent.

        A refused connection ends the wait at once, unless there is no other endpoint to ask (`insist`).
        """
        state = self.channel.get_state(try_to_connect=True)
        if state is READY:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                while state is not READY:
                    if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE and not insist:
                        return False
                    await self.channel.wait_for_state_change(state)
                    state = self.channel.get_state(try_to_connect=True)
        except TimeoutError:
            # Where the loop stood still (a busy callback, a frozen process), the news may have come with the timeout.
            return self.channel.get_state() is READY
        return True

    async def close(self) -> None:
        if self._reading:
            await asyncio.wait(self._reading, timeout=LAST_ANSWERS_S)
        for task in list(self._draining):
            task.cancel()
        await asyncio.gather(*self._draining, return_exceptions=True)
        await self.channel.close()


def _ended_unanswered() -> grpc.aio.AioRpcError:
    return failed_call(grpc.StatusCode.UNAVAILABLE, "ended unanswered")


async def _close_later(channel: grpc.aio.Channel) -> None:
    try:
        await asyncio.sleep(DRAIN_S)
    finally:
        await channel.close()


class Endpoints:
    """All endpoints, of which `current` is in use."""

    def __init__(self, addresses: Sequence[str], options: ConnectOptions, *, secure: bool) -> None:
        credentials = channel_credentials(options) if secure else None
        self._all = [Endpoint(address, credentials) for address in addresses]
        self.current = self._all[0]

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._all)

    def leave(self, endpoint: Endpoint) -> None:
        """`endpoint` failed: use the one that failed longest ago, unless somebody has already moved on."""
        endpoint.failed_s = asyncio.get_running_loop().time()
        endpoint.proven = False
        if endpoint is self.current and len(self._all) > 1:
            self.current = min(self._all, key=lambda other: other.failed_s)
            self.current.proven = False

    async def close(self) -> None:
        await asyncio.gather(*(endpoint.close() for endpoint in self._all))


def channel_credentials(options: ConnectOptions) -> grpc.ChannelCredentials:
    """TLS from PEM bytes or files; without a `ca` the authorities that gRPC brings count."""
    return grpc.ssl_channel_credentials(_pem(options.ca), _pem(options.key), _pem(options.cert))


def _pem(source: bytes | str | Path | None) -> bytes | None:
    if source is None or isinstance(source, bytes):
        return source
    return Path(source).read_bytes()
