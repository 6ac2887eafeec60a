"""The dense chain of explicit records: a reader's position in it, and whether a batch is the next one."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from leasehold.journal.batch import ExplicitBatch


class Position(Struct, frozen=True, order=True, gc=False):
    """A record's number: `(epoch, n)`, compared in that order. `(0, 0)` is before every record."""

    epoch: int = 0
    n: int = 0


class Fit(Enum):
    """How a batch relates to the applied position of its reader."""

    NEXT = "next"  # it follows the applied position
    PART = "part"  # the applied position is inside it (a snapshot was taken there): apply its later records
    OLD = "old"  # already applied
    GAP = "gap"  # records between the applied position and this batch are missing
    FORK = "fork"  # it contradicts an applied record: the reader's state holds something that never became durable


def fit(applied: Position, batch: ExplicitBatch) -> Fit:
    """How `batch` relates to a reader that has applied everything up to `applied`."""
    if batch.first_n > applied.n + 1:
        return Fit.GAP
    if batch.first_n == applied.n + 1:
        return Fit.NEXT if batch.prev_epoch == applied.epoch else Fit.FORK
    if batch.epoch > applied.epoch:
        return Fit.FORK  # a later epoch continued from an earlier record: our records after that one were discarded
    if batch.last_n < applied.n:
        return Fit.OLD
    if batch.epoch != applied.epoch:
        return Fit.FORK
    return Fit.OLD if batch.last_n == applied.n else Fit.PART
