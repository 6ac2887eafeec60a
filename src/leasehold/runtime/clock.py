"""The real clock."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

_now_ns, _BOOT = time.clock_gettime_ns, time.CLOCK_BOOTTIME  # the clock is read several times for every request


class BootClock:
    """`CLOCK_BOOTTIME`: unlike `CLOCK_MONOTONIC`, it counts while the host is suspended."""

    def now_ms(self) -> int:
        return _now_ns(_BOOT) // 1_000_000


boot_ns: Final = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
"""The same clock in nanoseconds, to measure durations. It costs half of a call of `BootClock.now_ms`."""


def wall_us() -> int:
    """Wall-clock time in microseconds, for display only; never for decisions."""
    return time.time_ns() // 1_000
