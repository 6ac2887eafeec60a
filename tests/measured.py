"""Limits on real time, judged fairly: a machine may disturb one attempt, a regression shows in every one.

for took_ms in until_met(500, "ms from kill -9 to the next good answer"):
    ...
    took_ms.append(await recovery_ms(master, key))

Only figures are tried again. What the body asserts must hold in every attempt.
"""

from __future__ import annotations

from collections.abc import Iterator

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
