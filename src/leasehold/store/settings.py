"""Settings of an embedded store."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.base.settings import count, duration, size


@dataclass(frozen=True)
class StoreSettings:
    """Limits of a store."""

    quota_bytes: int = size("2GiB", low="1MiB", high="64GiB", help="size limit for keys, values and history together")
    history_revisions: int = count(
        50_000, low=100, high=100_000_000, help="revisions kept in history, for reads and watches"
    )
    history_bytes: int = size("256MiB", low="64KiB", high="64GiB", help="size limit for superseded versions")
    segment_bytes: int = size("64MiB", low="64KiB", high="4GiB", help="size of the log before the next snapshot")
    lease_ttl_min_ms: int = duration("2s", low="1s", high="1h", help="shortest TTL of a lease, in whole seconds")
    progress_interval_ms: int = duration(
        "10m", low="100ms", high="1d", help="interval of progress reports to idle watches that requested them"
    )
