"""Settings of the index: leases, pins, eviction, allocation and timeouts."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.base.settings import choice, count, duration, flag, ratio, size, text, texts


@dataclass(frozen=True)
class IndexSettings:
    """Section `[index]`. The defaults are those of `mooncake_master`, where it has the same setting."""

    lease_ttl_ms: int = duration("10s", low="10ms", high="1h", help="time that a read protects an object from eviction")
    urgent_left_ms: int = duration(
        "1s", help="remaining lease time below which a renewal is sent within `urgent_flush_interval`"
    )
    exist_leases: bool = flag(True, help="whether `exist` grants a lease as `get` does")
    soft_pin_ttl_ms: int = duration("30m", low="0ms", high="24h", help="default duration of a soft pin")
    soft_pin_ttl_max_ms: int = duration("24h", low="0ms", high="30d", help="longest soft pin that a client may request")
    soft_pin_renew_on_read: bool = flag(False, help="whether a read extends a soft pin")
    allow_evict_soft_pinned: bool = flag(True, help="whether soft-pinned objects may be evicted as a last resort")
    eviction_policy: str = choice(
        "pressure", "pressure", "expiry", help="time of eviction: when space runs low, or when the lease expires"
    )
    eviction_high_watermark: float = ratio(0.90, help="fraction of used space above which eviction starts")
    eviction_ratio: float = ratio(0.05, help="fraction of all space that one round of eviction frees")
    allocation: str = choice(
        "two-choices", "two-choices", "local-first", "free-ratio-first", "ssd-free-ratio-first", "random",
        help="choice of segments for new objects",
    )  # fmt: skip
    newcomer_ramp_ms: int = duration(
        "1m", high="24h", help="time in which a new segment receives a limited share of new objects (0s: no limit)"
    )
    host_labels: tuple[str, ...] = texts(help="labels of hosts for `local-first`, each HOST=LABEL; a host may end in *")
    tenant_quotas: bool = flag(
        False, help="whether each tenant needs a quota; set one with PUT /api/v1/tenant_quotas on the admin port"
    )
    client_ttl_ms: int = duration(
        "10s", low="100ms", high="1h", help="time without a ping after which a storage client is removed"
    )
    put_discard_ms: int = duration(
        "30s", low="100ms", high="1h", help="age at which an unfinished put may be replaced by another client's"
    )
    put_release_ms: int = duration(
        "600s",
        low="100ms",
        high="24h",
        help="longest time that the writer of a put may keep writing; its space is not reused earlier",
    )
    enable_offload: bool = flag(False, help="whether storage clients may keep copies of objects on their disks")
    offload_on_evict: bool = flag(
        False, help="whether objects are written to disk when memory is short, instead of after each put"
    )
    offload_force_evict: bool = flag(
        False, help="with offload_on_evict: whether memory is freed before the object is on disk"
    )
    offload_queue_max: int = count(
        50_000, low=1, high=100_000_000, help="objects that wait for one disk; further ones are not written to it"
    )
    promotion_on_hit: bool = flag(False, help="whether objects that are read from disk return to memory")
    promotion_threshold: int = count(2, low=1, high=255, help="reads from disk after which an object returns to memory")
    promotion_queue_max: int = count(50_000, low=1, high=100_000_000, help="objects that may be returning to memory")
    promotions_per_heartbeat: int = count(
        1, low=1, high=1_000, help="objects that return to memory with one heartbeat of a disk's owner"
    )
    disk_grace_ms: int = duration(
        "10m", low="0ms", high="7d", help="time that the disk replicas of a silent client are kept for its return"
    )
    shared_dir: str = text("", help="shared folder that is reported to storage clients (empty: none)")
    disk_eviction: bool = flag(True, help="whether storage clients may delete files of the shared folder")
    disk_quota_bytes: int = size("0", help="space that storage clients may use in the shared folder (0: no limit)")
