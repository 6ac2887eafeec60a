"""The settings of the cache, with units and bounds."""

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
        "10s", low="10ms", high=_TERM_HIGH, help="how long a client may keep a value; the maximum lease term"
    )
    term_min_ms: int = duration("100ms", low="1ms", high=_TERM_HIGH, help="minimum lease term with `adaptive`")
    adaptive: bool = flag(False, help="choose each key's lease term by its lease benefit factor 2R/(S*W)")
    drift_ppm: int = count(
        DRIFT_PPM_DEFAULT,
        high=499_999,
        help="maximum clock drift between hosts in ppm; equal on all sides",
    )
    holders_per_key_max: int = count(
        1_000, low=1, help="lease holders tracked per key; the leases of others must expire"
    )
    entries_max: int = count(100_000, low=1, help="values in memory (with memory:// the maximum number of keys)")
    writes_queued_per_key_max: int = count(
        limits.cache_writes_queued_per_key_max, low=1, help="maximum number of queued writes per key"
    )


@dataclass(frozen=True)
class ClientSettings:
    """Settings of a client."""

    drift_ppm: int = count(
        DRIFT_PPM_DEFAULT,
        high=499_999,
        help="maximum clock drift between hosts in ppm; equal on all sides",
    )
    entries_max: int = count(100_000, low=1, help="maximum number of values; the least recently used is dropped first")
    bytes_max: int = size("256MiB", low="1KiB", help="maximum bytes of keys and values")
    attempt_timeout_ms: int = duration(
        "1s", low="1ms", high="1h", help="time after which an unanswered read is sent again"
    )
    timeout_ms: int = duration("10s", low="1ms", high=_TERM_HIGH, help="deadline of a call")
    mode: str = choice(
        "callback",
        "callback",
        "wait",
        "fail",
        help="default mode of writes: call holders back, wait for their leases, or fail",
    )
