"""Answers that etcd's own clients and tests look at, beside those of a real etcd where that is possible."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from leasehold.coord.api import Coord
from leasehold.etcd.pb import health_pb2, rpc_pb2
from leasehold.mvcc.errors import Compacted
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.grpc_stubs import health_pb2_grpc, rpc_pb2_grpc
from leasehold.testing.store import StoreProcess

ALARM = rpc_pb2.AlarmRequest


def stub(kind: Any, channel: grpc.aio.Channel) -> Any:
    return kind(channel)


async def refusal(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code().name, refused.value.details() or ""


async def alarmed(endpoint: str) -> list[object]:
    """The answers of a server under each alarm, and after it is disarmed."""
    seen: list[object] = []
    async with grpc.aio.insecure_channel(endpoint) as channel:
        maintenance, kv = stub(rpc_pb2_grpc.MaintenanceStub, channel), stub(rpc_pb2_grpc.KVStub, channel)
        lease = stub(rpc_pb2_grpc.LeaseStub, channel)
        await kv.Put(rpc_pb2.PutRequest(key=b"before"))
        reading = rpc_pb2.RequestOp(request_range=rpc_pb2.RangeRequest(key=b"before"))
        deleting = rpc_pb2.RequestOp(request_delete_range=rpc_pb2.DeleteRangeRequest(key=b"absent"))
        putting = rpc_pb2.RequestOp(request_put=rpc_pb2.PutRequest(key=b"a"))
        for kind in (rpc_pb2.NOSPACE, rpc_pb2.CORRUPT):
            for action, member in ((ALARM.ACTIVATE, 7), (ALARM.ACTIVATE, 7), (ALARM.GET, 0)):
                answer = await maintenance.Alarm(ALARM(action=action, memberID=member, alarm=kind))
                seen.append([(alarm.memberID, alarm.alarm) for alarm in answer.alarms])
            seen.append(list((await maintenance.Status(rpc_pb2.StatusRequest())).errors))
            calls: tuple[Callable[[], Any], ...] = (
                lambda: kv.Put(rpc_pb2.PutRequest(key=b"a")),
                lambda: kv.Txn(rpc_pb2.TxnRequest(success=[reading])),
                lambda: kv.Txn(rpc_pb2.TxnRequest(success=[deleting])),
                lambda: kv.Txn(rpc_pb2.TxnRequest(success=[reading], failure=[putting])),
                lambda: kv.Range(rpc_pb2.RangeRequest(key=b"before")),
                lambda: kv.DeleteRange(rpc_pb2.DeleteRangeRequest(key=b"absent")),
                lambda: kv.Compact(rpc_pb2.CompactionRequest(revision=1_000)),
                lambda: lease.LeaseGrant(rpc_pb2.LeaseGrantRequest(TTL=60, ID=5)),
                lambda: lease.LeaseRevoke(rpc_pb2.LeaseRevokeRequest(ID=404)),
            )
            for call in calls:
                try:
                    await call()
                    seen.append("ok")
                except grpc.aio.AioRpcError as error:
                    seen.append((error.code().name, error.details()))
            for member in (8, 7, 7):
                answer = await maintenance.Alarm(ALARM(action=ALARM.DEACTIVATE, memberID=member, alarm=kind))
                seen.append([(alarm.memberID, alarm.alarm) for alarm in answer.alarms])
            await kv.Put(rpc_pb2.PutRequest(key=b"after"))
        seen.append(list((await maintenance.Alarm(ALARM(action=ALARM.GET))).alarms))
    return seen


async def test_alarms_of_clients_are_kept_as_etcd_keeps_them(store: StoreProcess) -> None:
    with EtcdCluster(1, arguments=["--unsafe-no-fsync"]) as etcd:
        assert await alarmed(store.endpoint) == await alarmed(etcd.endpoints[0])


async def test_an_alarm_survives_a_restart(tmp_path: Path) -> None:
    with StoreProcess(data_dir=tmp_path, arguments=["--segment", "64KiB"]) as store:
        async with grpc.aio.insecure_channel(store.endpoint) as channel:
            maintenance = stub(rpc_pb2_grpc.MaintenanceStub, channel)
            await maintenance.Alarm(ALARM(action=ALARM.ACTIVATE, memberID=3, alarm=rpc_pb2.CORRUPT))
            await maintenance.Alarm(ALARM(action=ALARM.ACTIVATE, memberID=3, alarm=rpc_pb2.NOSPACE))
            await maintenance.Alarm(ALARM(action=ALARM.DEACTIVATE, memberID=3, alarm=rpc_pb2.CORRUPT))
        store.kill()
        store.start()
        async with grpc.aio.insecure_channel(store.endpoint) as channel:
            found = (await stub(rpc_pb2_grpc.MaintenanceStub, channel).Alarm(ALARM())).alarms
            assert [(alarm.memberID, alarm.alarm) for alarm in found] == [(3, rpc_pb2.NOSPACE)]


async def test_health_is_served_as_etcd_serves_it(served_store: StoreProcess, etcd: EtcdCluster) -> None:
    for endpoint in (served_store.endpoint, etcd.endpoints[0]):
        async with grpc.aio.insecure_channel(endpoint) as channel:
            health = stub(health_pb2_grpc.HealthStub, channel)
            answer = await health.Check(health_pb2.HealthCheckRequest())
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            unknown = health_pb2.HealthCheckRequest(service="other")
            assert await refusal(health.Check(unknown)) == ("NOT_FOUND", "unknown service")
            for request, status in ((health_pb2.HealthCheckRequest(), 1), (unknown, 3)):
                watch = health.Watch(request)
                async with asyncio.timeout(60):
                    assert (await watch.read()).status == status
                watch.cancel()


async def test_a_watch_that_catches_up_shows_the_current_revision(client: Coord, prefix: bytes) -> None:
    for number in range(5):
        last = await client.put(prefix, b"%d" % number)
    async with client.watch(prefix, start_revision=last.header.revision - 4) as watch:
        async with asyncio.timeout(60):
            batch = await anext(watch)
    assert batch.events[0].kv.value == b"0"
    assert batch.header.revision >= last.header.revision


async def test_a_watch_from_a_negative_revision_is_cancelled_with_the_reason(served_store: StoreProcess) -> None:
    async with grpc.aio.insecure_channel(served_store.endpoint) as channel:
        call = stub(rpc_pb2_grpc.WatchStub, channel).Watch()
        create = rpc_pb2.WatchCreateRequest(key=b"a", start_revision=-5)
        await call.write(rpc_pb2.WatchRequest(create_request=create))
        async with asyncio.timeout(60):
            answer = await call.read()
        assert (answer.created, answer.canceled, answer.watch_id) == (True, True, -1)
        assert answer.cancel_reason == Compacted.message
        call.cancel()


async def test_the_hash_at_the_compacted_revision(store: StoreProcess) -> None:
    async with grpc.aio.insecure_channel(store.endpoint) as channel:
        kv, maintenance = stub(rpc_pb2_grpc.KVStub, channel), stub(rpc_pb2_grpc.MaintenanceStub, channel)
        await kv.Put(rpc_pb2.PutRequest(key=b"gone"))
        await kv.Put(rpc_pb2.PutRequest(key=b"a"))
        deleted = (await kv.DeleteRange(rpc_pb2.DeleteRangeRequest(key=b"gone"))).header.revision
        await kv.Compact(rpc_pb2.CompactionRequest(revision=deleted))
        at, now = [await maintenance.HashKV(rpc_pb2.HashKVRequest(revision=revision)) for revision in (deleted, 0)]
        assert at.hash == now.hash
        assert at.hash_revision == now.hash_revision == at.compact_revision == deleted
        code, _ = await refusal(maintenance.HashKV(rpc_pb2.HashKVRequest(revision=deleted - 1)))
        assert code == "OUT_OF_RANGE"


async def test_leadership_moves_to_the_only_member(served_store: StoreProcess, etcd: EtcdCluster) -> None:
    for endpoint in (served_store.endpoint, etcd.endpoints[0]):
        async with grpc.aio.insecure_channel(endpoint) as channel:
            maintenance = stub(rpc_pb2_grpc.MaintenanceStub, channel)
            member = (await maintenance.Status(rpc_pb2.StatusRequest())).header.member_id
            await maintenance.MoveLeader(rpc_pb2.MoveLeaderRequest(targetID=member))
            refused = await refusal(maintenance.MoveLeader(rpc_pb2.MoveLeaderRequest(targetID=member + 1)))
            assert refused == ("FAILED_PRECONDITION", "etcdserver: bad leader transferee")
