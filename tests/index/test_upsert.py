"""Where an upsert goes."""

from __future__ import annotations

import pytest
from tests.index.kit import KIB, WRITER, T, primary, put

from leasehold.index import Code, Index, PutConfig

LATER_MS = 60_000  # every lease of the first put has expired


def test_an_upsert_that_never_ends_does_not_cost_the_acknowledged_version() -> None:
    """P1: seen with a real client whose upserts were cut by a failover: 1,500 of 4,000 keys were unreadable."""
    index = primary()
    old = put(index, 0, b"k")
    reply = index.puts.start_upsert(LATER_MS, WRITER, T, b"k", 4 * KIB, PutConfig())
    code, draft = reply.code, reply.value
    assert code == Code.OK
    assert draft is not None
    assert index.reads.get(LATER_MS, T, b"k") is old


def test_on_a_full_segment_an_upsert_is_written_in_place() -> None:
    index = primary((4 * KIB,))
    put(index, 0, b"k")
    reply = index.puts.start_upsert(LATER_MS, WRITER, T, b"k", 4 * KIB, PutConfig())
    code, draft = reply.code, reply.value
    assert code == Code.OK
    assert draft is not None
    assert draft.draft is not None
    assert draft.draft.in_place
    assert index.reads.get(LATER_MS, T, b"k") is None


def failed_over(index: Index) -> None:
    """Another epoch begins over the same state; everything was durable."""
    index.log.durable(index.log.last_n)
    index.begin(0, 2)
    index.log.durable(index.log.last_n)


@pytest.mark.parametrize("start", ["start", "start_upsert"])
def test_a_client_whose_put_was_cut_by_a_failover_starts_again_immediately(start: str) -> None:
    """It was refused for 30 s; and a real client takes "exists" for success, of a put that never ended."""
    index = primary()
    if start == "start_upsert":
        put(index, 0, b"k")
    first = getattr(index.puts, start)(LATER_MS, WRITER, T, b"k", 4 * KIB, PutConfig()).value
    failed_over(index)
    first_at = first.replicas[0].offset
    reply = getattr(index.puts, start)(100, WRITER, T, b"k", 4 * KIB, PutConfig())
    assert reply.code == Code.OK
    second = reply.value
    assert second.replicas[0].offset != first_at, "bytes of the first attempt may still arrive"
    assert index.space.quarantine.totals()[0] >= 1
    assert index.puts.end(200, WRITER, T, b"k").code == Code.OK
    assert index.reads.get(300, T, b"k") is second


def test_a_put_that_was_cut_by_a_failover_is_replaced_by_no_other_client() -> None:
    index = primary()
    index.puts.start(0, WRITER, T, b"k", 4 * KIB, PutConfig())
    failed_over(index)
    assert index.puts.start(100, b"another-client-1", T, b"k", 4 * KIB, PutConfig()).code == Code.EXISTS
    assert index.puts.start_upsert(100, b"another-client-1", T, b"k", 4 * KIB, PutConfig()).code == Code.NOT_READY


def test_within_one_epoch_a_second_put_of_a_key_under_way_is_refused() -> None:
    index = primary()
    index.puts.start(0, WRITER, T, b"k", 4 * KIB, PutConfig())
    assert index.puts.start(100, WRITER, T, b"k", 4 * KIB, PutConfig()).code == Code.EXISTS
