"""The one real clock."""

from __future__ import annotations

import time

_now_ns, _BOOT = time.clock_gettime_ns, time.CLOCK_BOOTTIME  # the clock is read several times for every request


class BootClock:
    """`CLOCK_BOOTTIME`: it counts a suspended host's sleep, which `CLOCK_MONOTONIC` does not."""

    def now_ms(self) -> int:
        return _now_ns(_BOOT) // 1_000_000


def wall_us() -> int:
    """Wall-clock time in microseconds, for people to read; never for decisions."""
    return time.time_ns() // 1_000
