"""The lock and election services of the store (v3lock, v3election) meet the same keys as the recipes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc.aio
import pytest
from tests.concurrency.helpers import PATIENCE_S, waiters

from leasehold.concurrency import Election, Mutex, Session
from leasehold.coord.api import Coord
from leasehold.etcd.pb import election_pb2, lock_pb2
from leasehold.testing.grpc_stubs import election_pb2_grpc, lock_pb2_grpc

pytestmark = pytest.mark.parametrize("url", ["served", "etcd"], indirect=True)


@pytest.fixture
async def channel(url: str) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(url.removeprefix("etcd://")) as channel:
        yield channel


async def test_v3_lock_lock_waiter(coord: Coord, channel: grpc.aio.Channel, name: str) -> None:
    """TestV3LockLockWaiter: a waiter at the service gets the lock when its holder, a recipe, lets go."""
    service = lock_pb2_grpc.LockStub(channel)  # type: ignore[no-untyped-call]  # generated code has no types
    async with Session.open(coord) as session:
        lease = await coord.lease_grant(30)
        async with Mutex(session, name):
            waiting = asyncio.ensure_future(service.Lock(lock_pb2.LockRequest(name=name.encode(), lease=lease.id)))
            await waiters(coord, name, 2)
            assert not waiting.done()
        answer = await asyncio.wait_for(waiting, PATIENCE_S)
        assert answer.key == f"{name}/{lease.id:x}".encode()
        ours = asyncio.create_task(Mutex(session, name).lock())
        await waiters(coord, name, 2)
        await service.Unlock(lock_pb2.UnlockRequest(key=answer.key))
        await asyncio.wait_for(ours, PATIENCE_S)


async def test_v3_election_campaign(coord: Coord, channel: grpc.aio.Channel, name: str) -> None:
    """TestV3ElectionCampaign: candidates at the service and recipes lead one after the other."""
    service = election_pb2_grpc.ElectionStub(channel)  # type: ignore[no-untyped-call]  # generated code has no types
    lease = await coord.lease_grant(30)
    first = await service.Campaign(election_pb2.CampaignRequest(name=name.encode(), lease=lease.id, value=b"service"))
    async with Session.open(coord) as session:
        election = Election(session, name)
        assert (await election.leader()).value == b"service"
        ours = asyncio.create_task(election.campaign("recipe"))
        await waiters(coord, name, 2)
        await service.Resign(election_pb2.ResignRequest(leader=first.leader))
        await asyncio.wait_for(ours, PATIENCE_S)


async def test_v3_election_observe(coord: Coord, channel: grpc.aio.Channel, name: str) -> None:
    """TestV3ElectionObserve: an observer at the service sees the proclamations of a recipe."""
    service = election_pb2_grpc.ElectionStub(channel)  # type: ignore[no-untyped-call]  # generated code has no types
    async with Session.open(coord) as session:
        election = Election(session, name)
        await election.campaign("0")
        stream = service.Observe(election_pb2.LeaderRequest(name=name.encode()))
        seen = [(await asyncio.wait_for(stream.read(), PATIENCE_S)).kv.value]
        for number in range(1, 4):
            await election.proclaim(str(number))
            seen.append((await asyncio.wait_for(stream.read(), PATIENCE_S)).kv.value)
        assert seen == [b"0", b"1", b"2", b"3"]
        stream.cancel()
