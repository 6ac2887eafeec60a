"""The recipes for synchronous code, from threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tests.concurrency.helpers import PATIENCE_S

import leasehold.sync
from leasehold.concurrency import Locked, NoLeader, SessionLost, SessionState, WaitTimeout
from leasehold.concurrency.sync import (
    Barrier,
    DoubleBarrier,
    Election,
    Mutex,
    PriorityQueue,
    Queue,
    RWLock,
    Semaphore,
    Session,
    Stm,
    stm,
)
from leasehold.mvcc.model import prefix_end
from leasehold.runtime.portal import Portal, PortalClosed
from leasehold.sync import SyncCoord


@pytest.fixture
def store(url: str) -> Iterator[SyncCoord]:
    with leasehold.sync.connect(url) as client:
        yield client


@pytest.fixture
def memory_store() -> Iterator[SyncCoord]:
    with leasehold.sync.connect("memory://") as client:
        yield client


def test_threads_exclude_each_other(store: SyncCoord, name: str) -> None:
    counter = 0

    def work(session: Session) -> None:
        nonlocal counter
        for _ in range(5):
            with Mutex(session, name) as held:
                held.check()
                before = counter
                time.sleep(0.001)
                counter = before + 1

    with Session.open(store) as s1, Session.open(store) as s2:
        threads = [threading.Thread(target=work, args=(session,)) for session in (s1, s1, s2, s2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counter == 20


def test_one_thread_may_lock_again_another_may_not(store: SyncCoord, name: str) -> None:
    with Session.open(store) as session:
        mutex = Mutex(session, name)
        refused: list[bool] = []

        def other() -> None:
            try:
                mutex.try_lock()
            except Locked:
                refused.append(True)

        with mutex as outer:
            with mutex.hold() as inner:
                assert inner.token == outer.token
            outer.check()
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        assert refused == [True]
        assert not store.txn([outer.is_owner()], []).succeeded


def test_a_body_is_never_entered_without_the_lock(store: SyncCoord, name: str) -> None:
    with (
        Session.open(store) as s1,
        Session.open(store) as s2,
        Mutex(s1, name),
        pytest.raises(WaitTimeout),
        Mutex(s2, name).hold(timeout_s=0.1),
    ):
        raise AssertionError("entered")


def test_a_lost_session_is_reported(store: SyncCoord, name: str) -> None:
    session = Session.open(store, ttl_s=2)
    lost = threading.Event()
    session.on_lost(lambda _: lost.set())

    def body() -> None:
        with Mutex(session, name):
            store.lease_revoke(session.lease_id)
            assert lost.wait(PATIENCE_S)

    with pytest.raises(SessionLost):
        body()
    assert session.state is SessionState.LOST
    assert session.wait_lost(PATIENCE_S) is not None


def test_election(store: SyncCoord, name: str) -> None:
    with Session.open(store) as session:
        election = Election(session, name)
        with pytest.raises(NoLeader):
            election.leader()
        with election.lead("me") as held:
            assert election.rev == held.token
            observing = election.observe()
            assert next(observing).value == b"me"
            election.proclaim("again")
            assert next(observing).value == b"again"
            assert Election.resume(session, name, election.key, election.rev).leader().value == b"again"
        with pytest.raises(NoLeader):
            election.leader()


def test_recipes(store: SyncCoord, name: str) -> None:
    with Session.open(store) as session:
        lock = RWLock(session, f"{name}.rw")
        with lock.read(), lock.read():
            pass
        with lock.write() as held:
            held.check()
        with Semaphore(session, f"{name}.s", 1).hold(), pytest.raises(Locked):
            Semaphore(session, f"{name}.s", 1).try_acquire()
        barrier = Barrier(session, f"{name}.b")
        barrier.hold()
        with pytest.raises(WaitTimeout):
            barrier.wait(timeout_s=0.05)
        barrier.release()
        barrier.wait(timeout_s=PATIENCE_S)
        double = DoubleBarrier(session, f"{name}.d", 1)
        double.enter(timeout_s=PATIENCE_S)
        double.leave(timeout_s=PATIENCE_S)
    queue, priority = Queue(store, f"{name}.q"), PriorityQueue(store, f"{name}.p")
    queue.enqueue("a")
    assert queue.dequeue(timeout_s=PATIENCE_S) == b"a"
    priority.enqueue("late", 2)
    priority.enqueue("early", 1)
    assert [priority.dequeue(timeout_s=PATIENCE_S) for _ in range(2)] == [b"early", b"late"]


def test_stm(store: SyncCoord, name: str) -> None:
    def add_one(tx: Stm) -> int:
        value = int(tx.get(f"{name}/n") or b"0") + 1
        tx.put(f"{name}/n", str(value))
        assert tx.get_prefix(f"{name}/") == {f"{name}/n".encode(): str(value).encode()}
        return value

    def work() -> None:
        for _ in range(3):
            stm(store, add_one)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stm(store, add_one).value == 10


def test_a_transaction_is_applied_in_the_thread_of_its_caller(store: SyncCoord, name: str) -> None:
    """So that it may lock again what its caller holds; and so that however many nest, none waits for a thread."""
    with Session.open(store) as session, Mutex(session, name) as held:
        mutex = Mutex(session, name + "/inner")

        def outer(tx: Stm) -> int:
            with mutex:
                stm(store, lambda inner: inner.put(name + "/deep", "1"))
            tx.put(name + "/value", "2")
            return threading.get_ident()

        with mutex:
            assert stm(store, outer).value == threading.get_ident()
        held.check()


def test_a_transaction_that_exits_its_program_ends_no_other(store: SyncCoord, name: str) -> None:
    def leave(tx: Stm) -> None:
        tx.put(name, "never")
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        stm(store, leave)
    assert store.get_one(name.encode()) is None


@pytest.mark.parametrize("recipe", ["mutex", "try_lock", "election", "rwlock", "semaphore", "session"])
def test_a_lock_acquired_during_an_interrupt_is_released(
    memory_store: SyncCoord, name: str, recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C when the lock was just acquired and not yet returned: it must not stay locked."""
    store, wait_for_result = memory_store, concurrent.futures.Future.result

    def interrupted(future: concurrent.futures.Future[object], timeout: float | None = None) -> object:
        wait_for_result(future, timeout)
        monkeypatch.undo()
        raise KeyboardInterrupt

    with Session.open(store) as session:
        takes: dict[str, Callable[[], object]] = {
            "mutex": Mutex(session, name).lock,
            "try_lock": Mutex(session, name).try_lock,
            "election": lambda: Election(session, name).campaign("me"),
            "rwlock": RWLock(session, name).lock,
            "semaphore": Semaphore(session, name, 1).acquire,
            "session": lambda: Session.open(store),
        }
        leases = store.leases().leases
        monkeypatch.setattr(concurrent.futures.Future, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            takes[recipe]()
        prefix = name.encode() + b"/"
        deadline_s = time.monotonic() + PATIENCE_S
        while store.get(prefix, prefix_end(prefix)).kvs or set(store.leases().leases) - set(leases):
            assert time.monotonic() < deadline_s, "left behind"
            time.sleep(0.01)


def test_a_portal_that_is_closed_meanwhile_leaves_no_caller_waiting() -> None:
    for _ in range(20):
        portal = Portal()
        ended: list[bool] = []

        def wait(portal: Portal = portal, ended: list[bool] = ended) -> None:
            with pytest.raises((PortalClosed, concurrent.futures.CancelledError)):
                portal.call(asyncio.sleep, 3600)
            ended.append(True)

        threads = [threading.Thread(target=wait, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        portal.close()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert len(ended) == 4
