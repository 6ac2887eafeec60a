"""Runs one seed: first faults, then everything is healed and must converge."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field

from leasehold.base.errors import LeaseholdError
from leasehold.testing.sim.plan import plan_for
from leasehold.testing.sim.virtual_clock import Violation
from leasehold.testing.sim.world import World

CONVERGE_MS = 90_000
CONVERGE_EVENTS = 25_000
SETTLE_MS = 8_000


@dataclass
class Outcome:
    """The result of one seed."""

    seed: int
    broken: str = ""  # the promise, empty if all held
    sentence: str = ""
    events: int = 0
    virtual_ms: int = 0
    acknowledged: int = 0
    reads_checked: int = 0
    promotions: int = 0
    records: int = 0
    drains_started: int = 0
    drains_succeeded: int = 0
    drains_canceled: int = 0
    quota_changes: int = 0
    quota_refusals: int = 0
    quota_evictions: int = 0
    adopted_objects: int = 0
    adopted_bound: int = 0
    old_readers: int = 0
    old_writers: int = 0
    disk_stored: int = 0
    disk_reads: int = 0
    disk_notices_repeated: int = 0
    disk_relisted: int = 0
    disk_evicted: int = 0
    disk_promoted: int = 0
    disk_promotions_abandoned: int = 0
    event_reloads: int = 0
    event_resumes: int = 0
    event_overflows: int = 0
    lines: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.broken

    def story(self, lines: int = 60) -> str:
        """The log, for people."""
        head = f"seed {self.seed}: " + (
            f"{self.broken} broken: {self.sentence}" if self.broken else "all promises held"
        )
        return "\n".join([head, *self.lines[-lines:], f"  ==> {head}"] if self.broken else [head])


def run_seed(seed: int, *, events: int = 5_000, bugs: frozenset[str] = frozenset()) -> Outcome:
    """Run one seed. The same seed gives the same events."""
    outcome = Outcome(seed)
    world = World(seed, plan_for(seed), bugs)
    try:
        _chaos(world, events)
        _converge(world)
    except Violation as found:
        outcome.broken, outcome.sentence = found.promise, found.sentence
    except LeaseholdError as error:
        outcome.broken, outcome.sentence = "invariant", f"{type(error).__name__}: {error}"
        outcome.lines.extend(traceback.format_exc().splitlines()[-12:])
    outcome.lines = [*world.clock.lines, *outcome.lines]
    outcome.events = world.clock.events
    outcome.virtual_ms = world.clock.now_ms
    outcome.acknowledged = world.oracle.acknowledged
    outcome.reads_checked = world.oracle.reads_checked
    outcome.promotions = world.promotions
    outcome.records = world.oracle.truth.tail_n
    if world.drain_operator is not None:
        outcome.drains_started = world.drain_operator.started
        outcome.drains_succeeded = world.drain_operator.succeeded
        outcome.drains_canceled = world.drain_operator.canceled
    if world.quota_operator is not None:
        outcome.quota_changes = world.quota_operator.changes
        outcome.quota_refusals = world.quota_operator.refusals
        outcome.quota_evictions = world.quota_operator.evictions
    if world.old_pool is not None:
        outcome.adopted_objects = world.old_pool.objects
        outcome.adopted_bound = world.old_pool.bound()
        outcome.old_readers = world.old_pool.readers
        outcome.old_writers = world.old_pool.writers
    disks = world.disk_counts
    outcome.disk_stored, outcome.disk_reads, outcome.disk_relisted = disks.stored, disks.reads, disks.relisted
    outcome.disk_notices_repeated, outcome.disk_evicted = disks.replayed, disks.evicted
    outcome.disk_promoted, outcome.disk_promotions_abandoned = disks.promoted, disks.abandoned
    outcome.event_reloads = world.subscriber.follower.reloads
    outcome.event_resumes = world.subscriber.follower.resumes
    outcome.event_overflows = world.subscriber.overflows
    return outcome


def _chaos(world: World, events: int) -> None:
    clock, check = world.clock, world.check
    for _ in range(events):
        if not clock.step():
            return
        check()


def _converge(world: World) -> None:
    """Clients continue for a while in the healed world, then all nodes must agree."""
    world.heal()
    clock = world.clock
    settle_ms, limit_ms = clock.now_ms + SETTLE_MS, clock.now_ms + CONVERGE_MS
    missing = "nothing has happened yet"
    events_max = clock.events + CONVERGE_EVENTS
    while clock.now_ms < limit_ms and clock.events < events_max:
        clock.step()
        world.check()
        if clock.now_ms < settle_ms:
            continue
        world.quiet = True
        missing = world.converged()
        if not missing:
            world.final_check()
            return
    since_s = (clock.now_ms - settle_ms + SETTLE_MS) // 1000
    raise Violation("convergence", f"{since_s} s after everything was healed: {missing}")
