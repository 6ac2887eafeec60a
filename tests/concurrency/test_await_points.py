"""Better than the original, 4 and 5: cancelled at every point where it waits; every answer lost, one by one.

In every case no key is left behind, no client is in the queue twice, and the lock is available afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

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
    waiters,
    write_lock,
)

from leasehold.concurrency import (
    Election,
    Held,
    Mutex,
    PriorityQueue,
    Queue,
    Session,
    WaitTimeout,
)
from leasehold.coord.api import Coord
from leasehold.mvcc.model import DeleteRange, prefix_end
from leasehold.testing.faulty import CancelledAt, Fault, FaultyCoord
from leasehold.testing.waiting import until

POINTS_MAX = 200
TURNS = 1_000


async def try_lock(session: Session, name: str) -> object:
    return await Mutex(session, name).try_lock()


async def with_body(session: Session, name: str) -> object:
    async with Mutex(session, name):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return None


ACQUIRES: list[Take] = [lock, campaign, read_lock, write_lock, acquire, enter]


async def cancel_at_every_point(coord: Coord, attempt: Callable[[], Coroutine[Any, Any, object]], name: str) -> int:
    """Run `attempt` until it has no further point to be cancelled at; after each, no key may be left."""
    for point in range(1, POINTS_MAX):
        interrupted = CancelledAt(point, attempt())
        cancelled = False
        try:
            await asyncio.create_task(_awaiting(interrupted))
        except asyncio.CancelledError:
            cancelled = True
        if not interrupted.reached:
            return point - 1
        assert cancelled, f"cancelled at point {point}, and it went on"
        assert await keys_under(coord, name) == [], f"left behind when cancelled at point {point}"
    raise AssertionError("it never ends")


async def done_in_turns(task: asyncio.Task[object]) -> bool:
    """Whether `task` ends without help. Counts turns of the loop: a busy machine may run nothing for a while."""
    for _ in range(TURNS):
        if task.done():
            return True
        await asyncio.sleep(0)
    await asyncio.wait({task}, timeout=0.05)
    return task.done()


async def _awaiting(awaitable: Awaitable[object]) -> object:
    return await awaitable


@pytest.mark.parametrize("take", [*ACQUIRES[:-1], try_lock, with_body], ids=lambda take: take.__name__)
async def test_cancellation_at_every_await_point_of_a_free_lock(memory_coord: Coord, take: Take, name: str) -> None:
    async with Session.open(memory_coord) as session:

        async def attempt() -> None:
            await take(session, name)
            await memory_coord.delete(name.encode(), prefix_end(name.encode()))

        points = await cancel_at_every_point(memory_coord, attempt, name)
    assert points > 0


@pytest.mark.parametrize("take", ACQUIRES, ids=lambda take: take.__name__)
async def test_cancellation_at_every_await_point_of_a_wait(memory_coord: Coord, take: Take, name: str) -> None:
    """Another client holds the lock; the waiter is cancelled at every await. Only the holder's key is left."""
    async with Session.open(memory_coord) as holder, Session.open(memory_coord) as session:
        if take is not enter:
            await (write_lock if take is read_lock else take)(holder, name)
        before = await keys_under(memory_coord, name)
        points = 0
        for point in range(1, POINTS_MAX):
            interrupted = CancelledAt(point, take(session, name))
            task = asyncio.create_task(_awaiting(interrupted))
            if not await done_in_turns(task):
                # Now it waits for its turn, and there is no further point: cancel it there.
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await keys_under(memory_coord, name) == before, f"left behind when cancelled at point {point}"
            if not interrupted.reached:
                break
            points = point
        assert points >= 3


@pytest.mark.parametrize("take", ACQUIRES[:-1], ids=lambda take: take.__name__)
async def test_cancellation_at_any_moment(coord: Coord, take: Take, name: str) -> None:
    """By the clock: requests are under way, or just answered, when the cancellation comes."""
    async with Session.open(coord) as holder, Session.open(coord) as session:
        await (write_lock if take is read_lock else take)(holder, name)
        before = await keys_under(coord, name)
        for step in range(12):
            task = asyncio.create_task(take(session, name))
            await asyncio.sleep(step * 0.0004)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await keys_under(coord, name) == before, f"left behind when cancelled after {step * 0.4} ms"


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.LOSE_REQUEST, Fault.UNAVAILABLE], ids=lambda f: f.name)
@pytest.mark.parametrize("contended", [False, True], ids=["free", "contended"])
async def test_a_lost_answer_at_every_step_of_lock_and_unlock(
    memory_coord: Coord, name: str, fault: Fault, contended: bool
) -> None:
    """Every request of lock and unlock is lost once; the lock is had once, and gone afterwards."""
    number = 0
    while True:
        number += 1
        wrong = number
        faulty = FaultyCoord(memory_coord, lambda call, wrong=wrong: fault if call.number == wrong + 1 else None)  # type: ignore[misc]  # mypy: a default binds the loop variable
        async with Session.open(memory_coord) as other, Session.open(faulty) as session:
            first = Mutex(other, name)
            if contended:
                await first.lock()
            mutex = Mutex(session, name)
            locking = asyncio.create_task(mutex.lock())
            if contended:
                await waiters(memory_coord, name, 2)
                assert len(await keys_under(memory_coord, name)) == 2
                await first.unlock()
            held = await asyncio.wait_for(locking, PATIENCE_S)
            assert await keys_under(memory_coord, name) == [held.key]
            kv = await memory_coord.get_one(held.key)
            assert kv is not None
            assert kv.create_revision == held.token
            await asyncio.wait_for(mutex.unlock(), PATIENCE_S)
            assert await keys_under(memory_coord, name) == []
            missed = not faulty.hit
        if missed:
            break
    assert number > 2


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.LOSE_REQUEST, Fault.UNAVAILABLE], ids=lambda f: f.name)
async def test_a_lost_answer_at_every_step_of_an_election(memory_coord: Coord, name: str, fault: Fault) -> None:
    """Campaign, proclaim, resign: each request is lost once."""
    number = 1
    while True:
        number += 1
        wrong = number
        faulty = FaultyCoord(memory_coord, lambda call, wrong=wrong: fault if call.number == wrong else None)  # type: ignore[misc]  # mypy: a default binds the loop variable
        async with Session.open(faulty) as session:
            election = Election(session, name)
            await asyncio.wait_for(election.campaign("one"), PATIENCE_S)
            assert len(await keys_under(memory_coord, name)) == 1
            await asyncio.wait_for(election.proclaim("two"), PATIENCE_S)
            assert (await election.leader()).value == b"two"
            await asyncio.wait_for(election.resign(), PATIENCE_S)
            assert await keys_under(memory_coord, name) == []
            missed = not faulty.hit
        if missed:
            break
    assert number >= 5


@pytest.mark.parametrize("take", [read_lock, write_lock, acquire, lock], ids=lambda take: take.__name__)
async def test_a_lost_answer_to_queueing_up_makes_one_key(memory_coord: Coord, name: str, take: Take) -> None:
    faulty = FaultyCoord(memory_coord, lambda call: Fault.LOSE_ANSWER if call.number == 2 else None)
    async with Session.open(faulty) as session:
        held = await take(session, name)
        assert isinstance(held, Held)
        assert await keys_under(memory_coord, name) == [held.key]


@pytest.mark.parametrize("take", [read_lock, acquire, lock, campaign], ids=lambda take: take.__name__)
async def test_a_request_that_arrives_after_the_release_leaves_no_key(
    memory_coord: Coord, name: str, take: Take
) -> None:
    """A frozen member wakes up with the first request, long after the second one has had its way."""
    faulty = FaultyCoord(memory_coord, lambda call: Fault.ARRIVE_LATE if call.number == 2 else None)
    async with Session.open(faulty) as session:
        held = await take(session, name)
        assert isinstance(held, Held)
        await memory_coord.txn([held.is_owner()], [DeleteRange(held.key)])
        session.own_keys.remove(held.key, held.token)
        await faulty.arrive()
        await until(lambda: _is_empty(memory_coord, name))


async def _is_empty(coord: Coord, name: str) -> bool:
    return await keys_under(coord, name) == []


async def test_a_late_request_does_not_disturb_the_next_hold(memory_coord: Coord, name: str) -> None:
    faulty = FaultyCoord(memory_coord, lambda call: Fault.ARRIVE_LATE if call.number == 2 else None)
    async with Session.open(faulty) as session:
        mutex = Mutex(session, name)
        await mutex.lock()
        await mutex.unlock()
        held = await mutex.lock()
        await faulty.arrive()
        await asyncio.sleep(0.3)
        assert (await memory_coord.txn([held.is_owner()], [])).succeeded
        await mutex.unlock()
        assert await _is_empty(memory_coord, name)


async def test_timeout_leaves_nothing_and_never_enters_the_body(coord: Coord, name: str) -> None:
    async with Session.open(coord) as s1, Session.open(coord) as s2:
        await Mutex(s1, name).lock()
        entered = False
        with pytest.raises(WaitTimeout, match="nothing was left behind"):
            async with Mutex(s2, name).hold(timeout_s=0.1):
                entered = True
        assert not entered
        assert len(await keys_under(coord, name)) == 1


async def test_a_cancelled_dequeue_loses_no_item(memory_coord: Coord, name: str) -> None:
    """Cancelled at every point: the item was either taken or is still there."""
    for kind in (Queue, PriorityQueue):
        for point in range(1, POINTS_MAX):
            queue = kind(memory_coord, name)
            if isinstance(queue, Queue):
                await queue.enqueue("item")
            else:
                await queue.enqueue("item", 1)
            interrupted = CancelledAt(point, queue.dequeue(timeout_s=PATIENCE_S))
            task = asyncio.create_task(_awaiting(interrupted))
            [outcome] = await asyncio.gather(task, return_exceptions=True)
            left = len(await keys_under(memory_coord, name))
            assert left == (1 if isinstance(outcome, asyncio.CancelledError) else 0)
            if not interrupted.reached:
                break
            await memory_coord.delete(name.encode(), name.encode() + b"\xff")
