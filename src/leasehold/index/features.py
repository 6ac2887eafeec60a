"""The feature level of the cluster: which record kinds and snapshot sections may be written.

A node cannot read a record of a kind that its release does not know: it quarantines the batch and does not campaign. So
a new kind is written only after the cluster was switched to its level by a record, `FeatureLevel`, and the switch is
made when every registered node can read it. docs/journal.md ("Feature levels") has the rules, and how to add a kind.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from leasehold.base.invariants import ensure
from leasehold.index.records import (
    AdoptEnd,
    AdoptSegment,
    BindSegment,
    DiskEvict,
    DiskGone,
    DiskMount,
    DiskStored,
    DiskUnmount,
    DrainEnd,
    DrainStart,
    FeatureLevel,
    PromoteEnd,
    PromoteStart,
    PutEnds,
    SetQuota,
)


class Level(Struct, frozen=True):
    """The kinds and sections that may be written from this level on. A later level includes all earlier ones."""

    adds: str  # for people
    kinds: tuple[type[Any], ...] = ()  # record kinds
    sections: tuple[str, ...] = ()  # fields of `snapshot_format.Keyless`: empty below this level


LEVELS: Final[tuple[Level, ...]] = (
    Level("the first release's records"),
    Level(
        "feature levels, tenant quotas, drain jobs, shared records for ends, adopted segments, the disk tier",
        kinds=(
            FeatureLevel,
            SetQuota,
            DrainStart,
            DrainEnd,
            PutEnds,
            AdoptSegment,
            AdoptEnd,
            BindSegment,
            DiskMount,
            DiskGone,
            DiskUnmount,
            DiskStored,
            DiskEvict,
            PromoteStart,
            PromoteEnd,
        ),
        sections=("quotas", "drains", "adopted", "disk_owners"),
    ),
)
LEVEL_NEWEST: Final = len(LEVELS) - 1  # the highest level that this release reads and writes
LEVEL_OF: Final[dict[type[Any], int]] = {kind: number for number, level in enumerate(LEVELS) for kind in level.kinds}


class Features:
    """The present level, and the record that set it.

    A node that reads only up to `level` can follow the journal from `switched_n` on: every record of a higher level
    comes before.

    Invariant: `0 <= level <= LEVEL_NEWEST`.
    """

    __slots__ = ("level", "switched_n")

    def __init__(self) -> None:
        self.level = 0
        self.switched_n = 0

    def switch(self, level: int, n: int) -> None:
        """Record `n` sets the level."""
        self.level, self.switched_n = level, n

    def allow(self, kind: type[Any]) -> bool:
        """Whether records of this kind may be written."""
        return LEVEL_OF.get(kind, 0) <= self.level or kind is FeatureLevel

    def check(self) -> None:
        """Raise `InvariantBroken` unless the invariant holds."""
        ensure(0 <= self.level <= LEVEL_NEWEST, "this release can read the feature level", self.level)
