"""Settings of a storage host."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.base.settings import count, duration, size, text, url


@dataclass(frozen=True)
class HostSettings:
    """Section `[host]`. A storage host lends one segment of memory."""

    segment_bytes: int = size("1GiB", low="64KiB", high="64TiB", help="amount of memory to lend")
    listen: str = text("127.0.0.1:0", help="HOST:PORT to serve reads and writes on; port 0 picks a free one")
    metrics: str = text("", help="HOST:PORT of an HTTP port with /metrics and /health; empty: none")
    advertise: str = text("", help="HOST:PORT published to clients, if it differs from `listen`")
    master: str = text("", help="HOST:PORT of the master; several are separated by commas")
    coord: str = url("", help="URL of the coordination store in which to look up the master, instead of `master`")
    cluster: str = text("mooncake_cluster", help="name of the cluster in the coordination store")
    name: str = text("", help="name of the segment (default: its address)")
    connections_max: int = count(4096, low=1, help="largest number of connections; further ones are closed immediately")
    buffered_bytes: int = size("1GiB", low="1MiB", help="limit of bytes in transfer, over all connections")
    transfer_timeout_ms: int = duration("1m", low="100ms", help="timeout of one read or write")
    ping_interval_ms: int = duration("1s", low="10ms", high="1m", help="interval between pings to the master")
    cluster_secret_file: str = text(
        "",
        help="file with the cluster's secrets, as of the nodes; reads and writes need capabilities signed with one",
    )
    capability_ttl_ms: int = duration(
        "1m", low="1s", help="time after which a capability expires; must exceed the timeouts of clients"
    )
