"""A reader's position in the chain, and how a batch relates to it."""

from __future__ import annotations

import pytest

from leasehold.index.records import Begin
from leasehold.journal.batch import ExplicitBatch
from leasehold.journal.chain import Fit, Position, fit


def batch(epoch: int, first_n: int, count: int, prev: tuple[int, int]) -> ExplicitBatch:
    return ExplicitBatch(epoch, first_n, *prev, 3_000, 0, (Begin(0, epoch, 1, 1),) * count)


@pytest.mark.parametrize(
    ("applied", "offered", "expected"),
    [
        (Position(0, 0), batch(7, 1, 3, (0, 0)), Fit.NEXT),
        (Position(7, 3), batch(7, 4, 1, (7, 3)), Fit.NEXT),
        (Position(7, 3), batch(9, 4, 1, (7, 3)), Fit.NEXT),  # a new epoch continues from the tail
        (Position(7, 3), batch(7, 5, 1, (7, 4)), Fit.GAP),
        (Position(7, 3), batch(7, 1, 3, (0, 0)), Fit.OLD),
        (Position(7, 3), batch(7, 1, 2, (0, 0)), Fit.OLD),
        (Position(7, 2), batch(7, 1, 3, (0, 0)), Fit.PART),  # a snapshot ended inside it
        (Position(7, 5), batch(9, 6, 1, (8, 5)), Fit.FORK),  # record 5 that we hold is not the one in the journal
        (Position(7, 5), batch(9, 4, 2, (7, 3)), Fit.FORK),  # records 4 and 5 were written by another leader
    ],
)
def test_fit(applied: Position, offered: ExplicitBatch, expected: Fit) -> None:
    assert fit(applied, offered) is expected


def test_positions_compare_by_epoch_first() -> None:
    assert Position(8, 1) > Position(7, 100)
