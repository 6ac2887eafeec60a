"""The Lock and Election services, by the names of etcd's tests, and others on the same stubs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from leasehold.coord.api import Coord
from leasehold.etcd.pb import (
    election_pb2,
    lock_pb2,
    rpc_pb2,
)
from leasehold.mvcc.model import prefix_end
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.grpc_stubs import election_pb2_grpc, lock_pb2_grpc, rpc_pb2_grpc
from leasehold.testing.store import StoreProcess


@pytest.fixture
async def channel(served_store: StoreProcess) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(served_store.endpoint) as opened:
        yield opened


async def waiting(client: Coord, name: bytes, count: int) -> None:
    """Until `count` keys stand in the queue `name`."""
    async with asyncio.timeout(60), client.watch(name + b"/", prefix_end(name + b"/")) as watch:
        await watch.ready()
        found = await client.get(name + b"/", prefix_end(name + b"/"), count_only=True)
        while found.count != count:
            await anext(watch)
            found = await client.get(name + b"/", prefix_end(name + b"/"), count_only=True)


async def test_v3_lock_lock_waiter(channel: grpc.aio.Channel, client: Coord, prefix: bytes) -> None:
    """TestV3LockLockWaiter: the second waits until the first unlocks."""
    lock: Any = lock_pb2_grpc.LockStub(channel)  # type: ignore[no-untyped-call]  # generated
    one, two = await client.lease_grant(60), await client.lease_grant(60)
    first = await lock.Lock(lock_pb2.LockRequest(name=prefix, lease=one.id))
    assert first.key == b"%s/%x" % (prefix, one.id)
    second = asyncio.ensure_future(lock.Lock(lock_pb2.LockRequest(name=prefix, lease=two.id)))
    await waiting(client, prefix, 2)
    assert not second.done()
    await lock.Unlock(lock_pb2.UnlockRequest(key=first.key))
    async with asyncio.timeout(60):
        assert (await second).key == b"%s/%x" % (prefix, two.id)


async def test_a_lock_without_a_lease_gets_one(channel: grpc.aio.Channel, client: Coord, prefix: bytes) -> None:
    lock: Any = lock_pb2_grpc.LockStub(channel)  # type: ignore[no-untyped-call]  # generated
    held = await lock.Lock(lock_pb2.LockRequest(name=prefix))
    kv = await client.get_one(held.key)
    assert kv is not None
    assert (await client.lease_time_to_live(kv.lease)).granted_ttl_s == 60
    again = await lock.Lock(lock_pb2.LockRequest(name=prefix, lease=kv.lease))  # the same session: no wait
    assert again.key == held.key
    await client.lease_revoke(kv.lease)


async def test_a_caller_that_gives_up_does_not_block_others(
    channel: grpc.aio.Channel, client: Coord, prefix: bytes
) -> None:
    lock: Any = lock_pb2_grpc.LockStub(channel)  # type: ignore[no-untyped-call]  # generated
    first = await lock.Lock(lock_pb2.LockRequest(name=prefix))
    given_up = asyncio.ensure_future(lock.Lock(lock_pb2.LockRequest(name=prefix)))
    await waiting(client, prefix, 2)
    given_up.cancel()
    await waiting(client, prefix, 1)
    await lock.Unlock(lock_pb2.UnlockRequest(key=first.key))


async def test_a_lock_whose_lease_ends_while_it_waits(channel: grpc.aio.Channel, client: Coord, prefix: bytes) -> None:
    lock: Any = lock_pb2_grpc.LockStub(channel)  # type: ignore[no-untyped-call]  # generated
    lease = await client.lease_grant(60)
    first = await lock.Lock(lock_pb2.LockRequest(name=prefix))
    second = asyncio.ensure_future(lock.Lock(lock_pb2.LockRequest(name=prefix, lease=lease.id)))
    await waiting(client, prefix, 2)
    await client.lease_revoke(lease.id)
    await lock.Unlock(lock_pb2.UnlockRequest(key=first.key))
    with pytest.raises(grpc.RpcError) as caught:
        await second
    assert "mutex: session is expired" in str(caught.value)


async def test_v3_election_campaign(channel: grpc.aio.Channel, client: Coord, prefix: bytes) -> None:
    """TestV3ElectionCampaign: the second leads when the first has resigned."""
    election: Any = election_pb2_grpc.ElectionStub(channel)  # type: ignore[no-untyped-call]  # generated
    one, two = await client.lease_grant(60), await client.lease_grant(60)
    first = await election.Campaign(election_pb2.CampaignRequest(name=prefix, lease=one.id, value=b"one"))
    second = asyncio.ensure_future(
        election.Campaign(election_pb2.CampaignRequest(name=prefix, lease=two.id, value=b"two"))
    )
    await waiting(client, prefix, 2)
    assert (await election.Leader(election_pb2.LeaderRequest(name=prefix))).kv.value == b"one"
    assert not second.done()
    await election.Resign(election_pb2.ResignRequest(leader=first.leader))
    async with asyncio.timeout(60):
        won = await second
    assert won.leader.lease == two.id
    assert (await election.Leader(election_pb2.LeaderRequest(name=prefix))).kv.key == won.leader.key


async def test_a_campaigner_whose_lease_ends_does_not_win(
    channel: grpc.aio.Channel, client: Coord, prefix: bytes
) -> None:
    """etcd's own service announces a leader here whose key was deleted."""
    election: Any = election_pb2_grpc.ElectionStub(channel)  # type: ignore[no-untyped-call]  # generated
    two = await client.lease_grant(60)
    first = await election.Campaign(election_pb2.CampaignRequest(name=prefix, value=b"one"))
    second = asyncio.ensure_future(
        election.Campaign(election_pb2.CampaignRequest(name=prefix, lease=two.id, value=b"two"))
    )
    await waiting(client, prefix, 2)
    await client.lease_revoke(two.id)
    await election.Resign(election_pb2.ResignRequest(leader=first.leader))
    with pytest.raises(grpc.RpcError):
        await second


async def test_v3_election_observe(channel: grpc.aio.Channel, client: Coord, prefix: bytes) -> None:
    """TestV3ElectionObserve: leaders and their proclamations arrive in order."""
    election: Any = election_pb2_grpc.ElectionStub(channel)  # type: ignore[no-untyped-call]  # generated
    observed = election.Observe(election_pb2.LeaderRequest(name=prefix))
    first = await election.Campaign(election_pb2.CampaignRequest(name=prefix, value=b"one"))
    async with asyncio.timeout(60):
        assert (await observed.read()).kv.value == b"one"
        for value in (b"proclaimed", b"again"):
            await election.Proclaim(election_pb2.ProclaimRequest(leader=first.leader, value=value))
            assert (await observed.read()).kv.value == value
        await election.Resign(election_pb2.ResignRequest(leader=first.leader))
        await election.Campaign(election_pb2.CampaignRequest(name=prefix, value=b"two"))
        assert (await observed.read()).kv.value == b"two"
    observed.cancel()


async def test_election_refusals_in_etcds_words(channel: grpc.aio.Channel, etcd: EtcdCluster, prefix: bytes) -> None:
    """TestCurlV3ProclaimMissiongLeaderKeyNoTLS, ...Resign..., and a leader that is none."""
    gone = election_pb2.LeaderKey(name=prefix, key=prefix + b"/1", rev=5, lease=0)
    cases: list[tuple[str, Any]] = [
        ("Leader", election_pb2.LeaderRequest(name=prefix)),
        ("Proclaim", election_pb2.ProclaimRequest(value=b"x")),
        ("Resign", election_pb2.ResignRequest()),
        ("Proclaim", election_pb2.ProclaimRequest(leader=gone, value=b"x")),
        ("Campaign", election_pb2.CampaignRequest(name=prefix, lease=424242)),
    ]
    async with grpc.aio.insecure_channel(etcd.endpoints[0]) as real:
        for method, request in cases:
            answers = []
            for to in (channel, real):
                election: Any = election_pb2_grpc.ElectionStub(to)  # type: ignore[no-untyped-call]  # generated
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await getattr(election, method)(request, timeout=60)
                answers.append((caught.value.code(), caught.value.details()))
            assert answers[0] == answers[1], method


async def test_many_watches_on_one_stream(channel: grpc.aio.Channel, client: Coord, prefix: bytes) -> None:
    stub: Any = rpc_pb2_grpc.WatchStub(channel)  # type: ignore[no-untyped-call]  # generated
    stream = stub.Watch()

    async def ask(**fields: Any) -> Any:
        await stream.write(rpc_pb2.WatchRequest(**fields))
        return await stream.read()

    async with asyncio.timeout(60):
        ids = []
        for number in range(3):
            create = rpc_pb2.WatchCreateRequest(key=prefix + b"%d" % number)
            ids.append((await ask(create_request=create)).watch_id)
        assert ids == [0, 1, 2]
        chosen = rpc_pb2.WatchCreateRequest(key=prefix, range_end=prefix_end(prefix), watch_id=9)
        assert (await ask(create_request=chosen)).watch_id == 9
        refused = await ask(create_request=chosen)
        assert (refused.watch_id, refused.canceled) == (-1, True)
        assert "duplicate watch ID" in refused.cancel_reason
        empty = await ask(create_request=rpc_pb2.WatchCreateRequest(key=b"b", range_end=b"a"))
        assert (empty.watch_id, empty.cancel_reason) == (-1, "mvcc: watcher range is empty")
        put = await client.put(prefix + b"1", b"x")
        answers = [await stream.read(), await stream.read()]
        assert sorted(answer.watch_id for answer in answers) == [1, 9]
        assert {answer.events[0].kv.mod_revision for answer in answers} == {put.header.revision}
        progress = await ask(progress_request=rpc_pb2.WatchProgressRequest())
        assert (progress.watch_id, len(progress.events)) == (-1, 0)
        assert progress.header.revision >= put.header.revision
        cancelled = await ask(cancel_request=rpc_pb2.WatchCancelRequest(watch_id=1))
        assert (cancelled.watch_id, cancelled.canceled) == (1, True)
        await client.put(prefix + b"1", b"y")
        assert (await stream.read()).watch_id == 9
    stream.cancel()


async def test_large_batches_come_in_fragments(channel: grpc.aio.Channel, client: Coord, prefix: bytes) -> None:
    first = await client.put(prefix, bytes(1_000_000))
    for _ in range(4):
        await client.put(prefix, bytes(1_000_000))
    stub: Any = rpc_pb2_grpc.WatchStub(channel)  # type: ignore[no-untyped-call]  # generated
    stream = stub.Watch()
    create = rpc_pb2.WatchCreateRequest(key=prefix, start_revision=first.header.revision, fragment=True)
    await stream.write(rpc_pb2.WatchRequest(create_request=create))
    events = 0
    async with asyncio.timeout(60):
        while events < 5:
            answer = await stream.read()
            assert answer.ByteSize() < 4 * 1024 * 1024
            events += len(answer.events)
    stream.cancel()
