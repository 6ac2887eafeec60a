"""The Lease service."""

from __future__ import annotations

import grpc

from leasehold.base.errors import LeaseholdError
from leasehold.coord.embedded.engine import Engine
from leasehold.coord.embedded.server import convert
from leasehold.coord.embedded.server.calls import Context, Message, Methods, parse, refuse, run, unary
from leasehold.coord.etcd.pb import rpc_pb2
from leasehold.mvcc.model import LeaseKeepAliveResult


def lease_service(engine: Engine) -> Methods:
    """Method -> handler."""

    async def grant(m: Message, _context: Context) -> Message:
        result = run(engine, lambda store, now_ms: store.lease_grant(now_ms, m.TTL, m.ID))
        await engine.settled()
        return rpc_pb2.LeaseGrantResponse(header=convert.header(result.header), ID=result.id, TTL=result.ttl_s)

    async def revoke(m: Message, _context: Context) -> Message:
        result = run(engine, lambda store, _now: store.lease_revoke(m.ID))
        await engine.settled()
        return rpc_pb2.LeaseRevokeResponse(header=convert.header(result.header))

    async def keep_alive(_requests: object, context: Context) -> None:
        while (data := await context.read()) is not grpc.aio.EOF:
            request = await parse(rpc_pb2.LeaseKeepAliveRequest, data, context)
            try:
                result = _renew(engine, request.ID)
                await engine.settled()
            except LeaseholdError as error:
                await refuse(context, error)
            answer = rpc_pb2.LeaseKeepAliveResponse(
                header=convert.header(result.header), ID=result.id, TTL=result.ttl_s
            )
            await context.write(answer.SerializeToString())

    async def time_to_live(m: Message, _context: Context) -> Message:
        result = run(engine, lambda store, now_ms: store.lease_time_to_live(now_ms, m.ID, keys=m.keys))
        await engine.settled()
        return rpc_pb2.LeaseTimeToLiveResponse(
            header=convert.header(result.header),
            ID=result.id,
            TTL=result.ttl_s,
            grantedTTL=result.granted_ttl_s,
            keys=result.keys,
        )

    async def leases(_m: Message, _context: Context) -> Message:
        result = run(engine, lambda store, _now: store.leases())
        await engine.settled()
        return rpc_pb2.LeaseLeasesResponse(
            header=convert.header(result.header),
            leases=[rpc_pb2.LeaseStatus(ID=lease_id) for lease_id in result.leases],
        )

    return {
        "LeaseGrant": unary(rpc_pb2.LeaseGrantRequest, grant),
        "LeaseRevoke": unary(rpc_pb2.LeaseRevokeRequest, revoke),
        "LeaseKeepAlive": grpc.stream_stream_rpc_method_handler(keep_alive),
        "LeaseTimeToLive": unary(rpc_pb2.LeaseTimeToLiveRequest, time_to_live),
        "LeaseLeases": unary(rpc_pb2.LeaseLeasesRequest, leases),
    }


def _renew(engine: Engine, lease_id: int) -> LeaseKeepAliveResult:
    return run(engine, lambda store, now_ms: store.lease_keep_alive(now_ms, lease_id))
