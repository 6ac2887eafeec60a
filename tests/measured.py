"""Limits on real time that tolerate a busy machine: it may disturb one attempt, a regression shows in every attempt.

for took_ms in until_met(500, "ms from kill -9 to the next good answer"):
    ...
    took_ms.append(await recovery_ms(master, key))

Only figures are measured again. The assertions of the body must hold in every attempt.

A limit on the CPU time of a thread assumes a core of a certain speed. `Yardstick` measures how much slower this core is
now: other processes on the same memory can halve the speed of Python, in all attempts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

ATTEMPTS = 3


def until_met(limit: float, what: str, *, attempts: int = ATTEMPTS) -> Iterator[list[float]]:
    """Repeat the body until a figure is within `limit`, at most `attempts` times. It appends one figure each time."""
    figures: list[float] = []
    for attempt in range(1, attempts + 1):
        yield figures
        assert len(figures) == attempt, "the body appends one figure each time"
        if figures[-1] <= limit:
            return
    measured = ", ".join(f"{figure:g}" for figure in figures)
    raise AssertionError(f"{what}: more than {limit:g} in each of {attempts} attempts: {measured}")


class _Thing:
    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Yardstick:
    """A fixed workload like the index's: a table of small objects that is larger than the CPU's cache."""

    COUNT, PART = 200_000, 10_000
    REFERENCE_NS = 1_500  # for one step, on the machine of the documented figures, otherwise idle
    SLOWNESS_MAX = 3.0

    def __init__(self) -> None:
        self._keys = [b"key-%012d" % number for number in range(self.COUNT)]
        self._things = {key: _Thing(number) for number, key in enumerate(self._keys)}
        Random(1).shuffle(self._keys)
        self._at = 0

    def step_ns(self) -> float:
        """CPU time of one step now, in this thread."""
        keys, things, moved = self._keys[self._at : self._at + self.PART], self._things, []
        self._at = (self._at + self.PART) % self.COUNT
        started_ns = time.thread_time_ns()
        for key in keys:
            thing = things.pop(key)
            moved.append((key, thing.number))
            things[key] = _Thing(thing.number + 1)
        return (time.thread_time_ns() - started_ns) / self.PART

    def slowness(self) -> float:
        """How many times slower than the reference this core is now; at least 1, so a fast core tightens no limit."""
        return min(max(self.step_ns() / self.REFERENCE_NS, 1.0), self.SLOWNESS_MAX)
