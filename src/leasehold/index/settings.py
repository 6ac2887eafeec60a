"""What can be set about leases, pins, eviction and time-outs."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.base.settings import choice, duration, flag, ratio


@dataclass(frozen=True)
class IndexSettings:
    """The settings of the master's state. The defaults are those of `mooncake_master`, where it has one."""

    lease_ttl_ms: int = duration("10s", low="10ms", high="1h", help="how long a read protects an object")
    urgent_left_ms: int = duration("1s", help="renewed with less left than this, the standbys are told within `urgent`")
    exist_leases: bool = flag(True, help="whether `exist` grants a lease as `get` does")
    soft_pin_ttl_ms: int = duration("30m", low="0ms", high="24h", help="how long a soft pin lasts by default")
    soft_pin_ttl_max_ms: int = duration("24h", low="0ms", high="30d", help="the longest soft pin that may be asked for")
    soft_pin_renew_on_read: bool = flag(False, help="whether a read extends a soft pin")
    allow_evict_soft_pinned: bool = flag(True, help="evict soft-pinned objects when nothing else is left")
    eviction_policy: str = choice(
        "pressure", "pressure", "expiry", help="evict when space runs short, or when the lease ends"
    )
    eviction_high_watermark: float = ratio(0.90, help="eviction starts above this share of used space")
    eviction_ratio: float = ratio(0.05, help="how much of all space one round of eviction frees")
    allocation: str = choice("free-ratio-first", "random", "free-ratio-first", help="which segments get new objects")
    client_ttl_ms: int = duration(
        "10s", low="100ms", high="1h", help="a storage client not heard of for this long is gone"
    )
    put_discard_ms: int = duration("30s", low="100ms", high="1h", help="after this an unfinished put may be replaced")
    put_release_ms: int = duration(
        "600s", low="100ms", high="24h", help="after this the writer of an unfinished put has given up"
    )
