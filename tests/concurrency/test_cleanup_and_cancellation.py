"""Clean-up and cancellation: shared objects, closed loops, failing callbacks, interrupted clean-up."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.concurrency.helpers import PATIENCE_S, keys_under, still_waiting

from leasehold.base.errors import NotHeld, SessionLost, Unavailable
from leasehold.concurrency import DoubleBarrier, Election, Mutex, Queue, Session
from leasehold.coord.api import Coord, WatchStream
from leasehold.coord.connect import connect
from leasehold.mvcc.errors import Compacted
from leasehold.mvcc.model import Op, Range, Watch, WatchBatch
from leasehold.testing.faulty import CancelledAt, FaultyCoord
from leasehold.testing.waiting import until


async def test_a_callback_that_fails_does_not_prevent_the_others(coord: Coord, name: str) -> None:
    """The next one may be what ends a body that no longer holds its lock."""
    session = await Session.open(coord)

    def broken(_loss: SessionLost) -> None:
        raise RuntimeError("of the user's own")

    session.on_lost(broken)
    entered = asyncio.Event()

    async def body() -> None:
        async with Mutex(session, name):
            entered.set()
            await asyncio.Event().wait()

    holding = asyncio.create_task(body())
    await entered.wait()
    await asyncio.wait_for(session.close(), PATIENCE_S)
    with pytest.raises(SessionLost):
        await asyncio.wait_for(holding, PATIENCE_S)
    assert await keys_under(coord, name) == []


async def test_a_block_that_gave_its_lock_away_does_not_release_anothers(coord: Coord, name: str) -> None:
    """One Mutex object, two tasks; the first unlocks inside its block, and leaves the block while the second holds."""
    async with Session.open(coord) as session:
        mutex = Mutex(session, name)
        second_in, first_out = asyncio.Event(), asyncio.Event()

        async def second() -> None:
            async with mutex as held:
                second_in.set()
                await first_out.wait()
                held.check()
                assert (await coord.txn([held.is_owner()])).succeeded

        async with mutex:
            other = asyncio.create_task(second())
            await mutex.unlock()
            await second_in.wait()
        first_out.set()
        await asyncio.wait_for(other, PATIENCE_S)
        assert await keys_under(coord, name) == []


async def test_a_leader_whose_second_campaign_is_cancelled_still_leads(memory_coord: Coord, name: str) -> None:
    """Either it still leads, or its `check()` says that it does not: at every point where it can be cancelled."""
    for point in range(1, 50):
        async with Session.open(memory_coord) as session:
            election = Election(session, name)
            held = await election.campaign("one")
            interrupted = CancelledAt(point, election.campaign("two"))
            outcome = (await asyncio.gather(_await(interrupted), return_exceptions=True))[0]
            owner = (await memory_coord.txn([held.is_owner()])).succeeded
            assert owner, f"cancelled at point {point}: the leader has lost its key"
            held.check()
            if not interrupted.reached:
                assert not isinstance(outcome, BaseException)
                return
    raise AssertionError("it never ends")


async def test_a_place_that_was_given_up_has_no_holder(memory_coord: Coord, name: str) -> None:
    """Two Election objects of one session share a key: after resigning through one, neither leads."""
    async with Session.open(memory_coord) as session:
        held = await Election(session, name).campaign("one")
        other = Election(session, name)
        await other.campaign("one")
        await other.resign()
        with pytest.raises(NotHeld):
            held.check()


async def test_a_closed_loop_does_not_keep_its_leases_alive(url: str, coord: Coord, name: str) -> None:
    """`run_until_complete` and `close` cancel nothing: the renewing thread must notice that the loop is closed."""

    def forgetful() -> None:
        loop = asyncio.new_event_loop()

        async def main() -> None:
            client = await connect(url)
            await Mutex(await Session.open(client, ttl_s=2), name).lock()

        loop.run_until_complete(main())
        loop.close()

    thread = threading.Thread(target=forgetful)
    thread.start()
    await asyncio.to_thread(thread.join)
    async with Session.open(coord) as session:
        await Mutex(session, name).lock(timeout_s=PATIENCE_S)


async def test_a_cancelled_close_still_revokes(coord: Coord, name: str) -> None:
    for step in range(4):
        session = await Session.open(coord)
        await Mutex(session, name).lock()
        closing = asyncio.create_task(session.close())
        for _ in range(step):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        if step:  # one that never began has nothing to end
            await until(lambda: _empty(coord, name))
        else:
            await session.close()


async def test_a_cancelled_open_leaves_no_lease(coord: Coord) -> None:
    ttl_s = 12_345  # by which they are known: others use this store, too

    async def opening() -> None:
        await (await Session.open(coord, ttl_s=ttl_s)).close()

    for step in range(12):
        task = asyncio.create_task(opening())
        await asyncio.sleep(step * 0.0002)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def none_left() -> bool:
        ids = (await coord.leases()).leases
        return ttl_s not in [(await coord.lease_time_to_live(lease_id)).granted_ttl_s for lease_id in ids]

    await until(none_left)


async def test_a_double_barrier_does_not_open_for_a_newcomer_because_it_was_open_before(
    coord: Coord, name: str
) -> None:
    """Of four, two have left and two are still inside, and `ready` exists: the new client waits for one more."""
    async with Session.open(coord) as session:
        first = [DoubleBarrier(session, name, 4) for _ in range(4)]
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(barrier.enter() for barrier in first))
            leaving = [asyncio.create_task(barrier.leave()) for barrier in first[:3]]
            await _inside_at_most(coord, name, 2)
            entering = asyncio.create_task(DoubleBarrier(session, name, 4).enter())
            too_early = not await still_waiting(entering)
            entering.cancel()
            await asyncio.gather(entering, return_exceptions=True)
            assert not too_early
            await asyncio.gather(first[3].leave(), *leaving)


async def test_an_item_survives_a_taker_that_is_cancelled_twice(coord: Coord, name: str) -> None:
    """The second time while it puts the item back, or before it knows whether it has it."""
    queue = Queue(coord, name)
    for step in range(24):
        await queue.enqueue("item")
        taking = asyncio.create_task(queue.dequeue())
        await asyncio.sleep(step * 0.0002)
        taking.cancel()
        await asyncio.sleep(0)
        taking.cancel()
        outcome = (await asyncio.gather(taking, return_exceptions=True))[0]
        if isinstance(outcome, asyncio.CancelledError):
            assert await queue.dequeue(timeout_s=PATIENCE_S) == b"item", step
        assert await keys_under(coord, name) == []


class Restless(FaultyCoord):
    """Its watches break once, and then it cannot be read for a while."""

    breaks = 1
    unreadable = 3

    def open_watch(self, request: Watch) -> WatchStream:
        stream = super().open_watch(request)
        return Broken(stream) if self.broken() else stream

    def broken(self) -> bool:
        self.breaks -= 1
        return self.breaks >= 0

    async def do(self, op: Op, timeout_s: float | None = None) -> Any:
        if isinstance(op, Range) and self.breaks < 1 and self.unreadable:
            self.unreadable -= 1
            raise Unavailable("injected: no answer")
        return await super().do(op, timeout_s)


class Broken:
    """A watch that ends as soon as it is read."""

    def __init__(self, stream: WatchStream) -> None:
        self.ready, self.request_progress, self.close = stream.ready, stream.request_progress, stream.close

    def __aiter__(self) -> Broken:
        return self

    async def __anext__(self) -> WatchBatch:
        raise Compacted(1)

    async def __aenter__(self) -> Broken:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def test_an_observer_outlives_a_store_that_is_away_when_its_watch_breaks(memory_coord: Coord, name: str) -> None:
    restless = Restless(memory_coord, lambda _call: None)
    async with Session.open(memory_coord) as session, Session.open(restless) as watching:
        seen = Election(watching, name).observe()
        assert (await anext(seen)).kv is None
        await Election(session, name).campaign("me")
        async with asyncio.timeout(PATIENCE_S):
            assert (await anext(seen)).value == b"me"
        assert restless.unreadable == 0


async def test_a_lease_with_a_negative_id_can_be_adopted(coord: Coord, name: str) -> None:
    """etcd grants them on request; Go writes them into keys with their sign."""
    lease = await coord.lease_grant(30, -0x2A)
    async with Session.open(coord, lease_id=lease.id) as session, Mutex(session, name) as held:
        assert held.key.endswith(b"/-2a")


async def _await(awaitable: Any) -> object:
    return await awaitable


async def _empty(coord: Coord, name: str) -> bool:
    return await keys_under(coord, name) == []


async def _inside_at_most(coord: Coord, name: str, count: int) -> None:
    async def few() -> bool:
        return sum(b"/waiters/" in key for key in await keys_under(coord, name)) <= count

    await until(few)
