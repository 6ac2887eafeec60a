"""The length of the journal, after batches were written, listed again, added or truncated."""

from __future__ import annotations

from leasehold.journal.length import JournalLength


def test_batches_are_counted_once() -> None:
    length = JournalLength()
    for first_n, size in ((5, 100), (8, 50), (5, 100), (8, 50), (9, 1)):
        length.add(first_n, size)
    assert (length.batches, length.bytes, length.first_n) == (3, 151, 5)


def test_older_batches_are_added_in_front() -> None:
    length = JournalLength()
    length.add(5, 100)
    length.add_older([(1, 10), (3, 20)])
    assert (length.batches, length.bytes, length.first_n) == (3, 130, 1)
    assert length.bytes_seen == 100
    length.remove_before(5)
    assert (length.batches, length.bytes, length.first_n) == (1, 100, 5)


def test_a_batch_across_the_truncation_point_stays() -> None:
    length = JournalLength()
    for first_n in (1, 4, 7):
        length.add(first_n, 10)
    length.truncate(5)
    assert length.first_n == 4
    length.truncate(6)
    assert length.first_n == 7
    length.truncate(100)
    assert (length.batches, length.bytes) == (1, 10)


def test_either_limit_is_enough() -> None:
    length = JournalLength()
    length.add(1, 10)
    length.add(2, 10)
    assert not length.exceeds(2, 20)
    assert length.exceeds(1, 20)
    assert length.exceeds(2, 19)
