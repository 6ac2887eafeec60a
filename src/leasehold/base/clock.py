"""The clock interface. State machines hold no clock: every event carries the time."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Milliseconds since an arbitrary start. It never goes back, and it counts while the host is suspended.

    Clocks of two processes are never compared: only durations cross a connection.
    """

    def now_ms(self) -> int: ...


class ManualClock:
    """A clock that moves only by `advance`: for tests and simulations."""

    def __init__(self, start_ms: int = 0) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, duration_ms: int) -> None:
        if duration_ms < 0:
            raise ValueError(f"a clock cannot go back: advance({duration_ms})")
        self._now_ms += duration_ms
