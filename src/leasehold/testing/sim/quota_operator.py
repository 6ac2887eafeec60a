"""An operator who changes the quota of the tenant, and the check that no put exceeds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.base.codes import Code
from leasehold.index.index import Index
from leasehold.index.model import CopyJob, Object
from leasehold.testing.sim.callers import TENANT, Caller
from leasehold.testing.sim.calls import Answer
from leasehold.testing.sim.plan import BLOCK
from leasehold.testing.sim.virtual_clock import Violation

if TYPE_CHECKING:
    from leasehold.testing.sim.world import World

_PAUSE_MS = 1_500


class QuotaOperator(Caller):
    """Sets another quota from time to time, from tight to larger than the pool."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "operator")
        self.changes = 0  # acknowledged
        self.refusals = 0  # puts
        self.evictions = 0  # objects that had to leave for a put of their own tenant
        world.clock.after_ms(500, self._change)

    def _change(self) -> None:
        world = self.world
        if world.quiet:
            return
        pool = world.plan.hosts * world.plan.segment_blocks * BLOCK
        wanted = world.clock.random.choice((4 * BLOCK, 8 * BLOCK, pool // 2, 2 * pool))

        def execute(index: Index, leader_ms: int) -> Answer:
            reply = index.tenants.set_quota(leader_ms, TENANT, wanted)
            wait_for = 0 if "early-quota" in world.bugs else reply.after
            return Answer(reply.code, wait_for, about=reply.after)

        def then(code: Code | None) -> None:
            self.changes += code is Code.OK
            world.clock.after_ms(world.clock.random.uniform(100, _PAUSE_MS), self._change)

        self.call("set_quota", execute, then)

    def refused(self, code: Code) -> None:
        """A put was answered with an error."""
        self.refusals += code in (Code.TENANT_QUOTA_EXCEEDED, Code.TENANT_NOT_REGISTERED)

    def check_put(self, index: Index, evicted_before: int) -> None:
        """A put was given space: the tenant is within its quota, by a count of its own."""
        self.evictions += index.eviction.evicted_count - evicted_before
        catalog, quotas = index.catalog, index.quotas
        holders: list[Object | CopyJob] = [*catalog.objects(), *catalog.pending.values(), *catalog.copies.values()]
        used = sum(holder.size * len(holder.replicas) for holder in holders)
        allowed = quotas.effective(index.space.total_bytes).get(TENANT, 0)
        if used > allowed:
            raise Violation("quota", f"a put was given space: {used} bytes are used, {allowed} are allowed")

    def check_recorded(self, index: Index, name: str) -> None:
        """A node that has applied the tail has the recorded quotas."""
        recorded = self.world.oracle.truth.quotas
        if index.quotas.policies != recorded:
            raise Violation("quota", f"{name} has the quotas {index.quotas.policies}, recorded are {recorded}")
