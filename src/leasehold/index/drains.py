"""Drain jobs: which segments are being emptied, and how far that is."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from msgspec import Struct
from msgspec.structs import replace

from leasehold.base.codes import TaskKind, TaskStatus
from leasehold.base.invariants import ensure
from leasehold.base.limits import drain_jobs_max
from leasehold.index.catalog import Catalog
from leasehold.index.coverage import Coverage
from leasehold.index.decisions import Handlers
from leasehold.index.log import Log
from leasehold.index.model import Segment, Task
from leasehold.index.records import DrainEnd, DrainStart, TaskDone
from leasehold.index.space.space import Space
from leasehold.index.tasks import TaskTable, task_id


class DrainStatus(IntEnum):
    """As in the C++ master."""

    CREATED = 0
    PLANNING = 1
    RUNNING = 2
    SUCCEEDED = 3
    FAILED = 4
    CANCELED = 5


class DrainJob(Struct, array_like=True, frozen=True):
    """Move every object away from these segments. Its counters are those of finished tasks."""

    id: bytes
    started_n: int
    segments: tuple[str, ...]
    targets: tuple[str, ...]  # empty: any other segment
    concurrency: int
    created_ms: int  # wall clock, for people
    status: int = DrainStatus.RUNNING
    message: str = ""
    moved: int = 0
    failed: int = 0
    moved_bytes: int = 0

    @property
    def running(self) -> bool:
        return self.status == DrainStatus.RUNNING


class Drains:
    """All drain jobs, and their records.

    A draining segment stays readable and takes no new objects. When its job has succeeded it stays so: it awaits its
    unmount. When the job is cancelled or fails, the segment takes new objects again. Segments are named by the job; a
    segment that is mounted later under such a name is not drained: its memory is empty.

    Invariant: a mounted segment is draining if and only if its mount is listed for a running or succeeded job.
    """

    __slots__ = ("_catalog", "_coverage", "_log", "_mounts", "_space", "_tasks", "jobs")

    def __init__(self, log: Log, coverage: Coverage, space: Space, catalog: Catalog, tasks: TaskTable) -> None:
        self._catalog = catalog
        self._log = log
        self._coverage = coverage
        self._space = space
        self._tasks = tasks
        self.jobs: dict[bytes, DrainJob] = {}
        self._mounts: dict[bytes, tuple[int, ...]] = {}  # by job: the incarnations of its segments

    def handlers(self) -> Handlers:
        """The function that applies each kind of record. The end of a task is counted here too."""
        task_done = self._tasks.handlers()[TaskDone]

        def done(n: int, record: TaskDone) -> None:
            task = self._tasks.all.get(record.task)
            if task is not None and not self._coverage.covers_keyless(n):
                self._task_done(task, record.status)
            task_done(n, record)

        return {DrainStart: self._start, DrainEnd: self._end, TaskDone: done}

    def _start(self, n: int, record: DrainStart) -> None:
        if self._coverage.covers_keyless(n):
            return
        if len(self.jobs) >= drain_jobs_max:  # here, so that every node forgets the same jobs (P6)
            finished = next((each for each, job in self.jobs.items() if not job.running), None)
            if finished is not None:
                del self.jobs[finished]
                self._space.set_draining(self._mounts.pop(finished, ()), False)
        job = task_id(self._log.epoch, n)
        named = [segment for name in record.segments for segment in self._space.segments.by_name.get(name)]
        self.jobs[job] = DrainJob(
            job, n, record.segments, record.targets, record.concurrency, record.created_ms, message="Drain job running"
        )
        self._mounts[job] = tuple(segment.incarnation for segment in named)
        self._space.set_draining(self._mounts[job], True)

    def _end(self, n: int, record: DrainEnd) -> None:
        job = self.jobs.get(record.job)
        if job is None or not job.running or self._coverage.covers_keyless(n):
            return
        self.jobs[job.id] = replace(job, status=record.status, message=record.message)
        if record.status != DrainStatus.SUCCEEDED:
            self._space.set_draining(self._mounts.pop(job.id, ()), False)

    def _task_done(self, task: Task, status: int) -> None:
        job = self.job_of(task)
        if job is not None and task.status < TaskStatus.FAILED:
            good = status == TaskStatus.SUCCESS
            entry = self._catalog.lookup(task.tenant, task.key) if good else None
            moved_bytes = job.moved_bytes + (entry.size if entry is not None else 0)
            self.jobs[job.id] = replace(
                job, moved=job.moved + good, failed=job.failed + (not good), moved_bytes=moved_bytes
            )

    def job_of(self, task: Task) -> DrainJob | None:
        """The running job that a task belongs to."""
        if task.kind != TaskKind.MOVE:
            return None
        return next((job for job in self.jobs.values() if job.running and task.source in job.segments), None)

    def is_emptied(self, segment: Segment) -> bool:
        """Whether a job has emptied this segment."""
        return any(segment.incarnation in self._mounts[job.id] for job in self.jobs.values() if self._has_emptied(job))

    def _has_emptied(self, job: DrainJob) -> bool:
        return job.status == DrainStatus.SUCCEEDED and job.id in self._mounts

    def mounts_of(self, job: DrainJob) -> tuple[int, ...]:
        """The incarnations of the segments that it empties."""
        return self._mounts.get(job.id, ())

    def saved(self) -> tuple[tuple[DrainJob, tuple[int, ...]], ...]:
        """For a snapshot: each job and the mounts that it drains."""
        return tuple((job, self._mounts.get(job.id, ())) for job in self.jobs.values())

    def load(self, saved: Iterable[tuple[DrainJob, tuple[int, ...]]]) -> None:
        """The jobs of a snapshot. Its segments were loaded before."""
        for job, mounts in saved:
            self.jobs[job.id] = job
            if mounts:
                self._mounts[job.id] = mounts
                self._space.set_draining(mounts, True)

    def check(self) -> None:
        """Raise `InvariantBroken` unless the invariant holds."""
        listed = {incarnation for mounts in self._mounts.values() for incarnation in mounts}
        for segment in self._space.segments.values():
            known = segment.draining == (segment.incarnation in listed)
            ensure(known, "draining segments have a job", segment.spec.name)
