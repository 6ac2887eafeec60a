"""Bugs of the drain jobs, planted from outside."""

from __future__ import annotations

import msgspec

from leasehold.index.draining import Draining
from leasehold.index.drains import DrainJob, Drains
from leasehold.index.index import Index
from leasehold.index.model import Segment
from leasehold.index.snapshot_export import SnapshotExport
from leasehold.index.snapshot_format import Keyless
from leasehold.index.space.walk import QuarantineWalk


def bend_drains(bugs: frozenset[str], index: Index) -> None:
    """Plant bugs into a new index."""
    if "snapshot-without-drains" in bugs:
        index.export.__class__ = ExportWithoutDrains
    if "drain-ends-early" in bugs:
        index.draining.__class__ = HastyDraining
    if "drained-is-placeable" in bugs:
        index.drains.__class__ = OpenDrains


class ExportWithoutDrains(SnapshotExport):
    """Snapshots lack the drain jobs."""

    __slots__ = ()

    def keyless(self, walk: QuarantineWalk | None = None) -> Keyless:
        return msgspec.structs.replace(super().keyless(walk), drains=())


class HastyDraining(Draining):
    """A job ends although objects are left."""

    __slots__ = ()

    def _is_used(self, segment: Segment) -> bool:
        return False


class OpenDrains(Drains):
    """The end of a job makes its segments take new objects."""

    __slots__ = ()

    def mounts_of(self, job: DrainJob) -> tuple[int, ...]:
        mounts = super().mounts_of(job)
        self._space.set_draining(mounts, False)
        return mounts
