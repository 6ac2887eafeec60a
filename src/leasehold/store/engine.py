"""One running store: the pure `Store` with a clock, a disk, and the callers that wait for it.

Calls come from any thread and any event loop, and change the store immediately, under one lock. A call is answered
only when its records are on disk (`settled`): all pending records are written with one `fdatasync` (group commit),
which advances the durable revision. Reads wait for it as well: an answer must not show state that a crash could undo.
Watchers receive nothing beyond it for the same reason.

The writer depends on the speed of the disk. If it is fast, the event loop of the first waiting caller writes, at the
end of its turn: a hand-over to a thread and back takes longer than such a write. If it is slow, the store's own thread
writes, the *keeper*, so that no loop is blocked for long. The keeper also expires leases, and renews those that this
process keeps alive.
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
from leasehold.store.group_commit import Group, OnSettled, Waiters, outcome_unknown, resolve
from leasehold.store.settings import StoreSettings
from leasehold.store.timers import Timers

# An idle store with leases logs the time this often. After a restart a lease may outlast its TTL by this much.
CLOCK_RECORD_INTERVAL_MS = 500
COMPACT_STEP_REVISIONS = 1_000
HISTORY_REVISIONS_MIN = 100  # kept even beyond `history_bytes`: watchers need time to receive them
# Below this average, event loops write to the disk themselves.
PROMPT_WRITE_S = 0.005
_FOREVER_MS = 1 << 62


class Log(Protocol):
    """Makes records durable. Called by one writer at a time, in order."""

    def prepare(self, engine: Engine) -> None:
        """The next group was taken, and the store has exactly its state. The lock is held: be quick."""
        ...

    def append(self, records: list[Record]) -> None: ...

    def abandon_in_child(self) -> None: ...

    def close(self) -> None: ...


class Engine:
    """Runs one store. Without a `log` it is in memory only, and everything counts as durable."""

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
        self._settled = 0  # groups on disk
        self._group = 0  # groups taken for writing
        self._writing = False  # a write is in progress
        self._write_s = 0.0  # average duration of a write
        self._waiters = Waiters()
        self._committing: set[asyncio.AbstractEventLoop] = set()  # loops that will write at the end of their turn
        self._woken: list[Callable[[], None]] = []
        self._afterwards: list[Callable[[], None]] = []
        self._wakeup = threading.Condition(self.lock)
        self._asleep_until_ms = 0
        self._clock_recorded_ms = 0
        self._keeper: threading.Thread | None = None
        self._failure: BaseException | None = None
        self.on_failed: Callable[[], object] = lambda: None  # called once, when the disk has failed
        self.closed = False
        forks.register(self)
        if log is not None or len(store.leases_open):
            self._start_keeper()

    # --- calls ---

    def now_ms(self) -> int:
        """The store's time. It continues from where the store was last closed."""
        return self.clock.now_ms() + self._offset_ms

    def execute(self, op: Op) -> OpResult:
        """Run one operation now. The answer may be sent once `settled()` returns, or if not `unsettled`."""
        with self.lock:
            self.enter()
            result = self.store.execute(op)
            if self._log is None:
                self._leave_memory()  # operations on keys add no timers: the keeper need not wake
            else:
                self.leave()
            return result

    def enter(self) -> int:
        """Begin a call; lock held. Rejects it if the store is closed, expires leases. Returns the store's time."""
        self.check_open()
        now_ms = self.clock.now_ms() + self._offset_ms
        expiry_ms = self.store.next_expiry_ms
        if expiry_ms is not None and expiry_ms <= now_ms:
            self.store.tick(now_ms)
        return now_ms

    def leave(self) -> None:
        """End a call that may have changed something; lock held. Notify watchers, or schedule the write."""
        if self._log is None:
            self._leave_memory()
        self._wake_keeper(self._pending and not self._prompt)

    def _leave_memory(self) -> None:
        self.durable_revision = self.store.revision
        self._compact()
        if self._woken:
            self._notify()

    def _wake_keeper(self, now: object = False) -> None:
        """Wake (or start) the keeper if it would sleep past its next task; lock held."""
        if self._keeper is None:
            if self.store.next_expiry_ms is not None or self.timers.next_ms() is not None:
                self._start_keeper()
        elif self._asleep_until_ms and (now or self._next_due_ms() < self._asleep_until_ms):
            self._asleep_until_ms = 0
            self._wakeup.notify()

    def schedule(self, when_ms: int, call: Callable[[int], None]) -> Callable[[], None]:
        """Have the keeper call at `when_ms` (store time, lock held). Returns a function that cancels it."""
        with self.lock:
            timer = self.timers.at(when_ms, call)
            self._wake_keeper()
        return timer.cancel

    def wake(self, notify: Callable[[], None]) -> None:
        """Call `notify` once the current changes are durable; for watchers, lock held."""
        self._woken.append(notify)

    def afterwards(self, call: Callable[[], None]) -> None:
        """Have the keeper make this call without the lock; for callbacks of timers, lock held."""
        self._afterwards.append(call)

    @property
    def in_memory(self) -> bool:
        """Whether there is no disk: then everything counts as durable immediately."""
        return self._log is None

    @property
    def unsettled(self) -> bool:
        """Whether state that a call may have seen is not on disk yet."""
        return self._log is not None and (bool(self._pending) or self._group > self._settled)

    def when_settled(self, notify: OnSettled) -> bool:
        """Call `notify`, in this event loop, when everything done so far is on disk. Returns False if it is already."""
        with self.lock:
            if not self.unsettled:
                return False
            if self._failure is not None:
                self.check_open()
            loop = asyncio.get_running_loop()
            self._waiters.add(loop, notify)
            if self._prompt and not self._writing and loop not in self._committing:
                self._committing.add(loop)
                loop.call_soon(self._commit_of, loop)
            return True

    async def settled(self, timeout_s: float | None = None) -> None:
        """Wait until everything done so far is on disk."""
        if not self.unsettled or (self._prompt and await self._settled_here()):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self.when_settled(partial(resolve, future)):
            return
        try:
            async with asyncio.timeout(timeout_s):  # not wait_for, which can lose a cancellation (Python 3.11)
                await future
        except TimeoutError:
            raise UnknownOutcome(f"the disk has not answered in {timeout_s:g} s: read before you repeat") from None

    async def _settled_here(self) -> bool:
        """Write at the end of this turn, unless another caller does. Returns False if the write takes longer.

        It needs no future and no timer, which took a tenth of the time of a single write.
        """
        with self.lock:
            group = self._group + bool(self._pending)  # once it is settled, everything so far is on disk
        try:
            await asyncio.sleep(0)  # ready tasks run first, and join the same group
        except BaseException:
            with self.lock:
                self._wake_keeper(now=True)  # the caller was cancelled, but its change must be written
            raise
        if self._settled < group:
            self._commit()
            if self._failure is not None:
                raise self._failure if isinstance(self._failure, LeaseholdError) else outcome_unknown(self._failure)
            # Otherwise a caller that writes in a loop would leave the others a single turn per sync.
            await asyncio.sleep(0)
        return self._settled >= group

    def check_open(self) -> None:
        """Raise if the store is closed, or its disk has failed."""
        if not self.closed and self._failure is None:
            return
        if isinstance(self._failure, LeaseholdError):
            raise self._failure
        if self._failure is not None:
            raise StoreFailed(
                f"the disk failed ({self._failure}): free space or repair it, and start the store again; the last "
                "write may or may not be on disk"
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
        """Sleep until there is something to write, a timer is due, or the store closes; releases the lock meanwhile."""
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
                due_ms = min(due_ms, self._clock_recorded_ms + CLOCK_RECORD_INTERVAL_MS)
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
        """Write the pending records, in the loop of callers that wait for them."""
        with self.lock:
            self._committing.discard(loop)
            wanted = bool(self._waiters)
        if wanted:
            self._commit()

    def _commit(self) -> None:
        """Write the pending records, unless a write is in progress."""
        with self.lock:
            if self._writing or self._failure is not None:
                return  # the current writer wakes the keeper for the rest
            group = self._take(self.now_ms())
        self._write(group)

    def _take(self, now_ms: int) -> Group:
        """Take the records to write next, from time to time with the clock first; lock held."""
        self._compact()
        if self._pending:
            self._group += 1  # before the records leave `_pending`: `unsettled` is read without the lock
        records = self._pending[:]
        self._pending.clear()
        if self._log is not None and now_ms >= self._clock_recorded_ms + CLOCK_RECORD_INTERVAL_MS:
            self._clock_recorded_ms = now_ms
            records.insert(0, Clocked(now_ms))
        if self._log is not None and records:
            self._log.prepare(self)
        self._writing = True
        waiters, self._waiters = self._waiters, Waiters()
        return Group(records, self.store.revision, waiters)

    def _write(self, group: Group) -> bool:
        """Make a group durable, then notify all waiters. Returns False if the disk failed. Without the lock."""
        begun = time.perf_counter()
        if group.records and self._log is not None:
            try:
                # Clock records are synced too: if later records were on disk without them, that would look like
                # damage in the middle of the log.
                self._log.append(group.records)
            except Exception as error:  # in any case the state in memory is not on disk
                self._fail(error, group.waiters)
                return False
        with self.lock:
            if group.records:
                self._write_s += (time.perf_counter() - begun - self._write_s) / 8
            self._writing = False
            self._settled = self._group
            self.durable_revision = group.revision if self._log is not None else self.store.revision
            self._notify()
            # A keeper that woke during the write went back to sleep without a wake-up time: wake it again.
            self._wake_keeper(self._waiters or self.closed)
        group.waiters.release(None)
        return True

    def _compact(self) -> None:
        """Keep the history within its limits, in small steps so that no caller waits long; lock held."""
        keys = self.store.keys
        past = keys.compact_revision
        if past < 1:
            past = 1
        crowded = keys.total_bytes - keys.live_bytes > self.settings.history_bytes
        spare = keys.revision - past - (HISTORY_REVISIONS_MIN if crowded else self.settings.history_revisions)
        if spare >= COMPACT_STEP_REVISIONS or (crowded and spare > 0):
            # Half of the excess, not a fixed number: a group may add more revisions than any fixed step.
            self.store.compact(past + min(spare, max(COMPACT_STEP_REVISIONS, spare // 2)))

    def _notify(self) -> None:
        woken, self._woken = self._woken, []
        for notify in woken:
            notify()

    def _fail(self, error: Exception, waiters: Waiters) -> None:
        with self.lock:
            self._failure = error
            self._writing = False
            later, self._waiters = self._waiters, Waiters()
            self._notify()
            self._wakeup.notify_all()
        unknown = outcome_unknown(error)
        waiters.release(unknown)
        later.release(unknown)
        self.on_failed()

    # --- closing ---

    def abandon_in_child(self, reason: LeaseholdError) -> None:
        """In a forked child: reject every call. The keeper and the files belong to the parent."""
        self.lock = threading.RLock()  # the old one may be held by a thread that does not exist here
        self._wakeup = threading.Condition(self.lock)
        self._failure = reason
        self.closed = True
        self._keeper = None
        if self._log is not None:
            self._log.abandon_in_child()

    def close(self) -> None:
        """Write pending records, stop the keeper, reject later calls. Blocks for one write at most."""
        with self.lock:
            if self.closed:
                return
            if self._log is not None and self._failure is None:
                self._pending.append(Clocked(self.now_ms()))
            self.closed = True
            self._notify()
            self._wakeup.notify_all()
        if self._keeper is not None and self._keeper is not threading.current_thread():
            self._keeper.join()
        if self._log is not None:
            self._log.close()
