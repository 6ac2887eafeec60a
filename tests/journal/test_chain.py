"""Where a reader stands in the chain, and what it makes of a batch."""

from __future__ import annotations

import pytest

from leasehold.index.records import Begin
from leasehold.journal.batch import ExplicitBatch
from leasehold.journal.chain import Fit, Mark, fit


def batch(epoch: int, first_n: int, count: int, prev: tuple[int, int]) -> ExplicitBatch:
    return ExplicitBatch(epoch, first_n, *prev, 3_000, 0, (Begin(0, epoch, 1, 1),) * count)


@pytest.mark.parametrize(
    ("mark", "offered", "expected"),
    [
        (Mark(0, 0), batch(7, 1, 3, (0, 0)), Fit.NEXT),
        (Mark(7, 3), batch(7, 4, 1, (7, 3)), Fit.NEXT),
        (Mark(7, 3), batch(9, 4, 1, (7, 3)), Fit.NEXT),  # a new epoch goes on from the tail
        (Mark(7, 3), batch(7, 5, 1, (7, 4)), Fit.GAP),
        (Mark(7, 3), batch(7, 1, 3, (0, 0)), Fit.OLD),
        (Mark(7, 3), batch(7, 1, 2, (0, 0)), Fit.OLD),
        (Mark(7, 2), batch(7, 1, 3, (0, 0)), Fit.PART),  # a snapshot ended inside it
        (Mark(7, 5), batch(9, 6, 1, (8, 5)), Fit.FORK),  # record 5 that we hold is not the one in the journal
        (Mark(7, 5), batch(9, 4, 2, (7, 3)), Fit.FORK),  # records 4 and 5 were written by another leader
    ],
)
def test_fit(mark: Mark, offered: ExplicitBatch, expected: Fit) -> None:
    assert fit(mark, offered) is expected


def test_marks_compare_by_epoch_first() -> None:
    assert Mark(8, 1) > Mark(7, 100)
