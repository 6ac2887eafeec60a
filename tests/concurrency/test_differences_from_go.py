"""Where the recipes are stricter than Go's package: each of these tests fails with Go's behaviour."""

from __future__ import annotations

import asyncio

import pytest
from tests.concurrency.helpers import (
    PATIENCE_S,
    Take,
    acquire,
    campaign,
    enter,
    keys_under,
    lock,
    read_lock,
    still_waiting,
    waiters,
    write_lock,
)

from leasehold.concurrency import (
    Barrier,
    Election,
    Held,
    Leader,
    Locked,
    Mutex,
    Session,
    SessionLost,
)
from leasehold.coord.api import Coord

WAITS: list[tuple[Take, Take | None]] = [
    (lock, lock),
    (campaign, campaign),
    (read_lock, write_lock),
    (write_lock, read_lock),
    (acquire, acquire),
    (enter, None),
]
waits = pytest.mark.parametrize(("take", "hold"), WAITS, ids=[take.__name__ for take, _ in WAITS])


async def test_no_phantom_leader(coord: Coord, name: str) -> None:
    """1: the lease of a campaigner ends while it waits; it gets an error, and does not win when the leader resigns."""
    async with Session.open(coord) as s1:
        s2 = await Session.open(coord)
        leader = Election(s1, name)
        await leader.campaign("first")
        campaigning = asyncio.create_task(Election(s2, name).campaign("phantom"))
        await waiters(coord, name, 2)
        await coord.lease_revoke(s2.lease_id)
        with pytest.raises(SessionLost):
            await asyncio.wait_for(campaigning, PATIENCE_S)
        await leader.resign()
        assert await keys_under(coord, name) == []
        await s2.close()


@waits
async def test_a_waiter_ends_immediately_when_its_session_closes(
    coord: Coord, name: str, take: Take, hold: Take | None
) -> None:
    """2, and 10: `close()` during a wait."""
    async with Session.open(coord) as holder:
        if hold is not None:
            await hold(holder, name)
        session = await Session.open(coord)
        waiting = asyncio.create_task(take(session, name))
        await waiters(coord, name, 2 if hold else 1)
        assert await still_waiting(waiting, for_s=0.02)
        await session.close()
        with pytest.raises(SessionLost):
            await asyncio.wait_for(waiting, PATIENCE_S)


@waits
async def test_a_waiter_ends_immediately_when_its_own_key_is_deleted(
    coord: Coord, name: str, take: Take, hold: Take | None
) -> None:
    """2: another client deletes the key of a waiter; the session itself stays alive."""
    async with Session.open(coord) as holder, Session.open(coord) as session:
        if hold is not None:
            await hold(holder, name)
        before = set(await keys_under(coord, name))
        waiting = asyncio.create_task(take(session, name))
        await waiters(coord, name, len(before) + 1)
        assert await still_waiting(waiting, for_s=0.02)
        [own] = set(await keys_under(coord, name)) - before
        await coord.delete(own)
        with pytest.raises(SessionLost, match="start again"):
            await asyncio.wait_for(waiting, PATIENCE_S)
        session.check()


async def test_a_waiter_at_a_barrier_ends_with_its_session(coord: Coord, name: str) -> None:
    async with Session.open(coord) as holder:
        await Barrier(holder, name).hold()
        session = await Session.open(coord)
        waiting = asyncio.create_task(Barrier(session, name).wait())
        assert await still_waiting(waiting, for_s=0.02)
        await session.close()
        with pytest.raises(SessionLost):
            await asyncio.wait_for(waiting, PATIENCE_S)


@waits
async def test_compaction_during_a_wait(coord: Coord, name: str, take: Take, hold: Take | None) -> None:
    """6: what the waiter would still have to read is compacted away; it goes on."""
    holder = await Session.open(coord)
    async with Session.open(coord) as session:
        if hold is not None:
            await hold(holder, name)
        waiting = asyncio.create_task(take(session, name))
        await waiters(coord, name, 2 if hold else 1)
        for _ in range(3):
            await coord.compact((await coord.put(b"filler", b"")).header.revision)
        assert await still_waiting(waiting, for_s=0.02)
        if hold is None:
            await asyncio.wait_for(take(holder, name), PATIENCE_S)
        else:
            await holder.close()
        await asyncio.wait_for(waiting, PATIENCE_S)
    await holder.close()


async def test_compaction_during_observe(coord: Coord, name: str) -> None:
    """6: an observer that cannot keep up with a compaction reads again and continues."""
    async with Session.open(coord) as session:
        election = Election(session, name)
        await election.campaign("0")
        seen: list[Leader] = []
        observing = election.observe()
        seen.append(await anext(observing))
        for number in range(1, 6):
            await election.proclaim(str(number))
            await coord.compact((await coord.put(b"filler", b"")).header.revision)
        while seen[-1].value != b"5":
            seen.append(await asyncio.wait_for(anext(observing), PATIENCE_S))
        await observing.aclose()  # type: ignore[attr-defined]  # an async generator, typed as what it promises


async def test_two_tasks_of_one_session_exclude_each_other(coord: Coord, name: str) -> None:
    """7: they queue locally, in order; the store sees one key."""
    inside = 0
    order: list[int] = []

    async with Session.open(coord) as session:

        async def worker(number: int) -> None:
            nonlocal inside
            async with Mutex(session, name):
                inside += 1
                assert inside == 1
                order.append(number)
                assert len(await keys_under(coord, name)) == 1
                inside -= 1

        await asyncio.gather(*map(worker, range(6)))
    assert order == list(range(6))


async def test_one_mutex_object_for_several_tasks(coord: Coord, name: str) -> None:
    """7: the task that holds may lock again, another task waits, though it is the same object."""
    async with Session.open(coord) as session:
        mutex = Mutex(session, name)
        async with mutex as held:
            async with mutex as again:
                assert again.token == held.token
            held.check()  # the inner exit has released nothing
            assert len(await keys_under(coord, name)) == 1
            other = asyncio.create_task(mutex.lock())
            assert await still_waiting(other, for_s=0.05)
            with pytest.raises(Locked):
                await asyncio.create_task(mutex.try_lock())
        assert (await asyncio.wait_for(other, PATIENCE_S)).token > held.token
        await mutex.unlock()


async def test_a_task_that_waits_locally_ends_with_the_session(coord: Coord, name: str) -> None:
    session = await Session.open(coord)
    await Mutex(session, name).lock()
    waiting = asyncio.create_task(Mutex(session, name).lock())
    cancelled = asyncio.create_task(Mutex(session, name).lock())
    assert await still_waiting(waiting, for_s=0.02)
    cancelled.cancel()
    await session.close()
    with pytest.raises(SessionLost):
        await asyncio.wait_for(waiting, PATIENCE_S)


async def test_the_body_is_cancelled_with_session_lost(coord: Coord, name: str) -> None:
    session = await Session.open(coord, ttl_s=4)
    holds: list[Held] = []
    reached = False

    async def body() -> None:
        nonlocal reached
        async with Mutex(session, name) as held:
            holds.append(held)
            await coord.lease_revoke(session.lease_id)
            await asyncio.sleep(30)
            reached = True

    with pytest.raises(SessionLost):
        await body()
    assert not reached
    with pytest.raises(SessionLost):
        holds[0].check()
    await asyncio.sleep(0)  # the cancellation was ours and is consumed
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]  # a test runs in a task


async def test_a_cancellation_by_another_task_passes_through(coord: Coord, name: str) -> None:
    async with Session.open(coord) as session:

        async def body() -> None:
            async with Mutex(session, name):
                await asyncio.sleep(30)

        task = asyncio.create_task(body())
        await waiters(coord, name, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await keys_under(coord, name) == []


async def test_a_body_that_fails_keeps_its_error_and_releases(coord: Coord, name: str) -> None:
    async with Session.open(coord) as session:
        with pytest.raises(ZeroDivisionError):
            async with Mutex(session, name):
                raise ZeroDivisionError
        assert await keys_under(coord, name) == []


async def test_is_owner_guards_a_transaction(coord: Coord, name: str) -> None:
    async with Session.open(coord) as session:
        async with Mutex(session, name) as held:
            assert (await coord.txn([held.is_owner()], [])).succeeded
        assert not (await coord.txn([held.is_owner()], [])).succeeded


async def test_tokens_grow(coord: Coord, name: str) -> None:
    tokens: list[int] = []
    for _ in range(3):
        async with Session.open(coord) as session, Mutex(session, name) as held:
            tokens.append(held.token)
    assert tokens == sorted(set(tokens))
