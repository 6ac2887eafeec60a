"""An operator who drains storage hosts, and the checks that a drained host is empty and stays so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.base.codes import Code
from leasehold.index.drains import DrainStatus
from leasehold.index.index import Index
from leasehold.index.model import CopyJob, Object
from leasehold.testing.sim.callers import Caller
from leasehold.testing.sim.calls import Answer
from leasehold.testing.sim.virtual_clock import Violation

if TYPE_CHECKING:
    from leasehold.testing.sim.world import World

_PAUSE_MS = 3_000


class DrainOperator(Caller):
    """Drains one host after the other, cancels some jobs, and looks at the progress of the others."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "drainer")
        self.started = 0
        self.succeeded = 0
        self.canceled = 0
        self._job = b""
        world.clock.after_ms(2_000, self._drain)

    def _drain(self) -> None:
        world = self.world
        if world.quiet:
            return
        host = world.clock.random.choice(world.hosts).spec.name

        def execute(index: Index, leader_ms: int) -> Answer:
            reply = index.draining.start(leader_ms, [host], [], 2, 0)
            wait_for = 0 if "early-drain" in world.bugs else reply.after
            return Answer((reply.code, reply.value), wait_for, about=reply.after)

        def then(value: tuple[Code, bytes] | None) -> None:
            if value is None or value[0] is not Code.OK:
                world.clock.after_ms(_PAUSE_MS, self._drain)
                return
            self.started += 1
            self._job = value[1]
            world.clock.after_ms(world.clock.random.uniform(300, 2_000), self._look)

        self.call("start_drain", execute, then)

    def _look(self) -> None:
        """Look at the job, and cancel it sometimes. After a job has succeeded, a host starts again."""
        world, job = self.world, self._job
        cancel = world.clock.random.random() < 0.3

        def execute(index: Index, leader_ms: int) -> Answer:
            reply = index.draining.query(leader_ms, job)
            if reply.value is None:
                if not self._may_be_lost(job):
                    raise Violation("drain", f"the acknowledged job {job.hex()} is unknown")
                return Answer(DrainStatus.CANCELED, reply.after)
            status = reply.value.job.status
            if cancel and status == DrainStatus.RUNNING:
                return Answer(DrainStatus.CANCELED, index.draining.cancel(leader_ms, job).after)
            if status == DrainStatus.SUCCEEDED:
                self._check_empty(index, job)
            return Answer(status, reply.after)

        def then(status: int | None) -> None:
            self.succeeded += status == DrainStatus.SUCCEEDED
            self.canceled += status == DrainStatus.CANCELED
            if status is None or status == DrainStatus.RUNNING:
                world.clock.after_ms(500, self._look)
            elif not world.quiet:
                if status == DrainStatus.SUCCEEDED:
                    world.restart_host(world.clock.random.randrange(len(world.hosts)))
                world.clock.after_ms(_PAUSE_MS, self._drain)

        self.call("look_at_drain", execute, then)

    def _may_be_lost(self, job: bytes) -> bool:
        """With `async`, a job may be acknowledged before its record is durable."""
        started_n = int.from_bytes(job[8:], "little")
        return self.world.plan.ha.durability == "async" and started_n not in self.world.oracle.truth.drains

    def _check_empty(self, index: Index, job: bytes) -> None:
        for incarnation in index.drains.mounts_of(index.drains.jobs[job]):
            segment = index.space.segments.get(incarnation)
            if segment is not None:
                held = [each for _, each in segment.allocator.used_blocks() if isinstance(each, Object | CopyJob)]
                if held:
                    raise Violation("drain", f"{segment.spec.name!r} was drained and has {held[0].key!r}")

    def final_check(self, index: Index, name: str) -> None:
        """Every node has the recorded jobs."""
        recorded = self.world.oracle.truth.drains
        known = {job.started_n: job.status for job in index.drains.jobs.values()}
        if known != recorded:
            raise Violation("drain", f"{name} has the drain jobs {known}, recorded are {recorded}")
