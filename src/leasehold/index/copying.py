"""Copies and moves of objects between segments, and the tasks that ask storage clients for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from leasehold.base.codes import Code, TaskKind, TaskStatus
from leasehold.base.limits import replicas_max, task_timeout_ms, tasks_fetched_max, tasks_max
from leasehold.index.copy_records import task_id
from leasehold.index.lending import Lending
from leasehold.index.model import CopyJob, Object, Replica, Task
from leasehold.index.records import CopyEnd, CopyRevoke, CopyStart, TaskCreate, TaskDone

Started = tuple[Code, tuple[Replica, list[Replica]] | None, int]


class Copying(Lending):
    """Deciding about copies, moves and tasks. One copy or move of an object at a time."""

    def copy_start(
        self, now_ms: int, client: bytes, tenant: bytes, key: bytes, source: str, targets: Sequence[str]
    ) -> Started:
        """Space for copies on the named segments: (source replica, new replicas)."""
        return self._start_copy(now_ms, client, tenant, key, source, targets, move=False)

    def move_start(
        self, now_ms: int, client: bytes, tenant: bytes, key: bytes, source: str, target: str
    ) -> tuple[Code, tuple[Replica, Replica | None] | None, int]:
        """Space for one copy; when it is complete the source replica goes."""
        code, found, after = self._start_copy(now_ms, client, tenant, key, source, (target,), move=True)
        return code, (found[0], found[1][0] if found[1] else None) if found is not None else None, after

    def copy_end(self, now_ms: int, client: bytes, tenant: bytes, key: bytes) -> tuple[Code, int]:
        """The copies are written: readers see them from here on."""
        return self._end_copy(now_ms, client, tenant, key, move=False)

    def move_end(self, now_ms: int, client: bytes, tenant: bytes, key: bytes) -> tuple[Code, int]:
        """The copy is written: readers see it from here on; the moved replica rests until its leases end."""
        return self._end_copy(now_ms, client, tenant, key, move=True)

    def copy_revoke(self, now_ms: int, client: bytes, tenant: bytes, key: bytes) -> tuple[Code, int]:
        """Give unfinished copies back."""
        code, job, after = self._job_of(client, tenant, key, move=False)
        return (code, after) if job is None else (Code.OK, self._revoke_copy(now_ms, job))

    def move_revoke(self, now_ms: int, client: bytes, tenant: bytes, key: bytes) -> tuple[Code, int]:
        """Give an unfinished move back."""
        code, job, after = self._job_of(client, tenant, key, move=True)
        return (code, after) if job is None else (Code.OK, self._revoke_copy(now_ms, job))

    def _end_copy(self, now_ms: int, client: bytes, tenant: bytes, key: bytes, *, move: bool) -> tuple[Code, int]:
        code, job, after = self._job_of(client, tenant, key, move=move)
        if job is None:
            return code, after
        entry = self.lookup(tenant, key)
        left_ms = self.lease_end_of(entry) - (now_ms + self.offset) if entry is not None and job.moves else 0
        return Code.OK, self._emit(CopyEnd(now_ms, tenant, key, job.put_seq, job.started_n, max(0, left_ms)))

    def _start_copy(
        self,
        now_ms: int,
        client: bytes,
        tenant: bytes,
        key: bytes,
        source: str,
        targets: Sequence[str],
        *,
        move: bool,
    ) -> Started:
        # Of more than so many a replica's id could not tell; and to move something to where it is, is nonsense.
        if len(targets) > replicas_max or (move and source in targets):
            self.refuse("bad copy")
            return Code.BAD_PARAMS, None, 0
        if any(not self.segments_by_name(name) for name in targets):
            return Code.SEGMENT_NOT_FOUND, None, self.last_n
        entry = self._still_there(now_ms + self.offset, tenant, key)
        if entry is None:
            return Code.NOT_FOUND, None, self._after_absent(tenant, key)
        if (tenant, key) in self.copies:
            return Code.COPY_UNDER_WAY, None, self._after_busy(entry)
        if not entry.visible or self._busy(entry):
            return Code.NOT_READY, None, self._after_busy(entry)
        named = [r for r in entry.replicas if not source or r.segment.spec.name == source]
        if not named:
            return Code.NO_REPLICA_THERE, None, entry.changed_n
        origin = next((r for r in named if r.segment.proven), None)  # nor is anybody sent to copy what may be gone (H9)
        if origin is None:
            return Code.NOT_READY, None, entry.changed_n
        there = {replica.segment.spec.name for replica in entry.replicas}
        wanted = [name for name in dict.fromkeys(targets) if name not in there]
        if not targets or (move and not wanted):
            self.refuse("bad copy")
            return Code.BAD_PARAMS, None, entry.changed_n
        native = origin.segment.native
        named_homes = [segment for name in wanted for segment in self.segments_by_name(name)]
        homes = [segment for segment in named_homes if segment.placeable and segment.native == native]
        extents = self._places_on(homes, entry.size, len(wanted))
        if len(extents) < len(wanted):
            return Code.NO_SPACE, None, 0
        if self.refuses_records():
            return Code.NO_SPACE, None, 0
        moves = origin.id if move else 0
        n = self._emit(CopyStart(now_ms, client, tenant, key, entry.put_seq, extents, origin.id, moves, entry.size))
        return Code.OK, (origin, list(self.copies[(tenant, key)].replicas)), n

    def _job_of(self, client: bytes, tenant: bytes, key: bytes, *, move: bool) -> tuple[Code, CopyJob | None, int]:
        job = self.copies.get((tenant, key))
        if job is None:
            there = self.lookup(tenant, key) is not None
            return (Code.NO_COPY_UNDER_WAY if there else Code.NOT_FOUND), None, self.last_n
        if job.client != client:
            self.refuse("another client's copy")
            return Code.ILLEGAL_CLIENT, None, job.started_n
        if bool(job.moves) != move:  # the end of a copy must not end the replica that a move would
            self.refuse("a copy's end for a move, or a move's for a copy")
            return Code.BAD_PARAMS, None, job.started_n
        return Code.OK, job, job.started_n

    def _revoke_copy(self, now_ms: int, job: CopyJob) -> int:
        left_ms = max(0, self._writer_gives_up(job) - (now_ms + self.offset))
        return self._emit(CopyRevoke(now_ms, job.tenant, job.key, job.put_seq, job.started_n, left_ms))

    def _end_stale_copies(self, now: int) -> None:
        for job in list(self.copies.values()):
            if self._writer_gives_up(job) <= now:
                self._revoke_copy(now - self.offset, job)

    # --- tasks ---

    def create_copy_task(
        self, now_ms: int, tenant: bytes, key: bytes, targets: Sequence[str]
    ) -> tuple[Code, bytes, int]:
        """(code, 16-byte task id, after)."""
        return self._create_task(now_ms, TaskKind.COPY, tenant, key, "", targets)

    def create_move_task(
        self, now_ms: int, tenant: bytes, key: bytes, source: str, target: str
    ) -> tuple[Code, bytes, int]:
        """(code, 16-byte task id, after)."""
        return self._create_task(now_ms, TaskKind.MOVE, tenant, key, source, (target,))

    def _create_task(
        self, now_ms: int, kind: TaskKind, tenant: bytes, key: bytes, source: str, targets: Sequence[str]
    ) -> tuple[Code, bytes, int]:
        if len(targets) > replicas_max:
            self.refuse("bad task")
            return Code.BAD_PARAMS, b"", 0
        entry = self._still_there(now_ms + self.offset, tenant, key)
        if entry is None or not entry.visible:
            return Code.NOT_FOUND, b"", self._after_absent(tenant, key)
        origin = self._origin(entry, source)
        unknown = any(not self.segments_by_name(name) for name in targets)
        if origin is None or not targets or unknown or (kind is TaskKind.MOVE and source in targets):
            self.refuse("bad task")
            return Code.BAD_PARAMS, b"", self.range_n
        if self.refuses_records():
            return Code.NO_SPACE, b"", 0
        if sum(map(len, self.open_tasks.values())) >= tasks_max:
            self.refuse("too many tasks")
            return Code.INTERNAL, b"", 0
        name = origin.segment.spec.name
        record = TaskCreate(now_ms, kind, tenant, key, name, tuple(targets), origin.segment.client, now_ms)
        n = self._emit(record)
        return Code.OK, task_id(self.epoch, n), n

    @staticmethod
    def _origin(entry: Object, source: str) -> Replica | None:
        return next((r for r in entry.replicas if not source or r.segment.spec.name == source), None)

    def _end_stale_tasks(self, now: int) -> None:
        """Tasks that nobody has fetched, or finished, in time: else those of clients that are gone would stay for ever.

        A time of an older epoch says nothing here: such a task's time begins with this epoch.
        """
        ours = self.epoch.to_bytes(8, "little")
        for task in [task for tasks in self.open_tasks.values() for task in tasks.values()]:
            since = task.updated_ms + self.offset if task.id.startswith(ours) else self.epoch_start
            if now - since > task_timeout_ms:
                what = "fetched" if task.status == TaskStatus.PENDING else "done"
                record = TaskDone(now - self.offset, task.id, TaskStatus.FAILED, f"not {what} in time")
                self._emit(record)

    def fetch_tasks(self, now_ms: int, client: bytes, limit: int) -> tuple[list[Task], int]:
        """Tasks for this client that nobody has fetched yet, and the `after`."""
        mine = self.open_tasks.get(client)
        if not mine:
            return [], 0
        waiting = (task for task in mine.values() if task.status == TaskStatus.PENDING)
        found = list(islice(waiting, max(0, min(limit, tasks_fetched_max))))
        for task in found:
            task.status = TaskStatus.PROCESSING
            task.updated_ms = now_ms
        return found, self.last_n

    def finish_task(self, now_ms: int, client: bytes, task: bytes, status: int, message: str) -> tuple[Code, int]:
        """A client tells how a task of its own ended."""
        known = self.tasks.get(task)
        if known is None:
            return Code.TASK_NOT_FOUND, self.last_n
        if known.client != client:
            self.refuse("another client's task")
            return Code.ILLEGAL_CLIENT, self.last_n
        if status not in (TaskStatus.FAILED, TaskStatus.SUCCESS):
            self.refuse("bad task status")
            return Code.BAD_PARAMS, 0
        return Code.OK, self._emit(TaskDone(now_ms, task, status, message[:1024]))

    def query_task(self, task: bytes) -> tuple[Code, Task | None, int]:
        """(code, the task, after)."""
        known = self.tasks.get(task)
        return (Code.OK if known is not None else Code.TASK_NOT_FOUND), known, self.last_n
