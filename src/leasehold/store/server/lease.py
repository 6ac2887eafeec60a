"""The Lease service."""

from __future__ import annotations

from leasehold.etcd.pb import rpc_pb2
from leasehold.mvcc.model import LeaseKeepAliveResult, LeaseRevokeResult
from leasehold.mvcc.store import Store
from leasehold.store.engine import Engine
from leasehold.store.server import convert
from leasehold.store.server.dispatch import Methods, direct, run
from leasehold.store.server.http2.streams import Handler, Message, StreamCall, parse


def lease_service(engine: Engine) -> Methods:
    """Method -> handler."""

    def grant(m: Message) -> Message:
        result = run(engine, lambda store, now_ms: store.lease_grant(now_ms, m.TTL, m.ID))
        return rpc_pb2.LeaseGrantResponse(header=convert.header(result.header), ID=result.id, TTL=result.ttl_s)

    def revoke(m: Message) -> Message:
        def revoke_intact(store: Store) -> LeaseRevokeResult:
            store.alarms.check_intact()
            return store.lease_revoke(m.ID)

        result = run(engine, lambda store, _now: revoke_intact(store))
        return rpc_pb2.LeaseRevokeResponse(header=convert.header(result.header))

    async def keep_alive(call: StreamCall) -> None:
        while (data := await call.read()) is not None:
            result = _renew(engine, parse(rpc_pb2.LeaseKeepAliveRequest, data).ID)
            await engine.settled()
            answer = rpc_pb2.LeaseKeepAliveResponse(
                header=convert.header(result.header), ID=result.id, TTL=result.ttl_s
            )
            await call.write(answer.SerializeToString())

    def time_to_live(m: Message) -> Message:
        result = run(engine, lambda store, now_ms: store.lease_time_to_live(now_ms, m.ID, keys=m.keys))
        return rpc_pb2.LeaseTimeToLiveResponse(
            header=convert.header(result.header),
            ID=result.id,
            TTL=result.ttl_s,
            grantedTTL=result.granted_ttl_s,
            keys=result.keys,
        )

    def leases(_m: Message) -> Message:
        result = run(engine, lambda store, _now: store.leases())
        return rpc_pb2.LeaseLeasesResponse(
            header=convert.header(result.header),
            leases=[rpc_pb2.LeaseStatus(ID=lease_id) for lease_id in result.leases],
        )

    return {
        "LeaseGrant": direct(engine, rpc_pb2.LeaseGrantRequest, grant),
        "LeaseRevoke": direct(engine, rpc_pb2.LeaseRevokeRequest, revoke),
        "LeaseKeepAlive": Handler(stream=keep_alive),
        "LeaseTimeToLive": direct(engine, rpc_pb2.LeaseTimeToLiveRequest, time_to_live),
        "LeaseLeases": direct(engine, rpc_pb2.LeaseLeasesRequest, leases),
    }


def _renew(engine: Engine, lease_id: int) -> LeaseKeepAliveResult:
    return run(engine, lambda store, now_ms: store.lease_keep_alive(now_ms, lease_id))
