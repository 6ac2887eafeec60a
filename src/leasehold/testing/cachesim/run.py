"""One seed of the cache's simulation, and its verdict."""

from __future__ import annotations

from msgspec import Struct

from leasehold.cache.model import Code
from leasehold.testing.cachesim.faults import Faults, faults_for
from leasehold.testing.cachesim.rules import Rules
from leasehold.testing.cachesim.simulation import Simulation
from leasehold.testing.cachesim.world import World
from leasehold.testing.checkers import Operation, by_key, check_register

RUN_MS = 2_000


class Finding(Struct, frozen=True):
    """The result of a seed: `bad` names the keys without a linear order, and where the search failed."""

    seed: int
    operations: int
    hits: int
    refills: int
    failed: dict[Code, int]
    bad: dict[bytes, tuple[Operation, ...]]

    def __bool__(self) -> bool:
        return not self.bad


def run_seed(seed: int, rules: Rules | None = None, *, run_ms: int = RUN_MS, faults: Faults | None = None) -> Finding:
    """Simulate, then search a linear order for every key."""
    world = World(seed, faults or faults_for(seed))
    simulation = Simulation(world, rules or Rules())
    world.run(run_ms)
    history = simulation.finish()
    bad: dict[bytes, tuple[Operation, ...]] = {}
    for key, operations in by_key(history).items():
        verdict = check_register(operations)
        if not verdict:
            bad[key] = verdict.stuck
    hits = sum(operation.called == operation.returned for _, operation in history)
    return Finding(seed, len(history), hits, simulation.refills, simulation.failed, bad)
