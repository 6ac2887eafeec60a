"""Settings of leases, pins, eviction and time-outs."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.base.settings import choice, duration, flag, ratio


@dataclass(frozen=True)
class IndexSettings:
    """Settings of the index. The defaults are those of `mooncake_master`, where it has one."""

    lease_ttl_ms: int = duration("10s", low="10ms", high="1h", help="duration of the lease that a read grants")
    urgent_left_ms: int = duration(
        "1s", help="remaining lease below which a renewal is sent to the standbys within `urgent`"
    )
    exist_leases: bool = flag(True, help="grant a lease on `exist`, as on `get`")
    soft_pin_ttl_ms: int = duration("30m", low="0ms", high="24h", help="default duration of a soft pin")
    soft_pin_ttl_max_ms: int = duration("24h", low="0ms", high="30d", help="longest soft pin that a put may request")
    soft_pin_renew_on_read: bool = flag(False, help="extend a soft pin on every read")
    allow_evict_soft_pinned: bool = flag(True, help="evict soft-pinned objects when nothing else is left")
    eviction_policy: str = choice(
        "pressure", "pressure", "expiry", help="evict when space runs short, or when the lease expires"
    )
    eviction_high_watermark: float = ratio(0.90, help="share of used space above which eviction starts")
    eviction_ratio: float = ratio(0.05, help="share of all space that one round of eviction frees")
    allocation: str = choice(
        "free-ratio-first", "random", "free-ratio-first", help="choice of segments for new objects"
    )
    client_ttl_ms: int = duration(
        "10s", low="100ms", high="1h", help="time without a ping after which a storage client is dead"
    )
    put_discard_ms: int = duration("30s", low="100ms", high="1h", help="age at which an unfinished put may be replaced")
    put_release_ms: int = duration(
        "600s", low="100ms", high="24h", help="age at which the writer of an unfinished put has given up"
    )
