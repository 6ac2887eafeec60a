"""One running store: the pure `Store` with a clock, a disk, and everybody who waits for it.

Calls come from any thread and any event loop, and change the store at once, under one lock. What they saw or did
is answered only when it is on the disk (`settled`): all records that have come together are written with one
`fdatasync` (group commit), which moves the durable mark on. Reads wait for the mark as well: an answer must not show
what a crash could still undo. Watchers are told nothing beyond it for the same reason.

Who writes depends on the disk. While it is prompt, the event loop of the first that waits does, at the end of its
turn: handing the group to a thread and back takes longer than such a write. While it is slow, a thread of the store
does, the *keeper*, so that no loop stands still for long. The keeper also ends leases when their time has come, and
renews those that somebody in this process keeps alive.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from leasehold.base.clock import Clock
from leasehold.base.errors import LeaseholdError, UnknownOutcome
from leasehold.mvcc.model import Op, OpResult
from leasehold.mvcc.records import Clocked, Record
from leasehold.mvcc.store import Store
from leasehold.store import forks
from leasehold.store.errors import StoreClosed, StoreFailed
from leasehold.store.group_commit import Group, Tell, Waiters, in_doubt, resolve
from leasehold.store.settings import StoreSettings
from leasehold.store.timers import Timers

# A quiet store with leases still tells its log the time: so much longer than their term may leases live on after a
# restart, at most.
CLOCK_MARK_INTERVAL_MS = 500
COMPACT_STEP_REVISIONS = 1_000
HISTORY_REVISIONS_MIN = 100  # kept even when they are too large: watchers must have the time to be told
# A disk that takes less than this on average is written by event loops themselves.
PROMPT_WRITE_S = 0.005
_FOREVER_MS = 1 << 62


class Log(Protocol):
    """Where records become durable. Called by the keeper only, in order."""

    def prepare(self, engine: Engine) -> None:
        """The next group has been taken: the store is exactly as it is after that. Lock held: be quick."""
        ...

    def append(self, records: list[Record]) -> None: ...

    def forsake(self) -> None: ...

    def close(self) -> None: ...


class Engine:
    """Runs one store. `log` None is a store in memory only: everything is durable at once."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: StoreSettings,
        *,
        log: Log | None = None,
        pending: list[Record] | None = None,
        clock_offset_ms: int = 0,
    ) -> None:
        self.store = store
        self.clock = clock
        self.settings = settings
        self.lock = threading.RLock()
        self.timers = Timers()
        self.durable_revision = store.revision
        self._offset_ms = clock_offset_ms
        self._log = log
        self._pending: list[Record] = pending if pending is not None else []
        self._settled = 0  # groups on the disk
        self._group = 0  # groups that were taken to be written
        self._writing = False  # one is under way
        self._write_s = 0.0  # how long they take, on average
        self._waiters = Waiters()
        self._committing: set[asyncio.AbstractEventLoop] = set()  # loops that will write at the end of their turn
        self._woken: list[Callable[[], None]] = []
        self._afterwards: list[Callable[[], None]] = []
        self._wakeup = threading.Condition(self.lock)
        self._asleep_until_ms = 0
        self._marked_ms = 0
        self._keeper: threading.Thread | None = None
        self._failure: BaseException | None = None
        self.on_failed: Callable[[], object] = lambda: None  # called once, by the keeper's thread, when the disk failed
        self.closed = False
        forks.watch_over(self)
        if log is not None or len(store.leases_open):
            self._start_keeper()

    # --- calls ---

    def now_ms(self) -> int:
        """The store's time: it goes on where it stood when the store was last open."""
        return self.clock.now_ms() + self._offset_ms

    def execute(self, op: Op) -> OpResult:
        """Do one operation now. The answer may leave once `settled()`, or not `unsettled`."""
        with self.lock:
            self.enter()
            result = self.store.execute(op)
            if self._log is None:
                self._leave_memory()  # operations on keys set no times: the keeper need not look again
            else:
                self.leave()
            return result

    def enter(self) -> int:
        """Begin a call, lock held: refuse it if the store is closed, end leases that are due. The store's time."""
        self.check_open()
        now_ms = self.clock.now_ms() + self._offset_ms
        expiry_ms = self.store.next_expiry_ms
        if expiry_ms is not None and expiry_ms <= now_ms:
            self.store.tick(now_ms)
        return now_ms

    def leave(self) -> None:
        """End a call that may have changed something, lock held: tell the watchers, or have it written."""
        if self._log is None:
            self._leave_memory()
        self._rouse(self._pending and not self._prompt)

    def _leave_memory(self) -> None:
        self.durable_revision = self.store.revision
        self._compact()
        if self._woken:
            self._tell()

    def _rouse(self, now: object = False) -> None:
        """Wake the keeper (start it, if need be) if it sleeps beyond what it has to do next; lock held."""
        if self._keeper is None:
            if self.store.next_expiry_ms is not None or self.timers.next_ms() is not None:
                self._start_keeper()
        elif self._asleep_until_ms and (now or self._next_due_ms() < self._asleep_until_ms):
            self._asleep_until_ms = 0
            self._wakeup.notify()

    def schedule(self, when_ms: int, call: Callable[[int], None]) -> Callable[[], None]:
        """Have the keeper call at `when_ms` (store time, lock held); returns how to take it back."""
        with self.lock:
            timer = self.timers.at(when_ms, call)
            self._rouse()
        return timer.cancel

    def wake(self, tell: Callable[[], None]) -> None:
        """`tell` as soon as what has just been done is durable; for watchers, lock held."""
        self._woken.append(tell)

    def afterwards(self, call: Callable[[], None]) -> None:
        """Have the keeper make this call without the lock; for what timers have to tell others, lock held."""
        self._afterwards.append(call)

    @property
    def in_memory(self) -> bool:
        """Whether there is no disk, so that everything is durable (as far as it ever will be) at once."""
        return self._log is None

    @property
    def unsettled(self) -> bool:
        """Whether something that a call may have seen is not on the disk yet."""
        return self._log is not None and (bool(self._pending) or self._group > self._settled)

    def when_settled(self, tell: Tell) -> bool:
        """Have `tell` called, in this event loop, when everything done so far is on the disk; False if it is."""
        with self.lock:
            if not self.unsettled:
                return False
            if self._failure is not None:
                self.check_open()
            loop = asyncio.get_running_loop()
            self._waiters.add(loop, tell)
            if self._prompt and not self._writing and loop not in self._committing:
                self._committing.add(loop)
                loop.call_soon(self._commit_of, loop)
            return True

    async def settled(self, timeout_s: float | None = None) -> None:
        """Wait until everything done so far is on the disk."""
        if not self.unsettled or (self._prompt and await self._settled_here()):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self.when_settled(partial(resolve, future)):
            return
        try:
            await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            raise UnknownOutcome(f"the disk has not answered in {timeout_s:g} s: read before you repeat") from None

    async def _settled_here(self) -> bool:
        """Write at the end of this turn, unless somebody else does; False if that takes longer.

        No future and no timer are made: of a single write's time that was a tenth.
        """
        with self.lock:
            group = self._group + bool(self._pending)  # by when all of it is on the disk
        try:
            await asyncio.sleep(0)  # all that is ready has its turn, and is in the same group
        except BaseException:
            with self.lock:
                self._rouse(now=True)  # who waited is gone; what was done is not
            raise
        if self._settled < group:
            self._commit()
            if self._failure is not None:
                raise self._failure if isinstance(self._failure, LeaseholdError) else in_doubt(self._failure)
            # Else one who writes again and again would leave the others of its loop a single turn for every sync.
            await asyncio.sleep(0)
        return self._settled >= group

    def check_open(self) -> None:
        """Refuse to go on with a store that is closed, or whose disk has failed."""
        if not self.closed and self._failure is None:
            return
        if isinstance(self._failure, LeaseholdError):
            raise self._failure
        if self._failure is not None:
            raise StoreFailed(
                f"the disk failed ({self._failure}): make room or mend it, and start the store again; what was being "
                "written may or may not be there"
            )
        raise StoreClosed("the store is closed: connect again")

    # --- the keeper ---

    def _start_keeper(self) -> None:
        self._keeper = threading.Thread(target=self._keep, name="leasehold-store-keeper", daemon=True)
        self._keeper.start()

    def _keep(self) -> None:
        while True:
            with self.lock:
                self._sleep()
                if self._failure is not None or (self.closed and not self._pending):
                    return
                now_ms = self.now_ms()
                self._run_timers(now_ms)
                group = self._take(now_ms)
            if not self._write(group):
                return
            with self.lock:
                afterwards, self._afterwards = self._afterwards, []
            for call in afterwards:
                call()

    def _sleep(self) -> None:
        """Until there is something to write, to time, or to end; lock held, given up meanwhile."""
        while self._writing or not (self._pending or self._waiters or self.closed or self._failure):
            now_ms = self.now_ms()
            due_ms = _FOREVER_MS if self._writing else self._next_due_ms()
            if due_ms <= now_ms:
                return
            self._asleep_until_ms = due_ms
            self._wakeup.wait(min((due_ms - now_ms) / 1000, 3600.0))
            self._asleep_until_ms = 0

    def _next_due_ms(self) -> int:
        due_ms = _FOREVER_MS
        expiry_ms = self.store.next_expiry_ms
        if expiry_ms is not None:
            due_ms = expiry_ms
            if self._log is not None:
                due_ms = min(due_ms, self._marked_ms + CLOCK_MARK_INTERVAL_MS)
        timer_ms = self.timers.next_ms()
        return due_ms if timer_ms is None else min(due_ms, timer_ms)

    def _run_timers(self, now_ms: int) -> None:
        self.timers.run(now_ms)
        expiry_ms = self.store.next_expiry_ms
        if expiry_ms is not None and expiry_ms <= now_ms:
            self.store.tick(now_ms)

    # --- group commit ---

    @property
    def _prompt(self) -> bool:
        return self._write_s < PROMPT_WRITE_S

    def _commit_of(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write what has come together, in the loop of some that wait for it."""
        with self.lock:
            self._committing.discard(loop)
            wanted = bool(self._waiters)
        if wanted:
            self._commit()

    def _commit(self) -> None:
        """Write what has come together, if nobody does."""
        with self.lock:
            if self._writing or self._failure is not None:
                return  # whoever writes now rouses the keeper for the rest
            group = self._take(self.now_ms())
        self._write(group)

    def _take(self, now_ms: int) -> Group:
        """The records to write next, the time in front of them now and then; lock held."""
        self._compact()
        if self._pending:
            self._group += 1  # before the records leave `_pending`: `unsettled` is asked without the lock
        records = self._pending[:]
        self._pending.clear()
        if self._log is not None and now_ms >= self._marked_ms + CLOCK_MARK_INTERVAL_MS:
            self._marked_ms = now_ms
            records.insert(0, Clocked(now_ms))
        if self._log is not None and records:
            self._log.prepare(self)
        self._writing = True
        waiters, self._waiters = self._waiters, Waiters()
        return Group(records, self.store.revision, waiters)

    def _write(self, group: Group) -> bool:
        """Make a group durable, then tell everybody; False when the disk failed. Without the lock."""
        begun = time.perf_counter()
        if group.records and self._log is not None:
            try:
                # Always synced, marks of the time too: were some of what follows on the disk and they not, it would
                # look like damage in the middle.
                self._log.append(group.records)
            except Exception as error:  # whatever it is: what is in memory is not on the disk
                self._fail(error, group.waiters)
                return False
        with self.lock:
            if group.records:
                self._write_s += (time.perf_counter() - begun - self._write_s) / 8
            self._writing = False
            self._settled = self._group
            self.durable_revision = group.revision if self._log is not None else self.store.revision
            self._tell()
            # Whoever was roused during the write went back to sleep without a time to wake: it has to look again.
            self._rouse(self._waiters or self.closed)
        group.waiters.release(None)
        return True

    def _compact(self) -> None:
        """Keep the history within its bounds, in small steps so that nobody waits long; lock held."""
        keys = self.store.keys
        past = keys.compact_revision
        if past < 1:
            past = 1
        crowded = keys.total_bytes - keys.live_bytes > self.settings.history_bytes
        spare = keys.revision - past - (HISTORY_REVISIONS_MIN if crowded else self.settings.history_revisions)
        if spare >= COMPACT_STEP_REVISIONS or (crowded and spare > 0):
            # A part of what is too much, not a fixed number: groups may be larger than any fixed step.
            self.store.compact(past + min(spare, max(COMPACT_STEP_REVISIONS, spare // 2)))

    def _tell(self) -> None:
        woken, self._woken = self._woken, []
        for tell in woken:
            tell()

    def _fail(self, error: Exception, waiters: Waiters) -> None:
        with self.lock:
            self._failure = error
            self._writing = False
            later, self._waiters = self._waiters, Waiters()
            self._tell()
            self._wakeup.notify_all()
        unknown = in_doubt(error)
        waiters.release(unknown)
        later.release(unknown)
        self.on_failed()

    # --- the end ---

    def forsake(self, reason: LeaseholdError) -> None:
        """In a forked child: everything is refused. The keeper and the files are the parent's."""
        self.lock = threading.RLock()  # the old one may be held by a thread that does not exist here
        self._wakeup = threading.Condition(self.lock)
        self._failure = reason
        self.closed = True
        self._keeper = None
        if self._log is not None:
            self._log.forsake()

    def close(self) -> None:
        """Write what is left, stop the keeper; later calls are refused. Blocks for one write at most."""
        with self.lock:
            if self.closed:
                return
            if self._log is not None and self._failure is None:
                self._pending.append(Clocked(self.now_ms()))
            self.closed = True
            self._tell()
            self._wakeup.notify_all()
        if self._keeper is not None and self._keeper is not threading.current_thread():
            self._keeper.join()
        if self._log is not None:
            self._log.close()
