"""The endpoints of a cluster, with one channel each. One endpoint is in use; if it fails, another one is.

gRPC libraries choose among addresses themselves, and never leave a frozen one (seen).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Sequence
from typing import Any

from leasehold.etcd.pb import rpc_pb2
from leasehold.etcd.transport.channel import Channel, StreamMethod
from leasehold.etcd.transport.failures import RpcFailed
from leasehold.mvcc.errors import Code

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
    """One address: its channel, and when it last answered (on the loop's clock)."""

    def __init__(self, address: str, tls: ssl.SSLContext | None) -> None:
        self.address = address
        self.last_seen_s = 0.0
        self.version = ""  # "" until it was requested
        self.failed_s = 0.0
        # False after a failure: the endpoint, or its leader, may be frozen.
        self.proven = True
        self.channel = channel = Channel(address, tls)
        self.ready = channel.ready
        self.renew = channel.renew
        self.close = channel.close
        self.unary: dict[str, Any] = {name: channel.unary(*method) for name, method in UNARY.items()}
        # etcd 3.5.0 to 3.5.6 crashes (its issues 14110 and 14891) when a read-only transaction is cancelled, or its
        # deadline passes, while its ranges are read. A client that gives up on a slow member and tries the next one
        # would crash all of them in turn. One impatient user of a lock is enough to crash a single node.
        self.unary["ReadTxn"] = channel.unary(*UNARY["Txn"], unhurried=True)
        self.unary["LeaseKeepAlive"] = self._keep_alive_once
        self.streams: dict[str, StreamMethod] = {name: channel.stream(*method) for name, method in STREAMS.items()}

    async def _keep_alive_once(self, request: Any, timeout: float, metadata: Any = ()) -> Any:
        """One renewal. etcd offers this call only as a stream."""
        stream = self.streams["LeaseKeepAlive"](metadata)
        try:
            stream.send(request)
            async with asyncio.timeout(timeout):
                answer = await stream.read()
        except TimeoutError:
            raise RpcFailed(Code.DEADLINE_EXCEEDED, "no answer in time") from None
        finally:
            stream.cancel()
        if answer is None:
            raise RpcFailed(Code.UNAVAILABLE, "ended unanswered")
        return answer


class Endpoints:
    """All endpoints. `current` is in use."""

    def __init__(self, addresses: Sequence[str], tls: ssl.SSLContext | None = None) -> None:
        self._all = [Endpoint(address, tls) for address in addresses]
        self.current = self._all[0]

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._all)

    def leave(self, endpoint: Endpoint) -> None:
        """`endpoint` failed: use the one that failed longest ago, unless another caller has already switched."""
        endpoint.failed_s = asyncio.get_running_loop().time()
        endpoint.proven = False
        if endpoint is self.current and len(self._all) > 1:
            self.current = min(self._all, key=lambda other: other.failed_s)
            self.current.proven = False

    async def close(self) -> None:
        await asyncio.gather(*(endpoint.close() for endpoint in self._all))
