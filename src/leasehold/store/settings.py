"""Settings of an embedded store."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.base.settings import count, duration, size


@dataclass(frozen=True)
class StoreSettings:
    """How much a store keeps, and how long its leases last at least."""

    quota_bytes: int = size("2GiB", low="1MiB", high="64GiB", help="keys, values and history together, at most")
    history_revisions: int = count(
        50_000, low=100, high=100_000_000, help="revisions that can still be read and watched from"
    )
    history_bytes: int = size("256MiB", low="64KiB", high="64GiB", help="superseded versions that are kept, at most")
    segment_bytes: int = size("64MiB", low="64KiB", high="4GiB", help="log that is written before the next snapshot")
    lease_ttl_min_ms: int = duration("2s", low="1s", high="1h", help="shortest lease that is granted, in whole seconds")
    progress_interval_ms: int = duration(
        "10m", low="100ms", high="1d", help="how often quiet watches that asked for it are told the revision"
    )
