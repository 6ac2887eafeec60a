"""One seed of the cache's simulation, and its verdict."""

from __future__ import annotations

from msgspec import Struct

from leasehold.cache.model import Code
from leasehold.testing.cachesim.rules import Rules
from leasehold.testing.cachesim.simulation import Simulation
from leasehold.testing.cachesim.weather import Weather, weather_for
from leasehold.testing.cachesim.world import World
from leasehold.testing.checkers import Operation, by_key, check_register

RUN_MS = 2_000


class Finding(Struct, frozen=True):
    """What a seed showed: `bad` names the keys without an order, and where the search got stuck."""

    seed: int
    operations: int
    hits: int
    refills: int
    failed: dict[Code, int]
    bad: dict[bytes, tuple[Operation, ...]]

    def __bool__(self) -> bool:
        return not self.bad


def run_seed(seed: int, rules: Rules | None = None, *, run_ms: int = RUN_MS, weather: Weather | None = None) -> Finding:
    """Simulate, then look for an order for every key."""
    world = World(seed, weather or weather_for(seed))
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
