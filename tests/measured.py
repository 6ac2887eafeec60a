"""Limits on real time, judged fairly: a machine may disturb one attempt, a regression shows in every one.

for took_ms in until_met(500, "ms from kill -9 to the next good answer"):
    ...
    took_ms.append(await recovery_ms(master, key))

Only figures are tried again. What the body asserts must hold in every attempt.

What is limited in time of a thread is limited for a core of a certain speed. `Yardstick` tells how far this one is from
it just now: a neighbour on the same memory makes every line of Python twice as slow, and all attempts alike.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

ATTEMPTS = 3


def until_met(limit: float, what: str, *, attempts: int = ATTEMPTS) -> Iterator[list[float]]:
    """Until a figure is within `limit`, at most `attempts` times; the body appends one figure each time."""
    figures: list[float] = []
    for attempt in range(1, attempts + 1):
        yield figures
        assert len(figures) == attempt, "the body appends one figure each time"
        if figures[-1] <= limit:
            return
    told = ", ".join(f"{figure:g}" for figure in figures)
    raise AssertionError(f"{what}: more than {limit:g} in each of {attempts} attempts: {told}")


class _Thing:
    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Yardstick:
    """Work that never changes and is like that of the index: a table of small objects that the cache cannot hold."""

    COUNT, PART = 200_000, 10_000
    REFERENCE_NS = 1_500  # for one step, on the machine whose figures the documents tell, while nothing else ran
    SLOWNESS_MAX = 3.0

    def __init__(self) -> None:
        self._keys = [b"key-%012d" % number for number in range(self.COUNT)]
        self._things = {key: _Thing(number) for number, key in enumerate(self._keys)}
        Random(1).shuffle(self._keys)
        self._at = 0

    def step_ns(self) -> float:
        """What one step takes now, in time of this thread."""
        keys, things, moved = self._keys[self._at : self._at + self.PART], self._things, []
        self._at = (self._at + self.PART) % self.COUNT
        started_ns = time.thread_time_ns()
        for key in keys:
            thing = things.pop(key)
            moved.append((key, thing.number))
            things[key] = _Thing(thing.number + 1)
        return (time.thread_time_ns() - started_ns) / self.PART

    def slowness(self) -> float:
        """How many times slower than the reference this core is now; never less than 1: fast ones earn nothing."""
        return min(max(self.step_ns() / self.REFERENCE_NS, 1.0), self.SLOWNESS_MAX)
