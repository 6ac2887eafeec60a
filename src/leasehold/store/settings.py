"""Settings of the embedded store."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.base.settings import count, duration, size, texts


@dataclass(frozen=True)
class StoreSettings:
    """Section `[store]`."""

    quota_bytes: int = size(
        "2GiB", low="1MiB", high="64GiB", help="limit for existing keys and values (history has its own limits)"
    )
    history_revisions: int = count(
        50_000, low=100, high=100_000_000, help="number of past revisions that can be read and watched from"
    )
    history_bytes: int = size("256MiB", low="64KiB", high="64GiB", help="limit for superseded versions")
    segment_bytes: int = size("64MiB", low="64KiB", high="4GiB", help="size of the log at which a snapshot is written")
    lease_ttl_min_ms: int = duration("2s", low="1s", high="1h", help="shortest lease that is granted, in whole seconds")
    connections_max: int = count(10_000, low=1, high=1_000_000, help="limit for connections of clients")
    connection_silent_ms: int = duration(
        "5m",
        low="1s",
        high="1d",
        help="silence of a client after which it gets a ping, and is disconnected if it does not answer",
    )
    traffic_bytes: int = size(
        "512MiB", low="1MiB", high="64GiB", help="limit for unfinished requests and unsent answers of all clients"
    )
    allowed_hosts: tuple[str, ...] = texts(
        help="names under which the JSON gateway may be addressed, besides IP addresses, localhost and the host's name"
    )
    progress_interval_ms: int = duration(
        "10m", low="100ms", high="1d", help="interval of progress notifications to idle watches that requested them"
    )
