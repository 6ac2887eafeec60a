"""The original's tests of the recipes, under their own names."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.concurrency.helpers import PATIENCE_S, keys_under, still_waiting, waiters

from leasehold.concurrency import (
    Barrier,
    DoubleBarrier,
    KeyExists,
    Locked,
    PriorityQueue,
    Queue,
    RWLock,
    Semaphore,
    Session,
    TooManyClients,
)
from leasehold.coord.api import Coord
from leasehold.coord.connect import connect
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.waiting import until

# --- the lock for readers and writers ---


async def rw_lock(clients: list[Coord], name: str) -> None:
    """Readers and writers at random order: a writer is alone, readers may be several."""
    readers = writers = most_readers = 0

    async def read(client: Coord) -> None:
        nonlocal readers, most_readers
        async with Session.open(client) as session, RWLock(session, name).read():
            readers += 1
            most_readers = max(most_readers, readers)
            assert writers == 0
            await asyncio.sleep(0.005)
            readers -= 1

    async def write(client: Coord) -> None:
        nonlocal writers
        async with Session.open(client) as session, RWLock(session, name).write():
            writers += 1
            assert (readers, writers) == (0, 1)
            await asyncio.sleep(0.002)
            writers -= 1

    jobs = [(write if number % 3 == 0 else read)(client) for number, client in enumerate(clients * 3)]
    await asyncio.gather(*jobs)
    assert most_readers >= 1
    assert await keys_under(clients[0], name) == []


async def test_rw_mutex_single_node(coord: Coord, name: str) -> None:
    """TestRWMutexSingleNode"""
    await rw_lock([coord] * 3, name)


async def test_rw_mutex_multi_node(etcd3: EtcdCluster, name: str) -> None:
    """TestRWMutexMultiNode"""
    clients = [await connect(f"etcd://{endpoint}") for endpoint in etcd3.endpoints]
    await rw_lock(clients, name)
    for client in clients:
        await client.close()


async def test_rw_lock_is_fair(coord: Coord, name: str) -> None:
    """A writer does not starve: a later reader waits, although another reader is inside."""
    async with Session.open(coord) as session:
        lock = RWLock(session, name)
        first = await lock.rlock()
        beside = await lock.rlock()
        writer = asyncio.create_task(lock.lock())
        await waiters(coord, name, 3)
        late = asyncio.create_task(lock.rlock())
        await waiters(coord, name, 4)
        assert await still_waiting(late, for_s=0.05)
        await lock.unlock(first)
        assert await still_waiting(writer, for_s=0.05)
        await lock.unlock(beside)
        held = await asyncio.wait_for(writer, PATIENCE_S)
        assert not late.done()
        await lock.unlock(held)
        await lock.unlock(await asyncio.wait_for(late, PATIENCE_S))


# --- the semaphore ---


async def test_semaphore(coord: Coord, name: str) -> None:
    inside = most = 0

    async def worker() -> None:
        nonlocal inside, most
        async with Session.open(coord) as session, Semaphore(session, name, 3).hold() as held:
            inside += 1
            most = max(most, inside)
            held.check()
            await until(lambda: most >= 3)  # three are inside together, and never more
            inside -= 1

    await asyncio.gather(*(worker() for _ in range(10)))
    assert most == 3
    assert await keys_under(coord, name) == []


async def test_semaphore_try_acquire(coord: Coord, name: str) -> None:
    async with Session.open(coord) as session:
        semaphore = Semaphore(session, name, 2)
        first, _second = await semaphore.try_acquire(), await semaphore.try_acquire()
        with pytest.raises(Locked):
            await semaphore.try_acquire()
        assert len(await keys_under(coord, name)) == 2
        await semaphore.release(first)
        await semaphore.try_acquire()


async def test_semaphore_is_fair(coord: Coord, name: str) -> None:
    order: list[int] = []

    async def worker(number: int) -> None:
        async with Session.open(coord) as session, Semaphore(session, name, 1).hold():
            order.append(number)

    async with Session.open(coord) as session:
        semaphore = Semaphore(session, name, 1)
        held = await semaphore.acquire()
        tasks = []
        for number in range(4):
            tasks.append(asyncio.create_task(worker(number)))
            await waiters(coord, name, number + 2)
        await semaphore.release(held)
        await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3]


# --- barriers ---


async def barrier(clients: list[Coord], name: str) -> None:
    async with Session.open(clients[0]) as session:
        closed = Barrier(session, name)
        await closed.hold()
        with pytest.raises(KeyExists):
            await closed.hold()
        passed = 0

        async def waiter(client: Coord) -> None:
            nonlocal passed
            async with Session.open(client) as own:
                await Barrier(own, name).wait()
                passed += 1

        waiting = [asyncio.create_task(waiter(client)) for client in clients]
        assert await still_waiting(waiting[0])
        assert passed == 0
        await closed.release()
        await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_S)
        assert passed == len(clients)


async def test_barrier_single_node(coord: Coord, name: str) -> None:
    """TestBarrierSingleNode"""
    await barrier([coord] * 5, name)


async def test_barrier_multi_node(etcd3: EtcdCluster, name: str) -> None:
    """TestBarrierMultiNode"""
    clients = [await connect(f"etcd://{endpoint}") for endpoint in etcd3.endpoints]
    await barrier(clients, name)
    for client in clients:
        await client.close()


async def test_barrier_wait_nonexistent_key(coord: Coord, name: str) -> None:
    """TestBarrierWaitNonexistentKey: an open barrier delays no client, nor does one with a longer name."""
    async with Session.open(coord) as session:
        await Barrier(session, name + "0").hold()
        await asyncio.wait_for(Barrier(session, name).wait(), PATIENCE_S)


async def test_leased_barrier_opens_when_its_holder_dies(coord: Coord, name: str) -> None:
    holder = await Session.open(coord)
    await Barrier(holder, name, leased=True).hold()
    async with Session.open(coord) as session:
        waiting = asyncio.create_task(Barrier(session, name).wait())
        assert await still_waiting(waiting, for_s=0.05)
        await holder.close()
        await asyncio.wait_for(waiting, PATIENCE_S)


async def test_double_barrier(coord: Coord, name: str) -> None:
    """TestDoubleBarrier: no client is in before all are, and none is out before all leave."""
    count = 5
    entered: list[int] = []
    left: list[int] = []

    async def member(number: int, may_leave: asyncio.Event) -> None:
        async with Session.open(coord) as session:
            double = DoubleBarrier(session, name, count)
            await double.enter()
            entered.append(number)
            await may_leave.wait()
            await double.leave()
            left.append(number)

    go, last = asyncio.Event(), asyncio.Event()
    tasks = [asyncio.create_task(member(number, go)) for number in range(count - 1)]
    await waiters(coord, name, count - 1)
    assert await still_waiting(tasks[0], for_s=0.05)
    assert entered == []
    tasks.append(asyncio.create_task(member(count - 1, last)))
    await until(lambda: len(entered) == count)
    go.set()
    assert await still_waiting(tasks[0], for_s=0.05)
    assert left == []
    last.set()
    await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)
    assert sorted(left) == list(range(count))
    assert await keys_under(coord, name) == []


async def test_double_barrier_too_many_clients(coord: Coord, name: str) -> None:
    """TestDoubleBarrierTooManyClients: a client that comes when it is full gets an error."""
    count = 4
    sessions = [await Session.open(coord) for _ in range(count + 1)]
    members = [DoubleBarrier(session, name, count) for session in sessions]
    await asyncio.wait_for(asyncio.gather(*(member.enter() for member in members[:count])), PATIENCE_S)
    with pytest.raises(TooManyClients):
        await members[count].enter()
    await asyncio.wait_for(asyncio.gather(*(member.leave() for member in members[:count])), PATIENCE_S)
    for session in sessions:
        await session.close()


async def test_double_barrier_failover(coord: Coord, name: str) -> None:
    """TestDoubleBarrierFailover: a member that dies inside does not keep the others from leaving."""
    count = 4
    sessions = [await Session.open(coord) for _ in range(count)]
    members = [DoubleBarrier(session, name, count) for session in sessions]
    await asyncio.wait_for(asyncio.gather(*(member.enter() for member in members)), PATIENCE_S)
    leaving = [asyncio.create_task(member.leave()) for member in members[1:]]
    assert await still_waiting(leaving[0], for_s=0.05)
    await sessions[0].close()
    await asyncio.wait_for(asyncio.gather(*leaving), PATIENCE_S)
    for session in sessions[1:]:
        await session.close()


# --- queues ---


async def queue(coord: Coord, name: str, readers: int, writers: int, *, each: int = 6) -> list[bytes]:
    """`writers` put `each` items, `readers` take them all; returns the items in the order of taking."""
    taken: list[bytes] = []

    async def write(number: int) -> None:
        own = Queue(coord, name)
        for item in range(each):
            await own.enqueue(f"{number}-{item}")

    async def read() -> None:
        own = Queue(coord, name)
        for _ in range(writers * each // readers):
            item = await own.dequeue(timeout_s=PATIENCE_S)
            taken.append(item)

    await asyncio.gather(*(read() for _ in range(readers)), *map(write, range(writers)))
    assert Counter(taken) == Counter(f"{number}-{item}".encode() for number in range(writers) for item in range(each))
    return taken


async def test_queue_one_reader_one_writer(coord: Coord, name: str) -> None:
    """TestQueueOneReaderOneWriter: in order."""
    assert await queue(coord, name, 1, 1) == [f"0-{item}".encode() for item in range(6)]


async def test_queue_many_reader_one_writer(coord: Coord, name: str) -> None:
    """TestQueueManyReaderOneWriter"""
    await queue(coord, name, 3, 1)


async def test_queue_one_reader_many_writers(coord: Coord, name: str) -> None:
    """TestQueueOneReaderManyWriter: in order for each writer."""
    taken = await queue(coord, name, 1, 4)
    for number in range(4):
        mine = [item for item in taken if item.startswith(f"{number}-".encode())]
        assert mine == sorted(mine)


async def test_queue_many_reader_many_writer(coord: Coord, name: str) -> None:
    """TestQueueManyReaderManyWriter"""
    await queue(coord, name, 4, 4)


async def test_pr_queue_one_reader_one_writer(coord: Coord, name: str) -> None:
    """TestPrQueueOneReaderOneWriter: the lowest priority number first, and in order within it."""
    queue = PriorityQueue(coord, name)
    for number in range(5):
        await queue.enqueue(f"low-{number}", 9)
        await queue.enqueue(f"high-{number}", 1)
    taken = [await queue.dequeue(timeout_s=PATIENCE_S) for _ in range(10)]
    assert taken == [f"{kind}-{number}".encode() for kind in ("high", "low") for number in range(5)]


async def test_pr_queue_many_reader_many_writer(coord: Coord, name: str) -> None:
    """TestPrQueueManyReaderManyWriter"""
    taken: list[bytes] = []

    async def write(number: int) -> None:
        for item in range(4):
            await PriorityQueue(coord, name).enqueue(f"{number}-{item}", item)

    async def read() -> None:
        for _ in range(4):
            item = await PriorityQueue(coord, name).dequeue(timeout_s=PATIENCE_S)
            taken.append(item)

    await asyncio.gather(*(read() for _ in range(4)), *map(write, range(4)))
    assert Counter(taken) == Counter(f"{number}-{item}".encode() for number in range(4) for item in range(4))
