"""Where an upsert goes."""

from __future__ import annotations

from tests.index.kit import KIB, WRITER, T, primary, put

from leasehold.index import Code, PutConfig

LATER_MS = 60_000  # every lease of the first put is over


def test_an_upsert_that_never_ends_does_not_cost_the_acknowledged_version() -> None:
    """P1: seen with a real client whose upserts were cut by a failover: 1,500 of 4,000 keys were unreadable."""
    index = primary()
    old = put(index, 0, b"k")
    code, draft, _ = index.upsert_start(LATER_MS, WRITER, T, b"k", 4 * KIB, PutConfig())
    assert code == Code.OK
    assert draft is not None
    assert index.get(LATER_MS, T, b"k") is old


def test_on_a_full_segment_an_upsert_is_written_in_place() -> None:
    index = primary((4 * KIB,))
    put(index, 0, b"k")
    code, draft, _ = index.upsert_start(LATER_MS, WRITER, T, b"k", 4 * KIB, PutConfig())
    assert code == Code.OK
    assert draft is not None
    assert draft.draft is not None
    assert draft.draft.in_place
    assert index.get(LATER_MS, T, b"k") is None
