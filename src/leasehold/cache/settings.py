"""Settings of the lease-coherent cache: the authority and its clients."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.base import limits
from leasehold.base.settings import choice, count, duration, flag, size
from leasehold.leases.arithmetic import DRIFT_PPM_DEFAULT

_TERM_HIGH = "1d"


@dataclass(frozen=True)
class AuthoritySettings:
    """Settings of an authority."""

    term_ms: int = duration(
        "10s", low="10ms", high=_TERM_HIGH, help="lease term: longest time a client may keep a value"
    )
    term_min_ms: int = duration("100ms", low="1ms", high=_TERM_HIGH, help="shortest lease term that `adaptive` chooses")
    adaptive: bool = flag(False, help="whether each key's term follows its lease benefit factor 2R/(S*W)")
    drift_ppm: int = count(
        DRIFT_PPM_DEFAULT,
        high=499_999,
        help="largest difference in the rate of two clocks, in millionths; equal for authority and clients",
    )
    holders_per_key_max: int = count(
        1_000, low=1, help="lease holders tracked per key; a write waits for the leases of further holders to expire"
    )
    entries_max: int = count(100_000, low=1, help="values kept in memory (with store memory://: number of keys)")
    writes_queued_per_key_max: int = count(
        limits.cache_writes_queued_per_key_max, low=1, help="writes queued per key; further ones are refused"
    )


@dataclass(frozen=True)
class ClientSettings:
    """Settings of a client."""

    drift_ppm: int = count(
        DRIFT_PPM_DEFAULT,
        high=499_999,
        help="largest difference in the rate of two clocks, in millionths; equal for authority and clients",
    )
    entries_max: int = count(100_000, low=1, help="values kept; the least recently used one is dropped first")
    bytes_max: int = size("256MiB", low="1KiB", help="limit for the keys and values kept")
    attempt_timeout_ms: int = duration(
        "1s", low="1ms", high="1h", help="time after which an unanswered read is retried"
    )
    timeout_ms: int = duration("10s", low="1ms", high=_TERM_HIGH, help="timeout of a call")
    mode: str = choice(
        "callback",
        "callback",
        "wait",
        "fail",
        help="default mode of a write: call holders back, wait for expiry, or fail",
    )
