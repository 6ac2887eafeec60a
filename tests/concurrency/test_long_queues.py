"""Long queues: no client overtakes, none reads the whole queue at a hand-over, and a lost place is noticed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from tests.concurrency.helpers import PATIENCE_S, still_waiting, waiters
from tests.measured import until_met

from leasehold.concurrency import Election, Mutex, Session, SessionLost
from leasehold.concurrency.place import WINDOW
from leasehold.concurrency.turn import HELD_VALUE
from leasehold.coord.api import Coord
from leasehold.mvcc.model import Op, Put, Range, SortTarget, Txn, TxnResult
from leasehold.testing.waiting import until


class LongQueue:
    """A holder, and tasks that wait for the same lock in the order of their numbers."""

    def __init__(self, coord: Coord, name: str, count: int, stack: AsyncExitStack) -> None:
        self.coord, self.name, self.count = coord, name, count
        self.order: list[int] = []
        self.waiting: list[asyncio.Task[None]] = []
        self._stack = stack
        self._inside = 0

    async def form(self) -> Mutex:
        holder = Mutex(await self._stack.enter_async_context(Session.open(self.coord)), self.name)
        await holder.lock()
        for number in range(self.count):
            session = await self._stack.enter_async_context(Session.open(self.coord))
            self.waiting.append(asyncio.create_task(self._wait(number, session)))
            await waiters(self.coord, self.name, number + 2)
        return holder

    async def _wait(self, number: int, session: Session) -> None:
        async with Mutex(session, self.name):
            self._inside += 1
            assert self._inside == 1
            self.order.append(number)
            await asyncio.sleep(0)
            self._inside -= 1


async def test_a_long_queue_is_not_read_at_a_hand_over(
    coord: Coord, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of a hand-over does not depend on the queue: each waiter reads the queue once, when it enters."""
    sent: list[Txn] = []
    send: Callable[..., Awaitable[TxnResult]] = coord.txn

    async def recording(*args: object, **options: object) -> TxnResult:
        sent.append(Txn(*(tuple(part) for part in args)))  # type: ignore[arg-type]  # compares and operations
        return await send(*args, **options)

    monkeypatch.setattr(coord, "txn", recording)

    def sorted_reads() -> list[Op]:
        ops = [op for txn in sent for op in txn.success]
        return [op for op in ops if isinstance(op, Range) and op.sort_target is SortTarget.CREATE]

    async def all_quiet() -> bool:
        before = len(sent)
        await asyncio.sleep(0.1)
        return len(sorted_reads()) >= queue.count and len(sent) == before

    async with AsyncExitStack() as stack:
        queue = LongQueue(coord, name, 2 * WINDOW + 3, stack)
        holder = await queue.form()
        await until(all_quiet, "all of them have read the queue and watch")
        sent.clear()
        await holder.unlock()
        await asyncio.wait_for(asyncio.gather(*queue.waiting), PATIENCE_S)
    assert queue.order == list(range(queue.count))
    assert sorted_reads() == []
    announcements = [op for txn in sent for op in txn.success if isinstance(op, Put) and op.value == HELD_VALUE]
    assert len(announcements) == queue.count - WINDOW + 1, (
        "only keys whose successor may not know all predecessors are announced"
    )


async def test_a_waiter_that_gives_up_in_a_long_queue_lets_no_other_overtake(coord: Coord, name: str) -> None:
    """The predecessor of the last waiter leaves without having held the lock: it is not the last one's turn."""
    async with AsyncExitStack() as stack:
        queue = LongQueue(coord, name, WINDOW + 4, stack)
        holder = await queue.form()
        queue.waiting[-2].cancel()
        await asyncio.wait({queue.waiting[-2]})
        assert await still_waiting(queue.waiting[-1])
        await holder.unlock()
        await asyncio.wait_for(asyncio.wait(queue.waiting), PATIENCE_S)
    assert queue.order == [number for number in range(queue.count) if number != queue.count - 2]


async def test_a_candidate_with_the_value_held_is_not_taken_for_the_leader(memory_coord: Coord, name: str) -> None:
    """In an election the values are the candidates' own."""
    value = HELD_VALUE.decode()
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(Session.open(memory_coord)) for _ in range(WINDOW + 4)]
        campaigns = []
        for number, session in enumerate(sessions):
            campaigns.append(asyncio.create_task(Election(session, name).campaign(value)))
            await waiters(memory_coord, name, number + 1)
        campaigns[-2].cancel()
        await asyncio.wait({campaigns[-2]})
        assert await still_waiting(campaigns[-1])
        for campaign in campaigns:
            campaign.cancel()
        await asyncio.gather(*campaigns, return_exceptions=True)


@pytest.mark.parametrize("kind", [Mutex, Election])
async def test_the_loss_of_the_own_key_is_noticed_immediately(
    coord: Coord, name: str, kind: type[Mutex] | type[Election]
) -> None:
    """Even right after a wait has begun. The best of five, because the machine may be busy."""
    async with Session.open(coord) as holder, Session.open(coord) as session:
        await Mutex(holder, name).lock()
        for took_s in until_met(0.5, "s until the loss of the key is noticed", attempts=5):
            recipe = kind(session, name)
            waiting = asyncio.create_task(recipe.lock() if isinstance(recipe, Mutex) else recipe.campaign(""))
            await waiters(coord, name, 2)
            start_s = time.monotonic()
            await coord.delete(f"{name}/{session.lease_id:x}".encode())
            with pytest.raises(SessionLost, match="start again"):
                await asyncio.wait_for(waiting, PATIENCE_S)
            took_s.append(time.monotonic() - start_s)
        session.check()
