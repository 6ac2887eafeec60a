"""The one dense chain of explicit records: where a reader stands in it, and whether a batch is the next."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from leasehold.journal.batch import ExplicitBatch


class Position(Struct, frozen=True, order=True, gc=False):
    """A record's number: `(epoch, n)`, compared in that order. `(0, 0)` is before everything."""

    epoch: int = 0
    n: int = 0


class Fit(Enum):
    NEXT = "next"  # it follows the mark
    PART = "part"  # the mark is inside it (a snapshot was taken there): its later records follow the mark
    OLD = "old"  # applied already
    GAP = "gap"  # something between the mark and this batch is missing
    FORK = "fork"  # it contradicts what was applied: this state holds something that never became durable


def fit(applied: Position, batch: ExplicitBatch) -> Fit:
    """How `batch` stands to a reader that has applied everything up to `mark`."""
    if batch.first_n > applied.n + 1:
        return Fit.GAP
    if batch.first_n == applied.n + 1:
        return Fit.NEXT if batch.prev_epoch == applied.epoch else Fit.FORK
    if batch.epoch > applied.epoch:
        return Fit.FORK  # a later epoch went on before our mark: it knows nothing of what we have after that
    if batch.last_n < applied.n:
        return Fit.OLD
    if batch.epoch != applied.epoch:
        return Fit.FORK
    return Fit.OLD if batch.last_n == applied.n else Fit.PART
