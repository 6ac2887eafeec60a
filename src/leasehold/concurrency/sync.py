"""The recipes for synchronous code: the same names, without `await`.

    with leasehold.sync.connect("etcd://127.0.0.1:2379") as store, Session.open(store) as session:
        with Mutex(session, "name") as held:
            held.check()

The core is written once, async: here each call runs on the loop of the store's portal and waits for its answer. A
thread cannot be interrupted from outside, so the body of a `with` learns of a lost session when it calls
`held.check()`, and at its end. Use `on_lost` to learn it immediately. Sessions that are still open when the
interpreter exits are closed.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import TracebackType
from typing import Self

from leasehold import concurrency as aio
from leasehold.base.errors import LeaseholdError, SessionLost
from leasehold.concurrency.deadline import SessionState
from leasehold.concurrency.election import Leader
from leasehold.concurrency.held import Held
from leasehold.concurrency.session import DEFAULT_TTL_S
from leasehold.concurrency.sync_stm import Stm as Stm  # exported: users import all of them from one module
from leasehold.concurrency.sync_stm import SyncStore as SyncStore
from leasehold.concurrency.sync_stm import stm as stm
from leasehold.mvcc.model import Compare
from leasehold.runtime.closing import Closing
from leasehold.runtime.portal import Portal

AT_EXIT_S_MAX = 1.0


_open_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


class Session(Closing):
    """A lease that is kept alive; `check()` and `state` are local. See `leasehold.concurrency.Session`."""

    def __init__(self, session: aio.Session, portal: Portal) -> None:
        self.core = session
        self.portal = portal
        _open_sessions.add(self)

    @classmethod
    def open(
        cls, store: SyncStore, *, ttl_s: int = DEFAULT_TTL_S, lease_id: int = 0, margin_ms: int | None = None
    ) -> Session:
        async def opening() -> aio.Session:
            return await aio.Session.open(store.coord, ttl_s=ttl_s, lease_id=lease_id, margin_ms=margin_ms)

        return cls(store.portal.obtain(aio.Session.close, opening), store.portal)

    @property
    def lease_id(self) -> int:
        return self.core.lease_id

    @property
    def ttl_s(self) -> int:
        return self.core.ttl_s

    @property
    def state(self) -> SessionState:
        return self.core.state

    def check(self) -> None:
        """Raise `SessionLost` unless the lease is certainly alive."""
        self.core.check()

    def wait_lost(self, timeout_s: float | None = None) -> SessionLost | None:
        """Wait until the session ends; returns the error that explains it, or None after `timeout_s`."""

        async def waiting() -> SessionLost | None:
            with suppress(TimeoutError):
                return await asyncio.wait_for(self.core.wait_lost(), timeout_s)
            return None

        return self.portal.call(waiting)

    def on_lost(self, callback: Callable[[SessionLost], None]) -> None:
        """Call `callback`, on the portal's thread, once the session is lost. It must not block."""

        async def subscribe() -> None:
            self.core.on_lost(callback)

        self.portal.call(subscribe)

    def orphan(self) -> None:
        """Stop renewing. The lease expires, or another process adopts it."""
        _open_sessions.discard(self)
        self.portal.call(self.core.orphan)

    def close(self, *, timeout_s: float | None = None) -> None:
        """Revoke the lease, which frees its locks immediately."""
        _open_sessions.discard(self)
        self.portal.call(self.core.close, timeout_s=timeout_s)


@atexit.register
def _close_open_sessions() -> None:
    """Free the locks of sessions that the program did not close, instead of waiting for their leases to expire."""
    for session in list(_open_sessions):
        with suppress(LeaseholdError, RuntimeError):
            session.close(timeout_s=AT_EXIT_S_MAX)


@contextmanager
def _hold_scope(session: Session, acquire: Callable[[], Held], release: Callable[[Held], None]) -> Iterator[Held]:
    held = acquire()
    try:
        yield held
        session.check()  # the body must learn that the lock may have been lost
    finally:
        if not held.released:
            with suppress(SessionLost):
                release(held)


class Mutex:
    """`with Mutex(session, "name") as held:`; the thread that holds may lock the same object again."""

    def __init__(self, session: Session, prefix: str | bytes) -> None:
        self._session = session
        self._core = aio.Mutex(session.core, prefix)
        self._entered: dict[int, list[AbstractContextManager[Held]]] = {}  # open `with` blocks by thread

    @property
    def key(self) -> bytes:
        return self._core.key

    def is_owner(self) -> Compare:
        return self._core.is_owner()

    def lock(self, *, timeout_s: float | None = None) -> Held:
        owner = threading.get_ident()
        return self._core.held_by(owner) or self._session.portal.obtain(
            self._give_back, self._core.lock, timeout_s=timeout_s, owner=owner
        )

    def try_lock(self) -> Held:
        owner = threading.get_ident()
        return self._core.held_by(owner) or self._session.portal.obtain(
            self._give_back, self._core.try_lock, owner=owner
        )

    async def _give_back(self, held: Held) -> None:
        if not held.released:
            await self._core.unlock()

    def unlock(self) -> None:
        self._session.portal.call(self._core.unlock)

    @contextmanager
    def hold(self, *, timeout_s: float | None = None) -> Iterator[Held]:
        """`with mutex.hold(timeout_s=5) as held`: the body runs only while the lock is held."""
        again = self._core.held_by(threading.get_ident())
        if again is not None:
            yield again
            return
        with _hold_scope(self._session, lambda: self.lock(timeout_s=timeout_s), lambda _: self.unlock()) as held:
            yield held

    def __enter__(self) -> Held:
        scope = self.hold()
        held = scope.__enter__()
        self._entered.setdefault(threading.get_ident(), []).append(scope)
        return held

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread = threading.get_ident()
        mine = self._entered[thread]
        scope = mine.pop()
        if not mine:
            del self._entered[thread]
        scope.__exit__(kind, error, trace)


class Election:
    """`campaign`, `proclaim`, `resign`, `leader`, `observe`; `with election.lead("me") as held:`."""

    def __init__(self, session: Session, prefix: str | bytes, *, core: aio.Election | None = None) -> None:
        self._session = session
        self._core = core or aio.Election(session.core, prefix)

    @classmethod
    def resume(cls, session: Session, prefix: str | bytes, key: str | bytes, revision: int) -> Self:
        return cls(session, prefix, core=aio.Election.resume(session.core, prefix, key, revision))

    @property
    def key(self) -> bytes:
        return self._core.key

    @property
    def rev(self) -> int:
        return self._core.rev

    def campaign(self, value: str | bytes, *, timeout_s: float | None = None) -> Held:
        led_before = self._core.rev

        async def give_back(held: Held) -> None:
            if held.token != led_before:
                await self._core.resign()

        return self._session.portal.obtain(give_back, self._core.campaign, value, timeout_s=timeout_s)

    @contextmanager
    def lead(self, value: str | bytes, *, timeout_s: float | None = None) -> Iterator[Held]:
        """Run the body while elected, then resign."""
        with _hold_scope(
            self._session, lambda: self.campaign(value, timeout_s=timeout_s), lambda _: self.resign()
        ) as held:
            yield held

    def proclaim(self, value: str | bytes) -> None:
        self._session.portal.call(self._core.proclaim, value)

    def resign(self) -> None:
        self._session.portal.call(self._core.resign)

    def leader(self, *, timeout_s: float | None = None) -> Leader:
        return self._session.portal.call(self._core.leader, timeout_s=timeout_s)

    def observe(self) -> Iterator[Leader]:
        """Every proclamation of every leader from now on, as a plain iterator."""
        return self._session.portal.iterate(self._core.observe())


class RWLock:
    """`with rwlock.read() as held:` and `with rwlock.write() as held:`."""

    def __init__(self, session: Session, prefix: str | bytes) -> None:
        self._session = session
        self._core = aio.RWLock(session.core, prefix)

    def rlock(self, *, timeout_s: float | None = None) -> Held:
        return self._session.portal.obtain(self._core.unlock, self._core.rlock, timeout_s=timeout_s)

    def lock(self, *, timeout_s: float | None = None) -> Held:
        return self._session.portal.obtain(self._core.unlock, self._core.lock, timeout_s=timeout_s)

    def unlock(self, held: Held) -> None:
        self._session.portal.call(self._core.unlock, held)

    @contextmanager
    def read(self, *, timeout_s: float | None = None) -> Iterator[Held]:
        with _hold_scope(self._session, lambda: self.rlock(timeout_s=timeout_s), self.unlock) as held:
            yield held

    @contextmanager
    def write(self, *, timeout_s: float | None = None) -> Iterator[Held]:
        with _hold_scope(self._session, lambda: self.lock(timeout_s=timeout_s), self.unlock) as held:
            yield held


class Semaphore:
    """`with semaphore.hold() as held:`."""

    def __init__(self, session: Session, prefix: str | bytes, permits: int) -> None:
        self._session = session
        self._core = aio.Semaphore(session.core, prefix, permits)

    def acquire(self, *, timeout_s: float | None = None) -> Held:
        return self._session.portal.obtain(self._core.release, self._core.acquire, timeout_s=timeout_s)

    def try_acquire(self) -> Held:
        return self._session.portal.obtain(self._core.release, self._core.try_acquire)

    def release(self, held: Held) -> None:
        self._session.portal.call(self._core.release, held)

    @contextmanager
    def hold(self, *, timeout_s: float | None = None) -> Iterator[Held]:
        with _hold_scope(self._session, lambda: self.acquire(timeout_s=timeout_s), self.release) as held:
            yield held


class Barrier:
    """`hold()` closes, `release()` opens, `wait()` waits until it is open."""

    def __init__(self, session: Session, key: str | bytes, *, leased: bool = False) -> None:
        self._session = session
        self._core = aio.Barrier(session.core, key, leased=leased)

    def hold(self) -> None:
        self._session.portal.call(self._core.hold)

    def release(self) -> None:
        self._session.portal.call(self._core.release)

    def wait(self, *, timeout_s: float | None = None) -> None:
        self._session.portal.call(self._core.wait, timeout_s=timeout_s)


class DoubleBarrier:
    """`enter()` returns when `count` clients have entered, `leave()` when all have left."""

    def __init__(self, session: Session, key: str | bytes, count: int) -> None:
        self._session = session
        self._core = aio.DoubleBarrier(session.core, key, count)

    def enter(self, *, timeout_s: float | None = None) -> None:
        self._session.portal.call(self._core.enter, timeout_s=timeout_s)

    def leave(self, *, timeout_s: float | None = None) -> None:
        self._session.portal.call(self._core.leave, timeout_s=timeout_s)


class Queue:
    """`enqueue` and `dequeue`, from any number of processes."""

    def __init__(self, store: SyncStore, prefix: str | bytes) -> None:
        self._portal = store.portal
        self._core = aio.Queue(store.coord, prefix)

    def enqueue(self, value: str | bytes) -> None:
        self._portal.call(self._core.enqueue, value)

    def dequeue(self, *, timeout_s: float | None = None) -> bytes:
        return self._portal.call(self._core.dequeue, timeout_s=timeout_s)


class PriorityQueue:
    """`enqueue(value, priority)`; `dequeue` takes the lowest priority number first."""

    def __init__(self, store: SyncStore, key: str | bytes) -> None:
        self._portal = store.portal
        self._core = aio.PriorityQueue(store.coord, key)

    def enqueue(self, value: str | bytes, priority: int) -> None:
        self._portal.call(self._core.enqueue, value, priority)

    def dequeue(self, *, timeout_s: float | None = None) -> bytes:
        return self._portal.call(self._core.dequeue, timeout_s=timeout_s)
