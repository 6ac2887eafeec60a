"""Settings of the wire server: limits per connection, and over all connections together."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.base.settings import count, duration, size


@dataclass(frozen=True)
class WireSettings:
    """Section `[wire]`."""

    connections_max: int = count(
        10_000, low=1, help="largest number of connections; further ones are closed immediately"
    )
    frame_bytes: int = size(
        "64MiB", low="1KiB", high="1GiB", help="largest request; a larger one closes the connection"
    )
    unsent_bytes: int = size(
        "64MiB", low="64KiB", help="unsent answers on one connection at which reading from it pauses"
    )
    buffered_bytes: int = size(
        "1GiB", low="1MiB", help="limit for unsent answers and partly received requests over all connections"
    )
    in_flight_max: int = count(
        4096, low=1, help="unanswered requests on one connection at which reading from it pauses"
    )
    slow_reader_ms: int = duration(
        "30s", low="100ms", help="time after which a client that reads none of its answers is disconnected"
    )
    half_frame_ms: int = duration("30s", low="100ms", help="longest time to receive one request")
    idle_ms: int = duration("10m", low="1s", help="time without a request after which a connection is closed")
