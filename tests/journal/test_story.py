"""The records of the journal about one key, and why it is absent."""

from __future__ import annotations

import pytest

from leasehold.index.records import (
    Cause,
    ClientGone,
    Extent,
    PutEnd,
    PutEnds,
    PutRevoke,
    PutStart,
    Record,
    Remove,
    RemoveRange,
    UnmountSegment,
)
from leasehold.journal.story import KeyStory, may_concern

T, K = b"default", b"key"
START = PutStart(0, b"c", T, K, 10, (Extent(1, 0),))
END = PutEnd(0, T, K, 10)
WHOLE = (0, 16_383)


def concluded(*records: Record, hinted: bool = False) -> str:
    """The conclusion for records 10, 11, ... about a key that is not in the index."""
    story = KeyStory(T, K)
    for n, record in enumerate(records, 10):
        if may_concern(record, T, K):
            story.add(n, 0, record)
    return story.conclusion(present=False, hinted=hinted, first_n=10)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ((START,), "its put was not finished"),
        ((START, END), "so the primary evicted it"),
        ((START, PutEnds(0, (10,)), Remove(0, T, K, 0)), "it was removed (remove)"),
        ((START, END, Remove(0, T, b"other", 0)), "No record removes it"),
        ((START, END, RemoveRange(0, T, b"^k", *WHOLE, (), 0, Cause.REMOVE_BY_REGEX)), "(remove_by_regex)"),
        ((START, END, RemoveRange(0, T, b"^x", *WHOLE, (), 0, Cause.REMOVE_BY_REGEX)), "No record removes it"),
        ((START, END, RemoveRange(0, T, b"", *WHOLE, (10,), 0, Cause.REMOVE_ALL)), "No record removes it"),
        ((START, END, UnmountSegment(0, (1,), Cause.UNMOUNT)), "its segment was unmounted (unmount)"),
        ((START, END, UnmountSegment(0, (2,), Cause.UNMOUNT)), "No record removes it"),
        ((START, END, ClientGone(0, b"\x01", (1,))), "storage client 01 died"),
        ((START, PutRevoke(0, T, K, 10, 0, Cause.PUT_TIMEOUT)), "its put was given back (put_timeout)"),
        ((START, END, Remove(0, T, K, 0), START, PutEnd(0, T, K, 13)), "No record removes it"),
        ((), "does not name it from record 10 on"),
    ],
)
def test_why_a_key_is_absent(records: tuple[Record, ...], expected: str) -> None:
    assert expected in concluded(*records)


def test_a_hint_of_the_last_minute_is_an_eviction() -> None:
    assert "Evicted by the primary within the last minute" in concluded(START, END, hinted=True)


def test_one_replica_of_two_may_be_lost() -> None:
    start = PutStart(0, b"c", T, K, 10, (Extent(1, 0), Extent(2, 0)))
    assert "No record removes it" in concluded(start, END, UnmountSegment(0, (1,), Cause.UNMOUNT))
    assert "(drained)" in concluded(
        start, END, UnmountSegment(0, (1,), Cause.UNMOUNT), UnmountSegment(0, (2,), Cause.DRAINED)
    )
