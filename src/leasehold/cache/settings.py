"""The settings of the cache, each with unit and bounds."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.base import limits
from leasehold.base.settings import choice, count, duration, flag, size
from leasehold.leases.arithmetic import DRIFT_PPM_DEFAULT

_TERM_HIGH = "1d"


@dataclass(frozen=True)
class AuthoritySettings:
    """What the authority goes by."""

    term_ms: int = duration("10s", low="10ms", high=_TERM_HIGH, help="how long a client may keep a value; the maximum")
    term_min_ms: int = duration("100ms", low="1ms", high=_TERM_HIGH, help="the shortest term that `adaptive` gives")
    adaptive: bool = flag(False, help="choose each key's term by its lease benefit factor 2R/(S*W)")
    drift_ppm: int = count(
        DRIFT_PPM_DEFAULT, high=499_999, help="how far two clocks may tick apart, in millionths; alike on all sides"
    )
    holders_per_key_max: int = count(1_000, low=1, help="holders tracked by name; for others' leases a write waits")
    entries_max: int = count(100_000, low=1, help="values in memory (without a store behind: keys altogether)")
    writes_queued_per_key_max: int = count(
        limits.cache_writes_queued_per_key_max, low=1, help="writes waiting for one key"
    )


@dataclass(frozen=True)
class ClientSettings:
    """What a client goes by."""

    drift_ppm: int = count(
        DRIFT_PPM_DEFAULT, high=499_999, help="how far two clocks may tick apart, in millionths; alike on all sides"
    )
    entries_max: int = count(100_000, low=1, help="values kept, the least recently used dropped first")
    bytes_max: int = size("256MiB", low="1KiB", help="bytes of keys and values kept")
    attempt_timeout_ms: int = duration("1s", low="1ms", high="1h", help="until an unanswered read is asked again")
    timeout_ms: int = duration("10s", low="1ms", high=_TERM_HIGH, help="the deadline of a call")
    mode: str = choice(
        "callback", "callback", "wait", "fail", help="how a write treats leases, where the call does not say"
    )
