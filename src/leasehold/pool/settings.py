"""What can be set about a storage host."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.base.settings import count, duration, size, text


@dataclass(frozen=True)
class HostSettings:
    """A storage host lends one segment of memory."""

    segment_bytes: int = size("1GiB", low="64KiB", high="64TiB", help="how much memory to lend")
    listen: str = text("127.0.0.1:0", help="where to serve reads and writes; port 0 takes a free one")
    advertise: str = text("", help="HOST:PORT by which others reach it, if that is not where it listens")
    master: str = text("", help="HOST:PORT of the master, several with commas between")
    coord: str = text("", help="URL of the coordination store, to find the master there instead")
    cluster: str = text("mooncake_cluster", help="the cluster's name in the coordination store")
    name: str = text("", help="the segment's name; by default its address")
    connections_max: int = count(4096, low=1, help="connections beyond this are closed at once")
    buffered_bytes: int = size("1GiB", low="1MiB", help="bytes on their way in or out, over all connections")
    transfer_timeout_ms: int = duration("1m", low="100ms", help="one read or write may take so long")
    ping_interval_ms: int = duration("1s", low="10ms", high="1m", help="how often to tell the master that it is alive")
