"""The shape of a clock. Machines never hold one: they are told the time with every event."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Milliseconds since an arbitrary start, never going back, counting while the host sleeps.

    Two processes' clocks are never compared: only durations cross a wire.
    """

    def now_ms(self) -> int: ...


class ManualClock:
    """A clock that stands still until it is told to move: for tests and simulations."""

    def __init__(self, start_ms: int = 0) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, duration_ms: int) -> None:
        if duration_ms < 0:
            raise ValueError(f"a clock never goes back: advance({duration_ms})")
        self._now_ms += duration_ms
