"""The original's tests of sessions and mutexes, under their own names."""

from __future__ import annotations

import asyncio

import pytest
from tests.concurrency.helpers import PATIENCE_S, keys_under, still_waiting, waiters

from leasehold.concurrency import Locked, LockReleased, Mutex, Session, SessionLost, SessionState
from leasehold.coord.api import Coord
from leasehold.coord.connect import connect
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.waiting import until


async def test_example_mutex_lock(coord: Coord, name: str) -> None:
    """ExampleMutex_Lock: two sessions, the second gets the lock when the first gives it up."""
    async with Session.open(coord) as s1, Session.open(coord) as s2:
        m1, m2 = Mutex(s1, name), Mutex(s2, name)
        await m1.lock()
        second = asyncio.create_task(m2.lock())
        await waiters(coord, name, 2)
        assert not second.done()
        await m1.unlock()
        await second
        await m2.unlock()
        assert await keys_under(coord, name) == []


async def test_example_mutex_try_lock(coord: Coord, name: str) -> None:
    """ExampleMutex_TryLock"""
    async with Session.open(coord) as s1, Session.open(coord) as s2:
        m1, m2 = Mutex(s1, name), Mutex(s2, name)
        await m1.lock()
        with pytest.raises(Locked):
            await m2.try_lock()
        await m1.unlock()
        held = await m2.try_lock()
        assert held.key == m2.key == f"{name}/{s2.lease_id:x}".encode()


async def test_mutex_lock_session_expired(coord: Coord, name: str) -> None:
    """TestMutexLockSessionExpired: a waiter whose session ends gets an error, not the lock."""
    async with Session.open(coord) as s1:
        s2 = await Session.open(coord)
        m1, m2 = Mutex(s1, name), Mutex(s2, name)
        await m1.lock()
        second = asyncio.create_task(m2.lock())
        await waiters(coord, name, 2)
        await s2.close()
        with pytest.raises(SessionLost):
            await second


async def test_mutex_unlock(coord: Coord, name: str) -> None:
    """TestMutexUnlock: unlock before lock, and twice, is an error; the key is deleted."""
    async with Session.open(coord) as session:
        mutex = Mutex(session, name)
        with pytest.raises(LockReleased):
            await mutex.unlock()
        await mutex.lock()
        await mutex.unlock()
        with pytest.raises(LockReleased):
            await mutex.unlock()
        await mutex.lock()
        await mutex.unlock()
        assert await keys_under(coord, name) == []


async def test_session_options(coord: Coord) -> None:
    """TestSessionOptions: a session on a lease that exists already."""
    granted = await coord.lease_grant(100)
    session = await Session.open(coord, lease_id=granted.id)
    assert session.lease_id == granted.id
    await session.close()
    assert (await coord.lease_time_to_live(granted.id)).ttl_s == -1


async def test_session_ttl_options(coord: Coord) -> None:
    """TestSessionTTLOptions: the requested TTL is the one granted; 0 means the default of 60 s."""
    async with Session.open(coord, ttl_s=30) as session, Session.open(coord, ttl_s=0) as default:
        assert (await coord.lease_time_to_live(session.lease_id)).granted_ttl_s == 30
        assert (await coord.lease_time_to_live(default.lease_id)).granted_ttl_s == default.ttl_s == 60


async def test_session_ctx(coord: Coord) -> None:
    """TestSessionCtx: a task that waits for the end of a session gets the reason; orphaning leaves the lease."""
    session = await Session.open(coord)
    ended = asyncio.create_task(session.wait_lost())
    assert await still_waiting(ended, for_s=0.02)
    await session.orphan()
    assert "orphaned" in str(await ended)
    assert session.state is SessionState.LOST
    assert (await coord.lease_time_to_live(session.lease_id)).ttl_s > 0
    await session.close()
    assert (await coord.lease_time_to_live(session.lease_id)).ttl_s > 0
    await coord.lease_revoke(session.lease_id)


async def lock_in_turn(clients: list[Coord], name: str, rounds: int = 5) -> None:
    """As many sessions as clients, one lock: never two holders, and each session gets it `rounds` times."""
    inside = 0
    done = 0

    async def worker(client: Coord) -> None:
        nonlocal inside, done
        async with Session.open(client) as session:
            for _ in range(rounds):
                async with Mutex(session, name) as held:
                    inside += 1
                    assert inside == 1
                    held.check()
                    await asyncio.sleep(0)
                    inside -= 1
                    done += 1

    await asyncio.gather(*map(worker, clients))
    assert done == rounds * len(clients)


async def test_mutex_lock_single_node(coord: Coord, name: str) -> None:
    """TestMutexLockSingleNode"""
    await lock_in_turn([coord] * 5, name)


async def test_mutex_lock_multi_node(etcd3: EtcdCluster, name: str) -> None:
    """TestMutexLockMultiNode: each contender talks to another member first."""
    clients = [await connect(f"etcd://{endpoint}") for endpoint in etcd3.endpoints for _ in range(2)]
    await lock_in_turn(clients, name)
    for client in clients:
        await client.close()


async def try_locks(clients: list[Coord], name: str) -> None:
    sessions = [await Session.open(client) for client in clients]
    outcomes = await asyncio.gather(*(Mutex(session, name).try_lock() for session in sessions), return_exceptions=True)
    assert sum(isinstance(outcome, Locked) for outcome in outcomes) == len(clients) - 1
    assert len(await keys_under(clients[0], name)) == 1
    for session in sessions:
        await session.close()


async def test_mutex_try_lock_single_node(coord: Coord, name: str) -> None:
    """TestMutexTryLockSingleNode: of five, one gets it; the others leave nothing behind."""
    await try_locks([coord] * 5, name)


async def test_mutex_try_lock_multi_node(etcd3: EtcdCluster, name: str) -> None:
    """TestMutexTryLockMultiNode"""
    clients = [await connect(f"etcd://{endpoint}") for endpoint in etcd3.endpoints]
    await try_locks(clients, name)
    for client in clients:
        await client.close()


async def test_mutex_session_relock(coord: Coord, name: str) -> None:
    """TestMutexSessionRelock: the holder may lock again and does not wait."""
    async with Session.open(coord) as session:
        mutex = Mutex(session, name)
        first = await mutex.lock()
        second = await mutex.lock()
        assert second.token == first.token


async def test_mutex_waits_on_current_holder(coord: Coord, name: str) -> None:
    """TestMutexWaitsOnCurrentHolder: when a waiter in the middle leaves, the next goes on waiting for the holder."""
    async with Session.open(coord) as s1, Session.open(coord) as s3:
        s2 = await Session.open(coord)
        first = Mutex(s1, name)
        await first.lock()
        middle = asyncio.create_task(Mutex(s2, name).lock())
        await waiters(coord, name, 2)
        third = asyncio.create_task(Mutex(s3, name).lock())
        await waiters(coord, name, 3)
        await s2.close()
        with pytest.raises(SessionLost):
            await middle
        assert await still_waiting(third)
        await first.unlock()
        await asyncio.wait_for(third, PATIENCE_S)


async def test_benchmark_mutex4_waiters(coord: Coord, name: str) -> None:
    """BenchmarkMutex4Waiters, as far as it is a test: four waiters, four hand-overs, in order."""
    order: list[int] = []

    async def worker(number: int) -> None:
        async with Session.open(coord) as session, Mutex(session, name):
            order.append(number)

    async with Session.open(coord) as session:
        mutex = Mutex(session, name)
        await mutex.lock()
        tasks = []
        for number in range(4):
            tasks.append(asyncio.create_task(worker(number)))
            await waiters(coord, name, number + 2)
        await mutex.unlock()
        await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3]


async def test_mutex_stale_unlock_does_not_delete_same_session_relock(coord: Coord, name: str) -> None:
    """TestMutexStaleUnlockDoesNotDeleteSameSessionRelock: the name in the original's open pull request."""
    async with Session.open(coord) as session:
        mutex = Mutex(session, name)
        first = await mutex.lock()
        await mutex.unlock()
        second = await mutex.lock()
        again = await coord.txn([first.is_owner()], [])
        assert not again.succeeded  # the transaction of the first unlock, repeated, would do nothing
        assert (await coord.txn([second.is_owner()], [])).succeeded
        assert second.token > first.token


async def test_state_goes_to_lost_when_the_lease_is_revoked(coord: Coord) -> None:
    """A revoked lease is noticed at the next renewal at the latest."""
    async with Session.open(coord, ttl_s=2) as session:
        session.check()
        await coord.lease_revoke(session.lease_id)
        await until(lambda: session.state is SessionState.LOST)
        with pytest.raises(SessionLost):
            session.check()
