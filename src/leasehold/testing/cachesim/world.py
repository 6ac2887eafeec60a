"""A world for the cache's machines: real time, clocks that tick apart, a lossy network, processes that pause or crash.

Real time is in microseconds and belongs to the simulation alone; a process sees only its own clock. Everything
is derived from one seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush

from leasehold.cache.model import ABSENT, Version
from leasehold.testing.cachesim.faults import Faults

US_PER_MS = 1_000


class World:
    """The queue of future actions, in order of real time."""

    def __init__(self, seed: int, faults: Faults) -> None:
        self.chance = random.Random(seed)
        self.faults = faults
        self.now_us = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, when_us: int, action: Callable[[], None]) -> None:
        self._number += 1
        heappush(self._queue, (when_us, self._number, action))

    def after_ms(self, delay_ms: float, action: Callable[[], None]) -> None:
        self.at(self.now_us + round(delay_ms * US_PER_MS), action)

    def run(self, until_ms: int) -> None:
        while self._queue and self._queue[0][0] <= until_ms * US_PER_MS:
            self.now_us, _, action = heappop(self._queue)
            action()

    def between_ms(self, span_ms: tuple[int, int]) -> float:
        return self.chance.uniform(*span_ms)

    def every_about_ms(self, mean_ms: float) -> float:
        return self.chance.expovariate(1 / mean_ms)

    def network_delay_ms(self) -> float | None:
        """How long a message takes; None if it is lost."""
        if self.chance.random() < self.faults.loss:
            return None
        if self.chance.random() < self.faults.long_delay:
            return self.between_ms(self.faults.long_delay_ms)
        return self.between_ms(self.faults.delay_ms)


class Process:
    """A process with its own clock that can be paused, continued and killed."""

    def __init__(self, world: World) -> None:
        self.world = world
        half = world.faults.drift_ppm / 2_000_000
        self._rate = world.chance.choice([1 - half, 1 + half, 1 + world.chance.uniform(-half, half)])
        self._offset_ms = world.chance.randrange(10**6)
        self._paused_until_us = 0
        self._wake_us = 0  # valid for the incarnation `_wake_born`
        self._wake_born = -1
        self.incarnation = 0

    def now_ms(self) -> int:
        return int(self.world.now_us * self._rate / US_PER_MS) + self._offset_ms

    def real_us(self, local_ms: int) -> int:
        """The real time at which this process's clock shows `local_ms`."""
        return int((local_ms - self._offset_ms) * US_PER_MS / self._rate) + 1

    def pause(self, duration_ms: float) -> None:
        self._paused_until_us = self.world.now_us + round(duration_ms * US_PER_MS)

    def run_at(self, when_us: int, action: Callable[[], None]) -> None:
        """Run `action` then, or when the process continues; never if the process was killed meanwhile."""
        born = self.incarnation

        def go() -> None:
            if self.incarnation != born:
                return
            if self.world.now_us < self._paused_until_us:
                self.world.at(self._paused_until_us, go)
            else:
                action()

        self.world.at(when_us, go)

    def reach(self, action: Callable[[], None]) -> None:
        """Run `action` now, or when the process continues."""
        if self.world.now_us < self._paused_until_us:
            self.run_at(self.world.now_us, action)
        else:
            action()

    def tick(self) -> None:
        """The time given to `wake_at` has come, or an earlier one."""
        raise NotImplementedError

    def wake_at(self, when_us: int) -> None:
        """Tick then. One alarm is set at a time: an earlier one stays, and sets the next when it rings."""
        when_us = max(self.world.now_us + 1, when_us)
        if self._wake_born == self.incarnation and self._wake_us <= when_us:
            return
        self._wake_us, self._wake_born = when_us, self.incarnation

        def ring() -> None:
            if self._wake_us == when_us:
                self._wake_born = -1
                self.tick()

        self.run_at(when_us, ring)

    def run_after_ms(self, delay_ms: float, action: Callable[[], None]) -> None:
        self.run_at(self.world.now_us + round(delay_ms * US_PER_MS), action)


class SimStore:
    """The store behind the authorities: durable and atomic, but its answers may be lost."""

    def __init__(self, world: World, *, checks_tokens: bool = True) -> None:
        self._world = world
        self._checks_tokens = checks_tokens
        self._values: dict[bytes, tuple[bytes | None, Version]] = {}
        self.written: dict[Version, bytes | None] = {}
        self.epoch = 0
        self.term_ms = 0

    def open(self, term_ms: int) -> tuple[int, int]:
        """Begin an epoch; returns it and the longest lease term of any epoch before."""
        before_ms, self.term_ms = self.term_ms, max(self.term_ms, term_ms)
        self.epoch += 1
        return self.epoch, before_ms

    def load(self, key: bytes) -> tuple[bytes | None, Version]:
        value, token = self._values.get(key, (None, ABSENT))
        return value, ABSENT if value is None else token

    def store(self, key: bytes, value: bytes | None, token: Version) -> bool:
        """Store unless the epoch or the token is outdated; returns whether it was stored."""
        current = self._values.get(key, (None, ABSENT))[1]
        if self._checks_tokens and (token.epoch < self.epoch or token < current):
            return False
        self._values[key] = (value, token)
        self.written[token] = value
        return True

    def store_unanswered(self, key: bytes, value: bytes | None, token: Version) -> None:
        """As `store`, for a caller that has given up waiting for the answer."""
        self.store(key, value, token)
