"""Time in which the master's process did not run does not count against the TTL of clients."""

from __future__ import annotations

import pytest
from tests.index.kit import STORAGE, WRITER, T, primary, put

from leasehold.base.codes import ClientStatus, Code

TTL_MS = 10_000


@pytest.mark.parametrize("stall_ms", [5_000, 60_000])
def test_a_stall_ends_no_client(stall_ms: int) -> None:
    index = primary(client_ttl_ms=TTL_MS)
    found = put(index, 0, b"k")
    index.work(0)
    index.work(TTL_MS - 2_000)  # the client is nearly due; then the process does not run
    for now_ms in range(TTL_MS - 2_000, TTL_MS - 1_000, 100):
        index.work(now_ms)
    resumed_ms = TTL_MS - 1_100 + stall_ms
    index.work(resumed_ms)
    assert index.space.segments
    assert bool(index.owners.unproven) == (stall_ms > TTL_MS)
    assert index.owners.must_wait(found) == (stall_ms > TTL_MS)
    assert index.owners.ping(resumed_ms + 500, STORAGE) == ClientStatus.OK
    assert not index.owners.unproven
    index.check()


def test_a_stall_counts_against_leases() -> None:
    index = primary(client_ttl_ms=TTL_MS, lease_ttl_ms=5_000)
    put(index, 0, b"k")
    assert index.reads.get(100, T, b"k") is not None
    index.work(200)
    index.work(30_000)
    assert index.removes.remove(30_001, T, b"k", False, WRITER).code == Code.OK


def test_a_silent_client_still_ends_after_a_stall() -> None:
    index = primary(client_ttl_ms=TTL_MS)
    index.work(0)
    index.work(60_000)
    assert index.space.segments
    for now_ms in range(60_000, 60_000 + TTL_MS + 2_000, 100):
        index.work(now_ms)
    assert not index.space.segments
