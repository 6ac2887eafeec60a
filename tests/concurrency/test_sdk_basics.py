"""Basic behaviour of sessions, locks and elections: the tests of the first proposal, under their names."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.concurrency.helpers import PATIENCE_S, keys_under, still_waiting, waiters

from leasehold.concurrency import Election, Locked, LockReleased, Mutex, NoLeader, Session, SessionLost, SessionState
from leasehold.coord.api import Coord
from leasehold.coord.connect import connect
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.waiting import until


async def test_new_session(coord: Coord) -> None:
    """TestNewSession"""
    async with Session.open(coord, ttl_s=30) as session:
        assert session.state is SessionState.HEALTHY
        assert session.ttl_s == 30


async def test_session_lease(coord: Coord) -> None:
    """TestSessionLease"""
    async with Session.open(coord) as session:
        assert session.lease_id in (await coord.leases()).leases


async def test_session_close(coord: Coord, name: str) -> None:
    """TestSessionClose: the lease is revoked, what was held is free."""
    session = await Session.open(coord)
    await Mutex(session, name).lock()
    await session.close()
    assert session.lease_id not in (await coord.leases()).leases
    assert await keys_under(coord, name) == []
    await session.close()


async def test_session_expiry(coord: Coord) -> None:
    """TestSessionExpiry: a lease without renewals expires, and the session that adopted it is lost."""
    session = await Session.open(coord, ttl_s=2)
    await session.orphan()
    with pytest.raises(SessionLost):
        session.check()

    async def gone() -> bool:
        return (await coord.lease_time_to_live(session.lease_id)).ttl_s < 0

    await until(gone)


async def test_lock_unlock(coord: Coord, name: str) -> None:
    """TestLockUnlock"""
    async with Session.open(coord) as session:
        mutex = Mutex(session, name)
        held = await mutex.lock()
        assert held.header == mutex.header
        held.check()
        await mutex.unlock()
        with pytest.raises(LockReleased):
            mutex.is_owner()


async def test_concurrent_lock(coord: Coord, name: str) -> None:
    """TestConcurrentLock, and the stress test: ten sessions, a counter that is read, yielded and written."""
    counter = 0

    async def worker() -> None:
        nonlocal counter
        async with Session.open(coord) as session:
            for _ in range(5):
                async with Mutex(session, name):
                    before = counter
                    await asyncio.sleep(random.random() / 1000)
                    counter = before + 1

    await asyncio.gather(*(worker() for _ in range(10)))
    assert counter == 50


async def test_try_lock(coord: Coord, name: str) -> None:
    """TestTryLock"""
    async with Session.open(coord) as s1, Session.open(coord) as s2:
        m1, m2 = Mutex(s1, name), Mutex(s2, name)
        await m1.try_lock()
        with pytest.raises(Locked):
            await m2.try_lock()


async def test_lease_expiry(coord: Coord, name: str) -> None:
    """TestLeaseExpiry: a holder that no longer renews loses the lock to the next one."""
    dead = await Session.open(coord, ttl_s=2)
    await Mutex(dead, name).lock()
    await dead.orphan()
    async with Session.open(coord) as session:
        await asyncio.wait_for(Mutex(session, name).lock(), PATIENCE_S)


async def test_context_cancel(coord: Coord, name: str) -> None:
    """TestContextCancel: a cancelled wait leaves the queue."""
    async with Session.open(coord) as s1, Session.open(coord) as s2:
        await Mutex(s1, name).lock()
        waiting = asyncio.create_task(Mutex(s2, name).lock())
        await waiters(coord, name, 2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(await keys_under(coord, name)) == 1


async def test_campaign_resign(coord: Coord, name: str) -> None:
    """TestCampaignResign"""
    async with Session.open(coord) as session:
        election = Election(session, name)
        held = await election.campaign("me")
        assert (election.key, election.rev) == (held.key, held.token)
        await election.resign()
        assert election.key == b""


async def test_leader_query(coord: Coord, name: str) -> None:
    """TestLeaderQuery"""
    async with Session.open(coord) as session:
        election = Election(session, name)
        with pytest.raises(NoLeader):
            await election.leader()
        await election.campaign("me")
        assert (await election.leader()).value == b"me"


async def test_observe(coord: Coord, name: str) -> None:
    """TestObserve"""
    async with Session.open(coord) as session:
        election = Election(session, name)
        await election.campaign("one")
        observing = election.observe()
        assert (await anext(observing)).value == b"one"
        await election.proclaim("two")
        assert (await anext(observing)).value == b"two"


async def test_leader_failover(coord: Coord, name: str) -> None:
    """TestLeaderFailover"""
    first = await Session.open(coord)
    async with Session.open(coord) as second:
        await Election(first, name).campaign("one")
        next_one = asyncio.create_task(Election(second, name).campaign("two"))
        await waiters(coord, name, 2)
        await first.close()
        await asyncio.wait_for(next_one, PATIENCE_S)


async def one_client_each(cluster: EtcdCluster) -> list[Coord]:
    return [await connect(f"etcd://{endpoint}") for endpoint in cluster.endpoints]


async def test_multi_node_mutex(etcd3: EtcdCluster, name: str) -> None:
    """TestMultiNodeMutex: three nodes, one lock, exclusion."""
    clients = await one_client_each(etcd3)
    inside = 0

    async def worker(client: Coord) -> None:
        nonlocal inside
        async with Session.open(client) as session:
            for _ in range(5):
                async with Mutex(session, name):
                    inside += 1
                    assert inside == 1
                    await asyncio.sleep(0)
                    inside -= 1

    await asyncio.gather(*map(worker, clients))
    for client in clients:
        await client.close()


async def test_multi_node_election(etcd3: EtcdCluster, name: str) -> None:
    """TestMultiNodeElection: three nodes, one leader, re-election."""
    clients = await one_client_each(etcd3)
    sessions = [await Session.open(client) for client in clients]
    elections = [Election(session, name) for session in sessions]
    campaigns = [asyncio.create_task(e.campaign(str(number))) for number, e in enumerate(elections)]
    for _ in range(3):
        done, _running = await asyncio.wait(campaigns, return_when=asyncio.FIRST_COMPLETED)
        [leader] = done
        number = campaigns.index(leader)
        values = {(await election.leader()).value for election in elections}
        assert values == {str(number).encode()}
        campaigns[number] = asyncio.get_running_loop().create_future()  # type: ignore[call-overload]  # never done again
        await elections[number].resign()
    for session in sessions:
        await session.close()
    for client in clients:
        await client.close()


async def test_failure_recovery(coord: Coord, name: str) -> None:
    """TestFailureRecovery: the holder dies, the next one gets it, and only the next one."""
    dead = await Session.open(coord)
    async with Session.open(coord) as s2, Session.open(coord) as s3:
        await Mutex(dead, name).lock()
        second = asyncio.create_task(Mutex(s2, name).lock())
        await waiters(coord, name, 2)
        third = asyncio.create_task(Mutex(s3, name).lock())
        await waiters(coord, name, 3)
        await dead.close()
        await asyncio.wait_for(second, PATIENCE_S)
        assert await still_waiting(third)
        third.cancel()
