"""What can be set about a storage host."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.base.settings import duration, size, text


@dataclass(frozen=True)
class HostSettings:
    """A storage host lends one segment of memory."""

    segment_bytes: int = size("1GiB", low="64KiB", high="64TiB", help="how much memory to lend")
    listen: str = text("127.0.0.1:0", help="where to serve reads and writes; port 0 takes a free one")
    master: str = text("", help="HOST:PORT of the master, several with commas between")
    coord: str = text("", help="URL of the coordination store, to find the master there instead")
    cluster: str = text("mooncake_cluster", help="the cluster's name in the coordination store")
    name: str = text("", help="the segment's name; by default its address")
    ping_interval_ms: int = duration("1s", low="10ms", high="1m", help="how often to tell the master that it is alive")
