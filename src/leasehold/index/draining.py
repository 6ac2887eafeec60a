"""Commands about drain jobs, and the work on them: one move after the other, by tasks for the storage clients."""

from __future__ import annotations

from collections.abc import Sequence

from leasehold.base.codes import Code
from leasehold.base.limits import drain_concurrency_max, drain_segments_max, drain_step_objects
from leasehold.index.catalog import Catalog
from leasehold.index.clock import LeaderClock
from leasehold.index.decisions import Decisions
from leasehold.index.drains import DrainJob, Drains, DrainStatus
from leasehold.index.features import Features
from leasehold.index.log import Log
from leasehold.index.model import CopyJob, Object, Segment
from leasehold.index.records import DrainEnd, DrainStart
from leasehold.index.replies import Acknowledged, Answered
from leasehold.index.space.space import Space
from leasehold.index.tables import Name
from leasehold.index.tasks import Tasks, TaskTable, task_id

_ATTEMPTS_MAX = 3  # moves of one object; then it counts as failed


class DrainProgress:
    """A job with its counters, for an operator."""

    __slots__ = ("active", "blocked", "job")

    def __init__(self, job: DrainJob, active: int, blocked: int) -> None:
        self.job, self.active, self.blocked = job, active, blocked


class Draining:
    """Drain jobs on the primary. Only the jobs themselves are recorded: a successor looks at the segments again.

    An object is moved by a task of its storage client. A failed move is repeated twice. A job succeeds when its
    segments have no object left, also none that is being written; it fails when only objects are left that cannot be
    moved.
    """

    __slots__ = (
        "_attempts", "_blocked", "_catalog", "_clock", "_cursors", "_decisions", "_drains", "_features", "_log",
        "_space", "_task_table", "_tasks",
    )  # fmt: skip

    def __init__(
        self,
        clock: LeaderClock,
        log: Log,
        features: Features,
        decisions: Decisions,
        space: Space,
        catalog: Catalog,
        tasks: Tasks,
        task_table: TaskTable,
        drains: Drains,
    ) -> None:
        self._clock = clock
        self._log = log
        self._features = features
        self._decisions = decisions
        self._space = space
        self._catalog = catalog
        self._tasks = tasks
        self._task_table = task_table
        self._drains = drains
        self._attempts: dict[tuple[bytes, int], int] = {}  # by job and put number: moves begun by this node
        self._blocked: dict[bytes, int] = {}  # by job: objects without a target, in the last round
        self._cursors: dict[int, int] = {}  # by incarnation: where the search continues

    # --- commands ---

    def start(
        self, now_ms: int, segments: Sequence[str], targets: Sequence[str], concurrency: int, created_ms: int
    ) -> Answered[bytes]:
        """Start to empty the named segments. The value is the 16-byte id of the job."""
        by_name, log = self._space.segments.by_name, self._log
        bad = not segments or len(set(segments)) < len(segments) or set(segments) & set(targets)
        if bad or not 0 < concurrency <= drain_concurrency_max or len(segments) + len(targets) > drain_segments_max:
            log.refuse("bad drain job")
            return Answered(Code.BAD_PARAMS, b"", 0)
        if any(not by_name.get(name) for name in (*segments, *targets)):
            return Answered(Code.SEGMENT_NOT_FOUND, b"", log.last_n)
        if any(not segment.placeable for name in (*segments, *targets) for segment in by_name.get(name)):
            return Answered(Code.NOT_NOW, b"", log.last_n)
        if not self._features.allow(DrainStart):
            log.refuse("the feature level is too low for drain jobs")
            return Answered(Code.NOT_NOW, b"", 0)
        if log.refuses_records():
            return Answered(Code.NO_SPACE, b"", 0)
        n = self._decisions.emit(DrainStart(now_ms, tuple(segments), tuple(targets), concurrency, created_ms))
        return Answered(Code.OK, task_id(log.epoch, n), n)

    def cancel(self, now_ms: int, job: bytes) -> Acknowledged:
        """Stop a job. Moves under way may still finish; nothing is moved back."""
        known = self._drains.jobs.get(job)
        if known is None:
            return Acknowledged(Code.JOB_NOT_FOUND, self._log.last_n)
        if not known.running:
            return Acknowledged(Code.NOT_NOW, self._log.last_n)
        return Acknowledged(Code.OK, self._end(now_ms, known, DrainStatus.CANCELED, "Drain job canceled"))

    def query(self, now_ms: int, job: bytes) -> Answered[DrainProgress | None]:
        """A job and its counters; None if there is none."""
        known = self._drains.jobs.get(job)
        if known is None:
            return Answered(Code.JOB_NOT_FOUND, None, self._log.last_n)
        active = len(self._open(known)) if known.running else 0
        blocked = self._blocked.get(job, 0) if known.running else 0
        return Answered(Code.OK, DrainProgress(known, active, blocked), self._log.last_n)

    def end_all(self, now_ms: int) -> None:
        """The feature level is about to be lowered: no job may be left, and no segment that a job has emptied."""
        for job in list(self._drains.jobs.values()):
            self._end(now_ms, job, DrainStatus.CANCELED, "The feature level was lowered")

    # --- work ---

    def work(self, now: int) -> None:
        """Start moves that are due, and end jobs that are done."""
        for job in [each for each in self._drains.jobs.values() if each.running]:
            if not self._log.journal_full:
                self._advance(now - self._clock.offset, job)

    def _open(self, job: DrainJob) -> set[Name]:
        """The objects that are being moved."""
        return {(task.tenant, task.key) for task in self._task_table.all_open() if self._drains.job_of(task) is job}

    def _advance(self, now_ms: int, job: DrainJob) -> None:
        segments = [
            segment for mount in self._drains.mounts_of(job) if (segment := self._space.segments.get(mount)) is not None
        ]
        moving = self._open(job)
        if not moving and not any(self._is_used(segment) for segment in segments):
            self._end(now_ms, job, DrainStatus.SUCCEEDED, "Drain job succeeded")
            return
        blocked = stuck = 0
        complete = True
        for segment in segments:
            if len(moving) >= job.concurrency:
                return
            objects, whole = self._next_objects(segment)
            complete &= whole
            for entry in objects:
                if len(moving) >= job.concurrency:
                    return
                outcome = self._move(now_ms, job, segment, entry, moving)
                blocked += outcome is None
                stuck += outcome is False
        self._blocked[job.id] = blocked
        if complete and stuck and not blocked and not moving:
            self._end(now_ms, job, DrainStatus.FAILED, f"{stuck} objects cannot be moved")

    def _is_used(self, segment: Segment) -> bool:
        """Whether an object or copy has space there. Space in quarantine does not count: no reader is sent there."""
        return any(isinstance(owner, Object | CopyJob) for _, owner in segment.allocator.used_blocks())

    def _next_objects(self, segment: Segment) -> tuple[list[Object], bool]:
        """Some finished objects of a segment, and whether these are all that there are."""
        start = self._cursors.get(segment.incarnation, 0)
        blocks = segment.allocator.used_from(start, drain_step_objects)
        owners = [owner for _, owner in blocks]
        whole = start == 0 and len(blocks) < drain_step_objects
        self._cursors[segment.incarnation] = blocks[-1][0] + 1 if len(blocks) == drain_step_objects else 0
        return [owner for owner in owners if isinstance(owner, Object)], whole

    def _move(self, now_ms: int, job: DrainJob, source: Segment, entry: Object, moving: set[Name]) -> bool | None:
        """Start a move, if the object can be moved now. None: there is no target; False: it failed too often."""
        name, unit = (entry.tenant, entry.key), (job.id, entry.put_seq)
        if name in moving or not entry.visible or self._catalog.is_busy(entry):
            return True
        if self._attempts.get(unit, 0) >= _ATTEMPTS_MAX:
            return False
        target = self._target(job, source, entry)
        if target is None:
            return None
        reply = self._tasks.create_move(now_ms, entry.tenant, entry.key, source.spec.name, target)
        if reply.code == Code.OK:
            self._attempts[unit] = self._attempts.get(unit, 0) + 1
            moving.add(name)
        return True

    def _target(self, job: DrainJob, source: Segment, entry: Object) -> str | None:
        """The segment with the most free bytes that has space for this object and no replica of it."""
        there = {replica.segment.spec.name for replica in entry.replicas}
        candidates = [
            segment
            for segment in self._space.segments.placeable[source.native]
            if segment.spec.name not in there
            and (not job.targets or segment.spec.name in job.targets)
            and segment.allocator.find(entry.size) >= 0
        ]
        best = max(candidates, key=lambda each: each.allocator.free_bytes, default=None)
        return None if best is None else best.spec.name

    def _end(self, now_ms: int, job: DrainJob, status: DrainStatus, message: str) -> int:
        self._blocked.pop(job.id, None)
        self._attempts = {unit: count for unit, count in self._attempts.items() if unit[0] != job.id}
        for mount in self._drains.mounts_of(job):
            self._cursors.pop(mount, None)
        return self._decisions.emit(DrainEnd(now_ms, job.id, status, message))
