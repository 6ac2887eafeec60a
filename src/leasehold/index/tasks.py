"""Tasks: copies and moves for storage clients to carry out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from leasehold.base.codes import Code, TaskKind, TaskStatus
from leasehold.base.invariants import ensure
from leasehold.base.limits import replicas_max, task_timeout_ms, tasks_fetched_max, tasks_max
from leasehold.index.clock import LeaderClock
from leasehold.index.coverage import Coverage
from leasehold.index.decisions import Decisions, Handlers
from leasehold.index.eviction import Eviction
from leasehold.index.log import Log
from leasehold.index.model import Object, Replica, Task
from leasehold.index.records import TaskCreate, TaskDone
from leasehold.index.replies import Acknowledged, Answered, View
from leasehold.index.space.space import Space


def task_id(epoch: int, n: int) -> bytes:
    """The id of a task is the epoch and number of the record that created it."""
    return epoch.to_bytes(8, "little") + n.to_bytes(8, "little")


class TaskTable:
    """All tasks, and their records.

    Invariant: `open` holds exactly the unfinished tasks, by the client that carries them out.
    """

    __slots__ = ("_coverage", "_log", "all", "open")

    def __init__(self, log: Log, coverage: Coverage) -> None:
        self._log = log
        self._coverage = coverage
        self.all: dict[bytes, Task] = {}
        self.open: dict[bytes, dict[bytes, Task]] = {}

    def handlers(self) -> Handlers:
        """The function that applies each kind of record."""
        return {TaskCreate: self._create, TaskDone: self._done}

    def _create(self, n: int, record: TaskCreate) -> None:
        if self._coverage.covers_keyless(n):
            return
        if len(self.all) >= tasks_max:  # here, so that every node forgets the same tasks (P6)
            self.all = {each: task for each, task in self.all.items() if task.status < TaskStatus.FAILED}
        self.add(Task(
            task_id(self._log.epoch, n), record.kind, record.tenant, record.key, record.source, record.targets,
            record.client, record.created_ms, record.created_ms, TaskStatus.PENDING, "",
        ))  # fmt: skip

    def _done(self, n: int, record: TaskDone) -> None:
        task = self.all.get(record.task)
        if task is None or self._coverage.covers_keyless(n):
            return
        task.status, task.message, task.updated_ms = record.status, record.message, record.at_ms
        still_open = self.open.get(task.client, {})
        still_open.pop(task.id, None)
        if not still_open:
            self.open.pop(task.client, None)

    def add(self, task: Task) -> None:
        """Add a new task, or one from a snapshot."""
        self.all[task.id] = task
        if task.status < TaskStatus.FAILED:
            self.open.setdefault(task.client, {})[task.id] = task

    def fetch(self, now_ms: int, client: bytes, limit: int) -> list[Task]:
        """Pending tasks of a client; they count as being carried out from now on."""
        waiting = (task for task in self.open.get(client, {}).values() if task.status == TaskStatus.PENDING)
        found = list(islice(waiting, max(0, min(limit, tasks_fetched_max))))
        for task in found:
            task.status = TaskStatus.PROCESSING
            task.updated_ms = now_ms
        return found

    def all_open(self) -> list[Task]:
        """Every unfinished task."""
        return [task for tasks in self.open.values() for task in tasks.values()]

    def check(self) -> None:
        """Raise `InvariantBroken` unless the invariant holds."""
        unfinished = {task.id for task in self.all.values() if task.status < TaskStatus.FAILED}
        ensure(unfinished == {task.id for task in self.all_open()}, "unfinished tasks are open")


class Tasks:
    """Commands about tasks."""

    __slots__ = ("_clock", "_decisions", "_eviction", "_log", "_space", "_table")

    def __init__(
        self, clock: LeaderClock, log: Log, decisions: Decisions, space: Space, eviction: Eviction, table: TaskTable
    ) -> None:
        self._clock = clock
        self._log = log
        self._decisions = decisions
        self._space = space
        self._eviction = eviction
        self._table = table

    def create_copy(self, now_ms: int, tenant: bytes, key: bytes, targets: Sequence[str]) -> Answered[bytes]:
        """Create a task to copy an object to the named segments. The value is the 16-byte task id."""
        return self._create(now_ms, TaskKind.COPY, tenant, key, "", targets)

    def create_move(self, now_ms: int, tenant: bytes, key: bytes, source: str, target: str) -> Answered[bytes]:
        """Create a task to move an object from one segment to another. The value is the 16-byte task id."""
        return self._create(now_ms, TaskKind.MOVE, tenant, key, source, (target,))

    def _create(
        self, now_ms: int, kind: TaskKind, tenant: bytes, key: bytes, source: str, targets: Sequence[str]
    ) -> Answered[bytes]:
        log = self._log
        if len(targets) > replicas_max:
            log.refuse("bad task")
            return Answered(Code.BAD_PARAMS, b"", 0)
        entry = self._eviction.lookup_live(now_ms + self._clock.offset, tenant, key)
        if entry is None or not entry.visible:
            return Answered(Code.NOT_FOUND, b"", log.after_absent(tenant, key))
        origin = _origin(entry, source)
        unknown = any(not self._space.segments.by_name.get(name) for name in targets)
        if origin is None or not targets or unknown or (kind is TaskKind.MOVE and source in targets):
            log.refuse("bad task")
            return Answered(Code.BAD_PARAMS, b"", log.range_n)
        if log.refuses_records():
            return Answered(Code.NO_SPACE, b"", 0)
        if sum(map(len, self._table.open.values())) >= tasks_max:
            log.refuse("too many tasks")
            return Answered(Code.INTERNAL, b"", 0)
        name = origin.segment.spec.name
        record = TaskCreate(now_ms, kind, tenant, key, name, tuple(targets), origin.segment.client, now_ms)
        n = self._decisions.emit(record)
        return Answered(Code.OK, task_id(log.epoch, n), n)

    def fetch(self, now_ms: int, client: bytes, limit: int) -> View[list[Task]]:
        """Tasks of this client that were not fetched yet."""
        if not self._table.open.get(client):
            return View([], 0)
        return View(self._table.fetch(now_ms, client, limit), self._log.last_n)

    def finish(self, now_ms: int, client: bytes, task: bytes, status: int, message: str) -> Acknowledged:
        """A client reports the outcome of its task."""
        log, known = self._log, self._table.all.get(task)
        if known is None:
            return Acknowledged(Code.TASK_NOT_FOUND, log.last_n)
        if known.client != client:
            log.refuse("another client's task")
            return Acknowledged(Code.ILLEGAL_CLIENT, log.last_n)
        if status not in (TaskStatus.FAILED, TaskStatus.SUCCESS):
            log.refuse("bad task status")
            return Acknowledged(Code.BAD_PARAMS, 0)
        return Acknowledged(Code.OK, self._decisions.emit(TaskDone(now_ms, task, status, message[:1024])))

    def query(self, task: bytes) -> Answered[Task | None]:
        """The task of this id; None if there is none."""
        known = self._table.all.get(task)
        return Answered(Code.OK if known is not None else Code.TASK_NOT_FOUND, known, self._log.last_n)

    def end_stale(self, now: int) -> None:
        """Fail tasks that were not fetched, or not finished, in time. Else those of dead clients would stay forever.

        Times of an older epoch cannot be compared: the time of such a task starts with this epoch.
        """
        log, clock = self._log, self._clock
        ours = log.epoch.to_bytes(8, "little")
        for task in self._table.all_open():
            since = task.updated_ms + clock.offset if task.id.startswith(ours) else clock.epoch_start
            if now - since > task_timeout_ms:
                what = "fetched" if task.status == TaskStatus.PENDING else "done"
                self._decisions.emit(TaskDone(now - clock.offset, task.id, TaskStatus.FAILED, f"not {what} in time"))


def _origin(entry: Object, source: str) -> Replica | None:
    return next((r for r in entry.replicas if not source or r.segment.spec.name == source), None)
