"""Bounds of a wire server. Each holds for itself; together they bound what a fleet of clients can make us keep."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.base.settings import count, duration, size


@dataclass(frozen=True)
class WireSettings:
    connections_max: int = count(10_000, low=1, help="connections beyond this are closed at once")
    frame_bytes: int = size(
        "64MiB", low="1KiB", high="1GiB", help="the largest request; a larger one ends its connection"
    )
    unsent_bytes: int = size(
        "64MiB", low="64KiB", help="answers that one connection may have waiting before we stop reading from it"
    )
    buffered_bytes: int = size("1GiB", low="1MiB", help="the same, and half-received requests, over all connections")
    in_flight_max: int = count(4096, low=1, help="unanswered requests on one connection before we stop reading from it")
    slow_reader_ms: int = duration("30s", low="100ms", help="a client that takes nothing for so long is dropped")
    half_frame_ms: int = duration("30s", low="100ms", help="a request may be half received for so long")
    idle_ms: int = duration("10m", low="1s", help="a connection without a request for so long is closed")
