"""The client of an etcd cluster, and of any server with the same API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from leasehold.base.clock import Clock
from leasehold.coord.api import Coord, KeepAlive, WatchStream
from leasehold.coord.url import ConnectOptions, CoordUrl
from leasehold.etcd import codec
from leasehold.etcd.auth import Authenticator
from leasehold.etcd.endpoints import Endpoints
from leasehold.etcd.fenced_writes import FencedWrites
from leasehold.etcd.keepalive import KeepAliveEngine
from leasehold.etcd.leases import LeaseCalls
from leasehold.etcd.pb import rpc_pb2
from leasehold.etcd.retry import Caller
from leasehold.etcd.transport.call import UnaryCall
from leasehold.etcd.transport.tls import tls_context
from leasehold.etcd.watch_stream import Hub
from leasehold.mvcc.model import (
    CompactResult,
    LeaseGrantResult,
    LeaseKeepAliveResult,
    LeaseListResult,
    LeaseRevokeResult,
    LeaseTimeToLiveResult,
    Op,
    OpResult,
    Put,
    Range,
    Status,
    Txn,
    Watch,
)
from leasehold.runtime.clock import BootClock


async def open_etcd(url: CoordUrl, options: ConnectOptions) -> Coord:
    """Open a client. The first call connects."""
    return EtcdCoord(url.endpoints, options, secure=url.scheme == "etcds")


class EtcdCoord(Coord):
    """`Coord` on a cluster. Belongs to the event loop and the process that it was opened in."""

    def __init__(
        self,
        addresses: Sequence[str],
        options: ConnectOptions | None = None,
        *,
        secure: bool = False,
        clock: Clock | None = None,
    ) -> None:
        options = options or ConnectOptions()
        self._clock = clock or BootClock()
        tls = tls_context(options) if secure else None
        self._endpoints = Endpoints(addresses, tls)
        authenticator = Authenticator(options)
        self._caller = Caller(self._endpoints, authenticator, options)
        self._fenced = FencedWrites(self._caller)
        self._leases = LeaseCalls(self._caller)
        self._hub = Hub(self._endpoints, self._caller, authenticator, options)
        self._engine = KeepAliveEngine(addresses, options, self._clock, tls)

    async def do(self, op: Op, timeout_s: float | None = None) -> Any:
        call = self._caller.call
        if isinstance(op, Txn):
            message = codec.txn_request(op)
            if codec.is_read_only(op):
                return codec.txn_result(await call("ReadTxn", message, timeout_s, safe=True, guard=True))
            return codec.txn_result(await call("Txn", message, timeout_s, safe=False))
        if isinstance(op, Range):
            request = codec.range_request(op)
            answer = await call("Range", request, timeout_s, safe=True, guard=True, local=op.serializable)
            return codec.range_result(answer)
        if isinstance(op, Put):
            return codec.put_result(await call("Put", codec.put_request(op), timeout_s, safe=False))
        return codec.delete_result(await call("DeleteRange", codec.delete_request(op), timeout_s, safe=False))

    def send(
        self,
        op: Op,
        timeout_s: float,
        answered: Callable[[OpResult], None],
        unfinished: Callable[[Coroutine[Any, Any, OpResult]], None],
    ) -> UnaryCall | None:
        """Run a fenced write without a task: see `coord.api.Sends`. Any other operation is left to `do`."""
        return self._fenced.send(op, timeout_s, answered, unfinished) if isinstance(op, Txn) else None

    def open_watch(self, request: Watch) -> WatchStream:
        self._caller.check_usable()
        return self._hub.add(request)

    async def compact(self, revision: int, *, physical: bool = False, timeout_s: float | None = None) -> CompactResult:
        """Delete history before `revision`. With `physical`, wait until it is deleted from the disk."""
        message = rpc_pb2.CompactionRequest(revision=revision, physical=physical)
        return CompactResult(codec.header((await self._caller.call("Compact", message, timeout_s, safe=False)).header))

    async def lease_grant(self, ttl_s: int, lease_id: int = 0, *, timeout_s: float | None = None) -> LeaseGrantResult:
        return await self._leases.grant(ttl_s, lease_id, timeout_s)

    async def lease_revoke(self, lease_id: int, *, timeout_s: float | None = None) -> LeaseRevokeResult:
        return await self._leases.revoke(lease_id, timeout_s)

    async def lease_keep_alive_once(self, lease_id: int, *, timeout_s: float | None = None) -> LeaseKeepAliveResult:
        return await self._leases.keep_alive_once(lease_id, timeout_s)

    async def lease_time_to_live(
        self, lease_id: int, *, keys: bool = False, timeout_s: float | None = None
    ) -> LeaseTimeToLiveResult:
        return await self._leases.time_to_live(lease_id, keys, timeout_s)

    async def leases(self, *, timeout_s: float | None = None) -> LeaseListResult:
        return await self._leases.list(timeout_s)

    def keep_alive(self, lease_id: int, ttl_s: int, granted_sent_ms: int) -> KeepAlive:
        """Start renewing `lease_id` every third of its TTL, on the thread of the keep-alive engine."""
        self._caller.check_usable()
        return self._engine.add(lease_id, ttl_s, granted_sent_ms)

    @property
    def endpoint(self) -> str:
        """The endpoint in use."""
        return self._endpoints.current.address

    def saw_revision(self, revision: int) -> None:
        """Another client has seen `revision`: no later read of this client may show an older state."""
        self._caller.saw(revision)

    async def status(self, *, timeout_s: float | None = None) -> Status:
        """The status of the endpoint in use."""
        message = rpc_pb2.StatusRequest()
        return codec.status_result(await self._caller.call("Status", message, timeout_s, safe=True, local=True))

    def now_ms(self) -> int:
        return self._clock.now_ms()

    async def close(self) -> None:
        """Close all watches, renewals and connections. Leases are not revoked. May be called more than once."""
        if self._caller.closed:
            return
        self._caller.closed = True
        await asyncio.to_thread(self._engine.close)
        await self._hub.close()
        await self._caller.search.close()
        await self._endpoints.close()
