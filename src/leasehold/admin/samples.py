"""One hour of rates, kept in the node: so that charts have a past when a page is opened. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

from leasehold.base.measures import Histogram

INTERVAL_MS: Final = 2_000
KEPT: Final = 3_600_000 // INTERVAL_MS
_NS_PER_MS: Final = 1e6


class Totals(Struct, frozen=True):
    """Counters since the worker started, and values of this moment."""

    calls: dict[str, int]  # by function
    call_ns: Histogram
    failures: int
    hits: int
    misses: int
    store_writes: int
    evicted: int
    commit_ns: Histogram
    objects: int
    used_bytes: int
    connections: int


class Sample(Struct, frozen=True):
    """Rates a second since the sample before, and values at its end."""

    wall_ms: int
    calls: dict[str, float]  # by function; functions that were not called are left out
    call_p99_ms: float
    failures: float
    hits: float  # each hit renews a lease
    misses: float
    store_writes: float
    evictions: float
    commit_p50_ms: float
    commit_p99_ms: float
    objects: int
    used_bytes: int
    connections: int


class SampleRing:
    """The last hour. `add` is called every `INTERVAL_MS` with the totals; missed calls make a longer interval."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=KEPT)
        self._before: Totals | None = None
        self._before_ms = 0

    def add(self, now_ms: int, wall_ms: int, totals: Totals) -> None:
        """`now_ms` never goes back; `wall_ms` is for people."""
        before, seconds = self._before, max(1, now_ms - self._before_ms) / 1000
        self._before, self._before_ms = totals, now_ms
        if before is None:
            return

        def rate(now: int, then: int) -> float:
            """A counter that went back belongs to a new index, which began at zero."""
            return round((now - then if now >= then else now) / seconds, 2)

        calls = {name: rate(count, before.calls.get(name, 0)) for name, count in totals.calls.items()}
        commits = totals.commit_ns.since(before.commit_ns)
        self._samples.append(
            Sample(
                wall_ms=wall_ms,
                calls={name: called for name, called in calls.items() if called},
                call_p99_ms=_ms(totals.call_ns.since(before.call_ns), 0.99),
                failures=rate(totals.failures, before.failures),
                hits=rate(totals.hits, before.hits),
                misses=rate(totals.misses, before.misses),
                store_writes=rate(totals.store_writes, before.store_writes),
                evictions=rate(totals.evicted, before.evicted),
                commit_p50_ms=_ms(commits, 0.5),
                commit_p99_ms=_ms(commits, 0.99),
                objects=totals.objects,
                used_bytes=totals.used_bytes,
                connections=totals.connections,
            )
        )

    def last(self, count: int = KEPT) -> list[Sample]:
        """The newest samples, oldest first."""
        return list(self._samples)[-count:] if count > 0 else []


def _ms(durations: Histogram, share: float) -> float:
    return round(durations.quantile(share) / _NS_PER_MS, 3)
