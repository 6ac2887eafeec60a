"""The ledger: how long the journal is, whatever came, was listed again, surveyed or trimmed."""

from __future__ import annotations

from leasehold.journal.length import Ledger


def test_batches_are_counted_once() -> None:
    ledger = Ledger()
    for first_n, size in ((5, 100), (8, 50), (5, 100), (8, 50), (9, 1)):
        ledger.saw(first_n, size)
    assert (ledger.batches, ledger.bytes, ledger.first_n) == (3, 151, 5)


def test_what_was_there_before_is_added_in_front() -> None:
    ledger = Ledger()
    ledger.saw(5, 100)
    ledger.survey([(1, 10), (3, 20)])
    assert (ledger.batches, ledger.bytes, ledger.first_n) == (3, 130, 1)
    assert ledger.bytes_seen == 100
    ledger.gone(5)
    assert (ledger.batches, ledger.bytes, ledger.first_n) == (1, 100, 5)


def test_a_batch_that_reaches_over_the_floor_stays() -> None:
    ledger = Ledger()
    for first_n in (1, 4, 7):
        ledger.saw(first_n, 10)
    ledger.trimmed(5)
    assert ledger.first_n == 4
    ledger.trimmed(6)
    assert ledger.first_n == 7
    ledger.trimmed(100)
    assert (ledger.batches, ledger.bytes) == (1, 10)


def test_either_bound_is_a_bound() -> None:
    ledger = Ledger()
    ledger.saw(1, 10)
    ledger.saw(2, 10)
    assert not ledger.exceeds(2, 20)
    assert ledger.exceeds(1, 20)
    assert ledger.exceeds(2, 19)
