"""The use of the pool's memory by segment, counted in small steps because segments have millions of blocks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from leasehold.index.leases import Leases
from leasehold.index.model import CopyJob, Object, Quarantined, Segment

if TYPE_CHECKING:
    from leasehold.index.index import Index

KINDS: Final = ("leased", "pinned", "evictable", "writing", "quarantined", "prepared")


class SegmentUse(Struct, frozen=True):
    """How one segment's bytes are used. The parts and the free bytes add up to `total_bytes`."""

    name: str
    endpoint: str
    total_bytes: int
    used_bytes: int
    parts_bytes: dict[str, int]  # by kind
    objects: int
    draining: bool = False
    proven: bool = True  # False: its owner has not pinged since a complete restart


class PoolSurvey:
    """Walks over all segments again and again. `result` is the last complete walk."""

    def __init__(self) -> None:
        self.result: tuple[SegmentUse, ...] = ()
        self._left: list[Segment] = []
        self._found: list[SegmentUse] = []
        self._at = 0  # offset in the first segment of `_left`
        self._bytes: Counter[str] = Counter()
        self._objects = 0

    def step(self, index: Index, budget_blocks: int) -> None:
        """Look at about `budget_blocks` more blocks. A standby counts by the last leader time that it has seen."""
        if not self._left:
            self._left = list(index.space.segments.values())
            if not self._left:
                self.result = ()
                return
        now = index.clock.latest
        while self._left and budget_blocks > 0:
            budget_blocks -= self._walk(self._left[0], index.leases, now, budget_blocks)
        if not self._left:
            self.result, self._found = tuple(self._found), []

    def _walk(self, segment: Segment, leases: Leases, now: int, limit: int) -> int:
        """Count blocks of one segment from `_at` on; returns how much of the budget that took."""
        allocator = segment.allocator
        blocks = [] if segment.unmounted else allocator.used_from(self._at, limit)
        for _, owner in blocks:
            self._bytes[kind_of(owner, leases, now)] += owner.size
            self._objects += isinstance(owner, Object)
        if len(blocks) == limit:
            self._at = blocks[-1][0] + 1
            return limit
        self._end(segment)
        return len(blocks) + 1

    def _end(self, segment: Segment) -> None:
        self._left.pop(0)
        if not segment.unmounted:
            spec = segment.spec
            parts = {kind: self._bytes[kind] for kind in KINDS}
            used = sum(parts.values())
            self._found.append(
                SegmentUse(
                    spec.name,
                    spec.endpoint,
                    spec.size,
                    used,
                    parts,
                    self._objects,
                    draining=bool(segment.drain_end),
                    proven=segment.proven,
                )
            )
        self._at, self._objects = 0, 0
        self._bytes.clear()


def kind_of(owner: object, leases: Leases, now: int) -> str:
    """The kind of use of one block."""
    if isinstance(owner, Object):
        if not owner.visible:
            return "writing"
        if owner.hard_pin or owner.soft_pin_end > now:
            return "pinned"
        return "leased" if leases.end_of(owner) > now else "evictable"
    if isinstance(owner, Quarantined):
        return "quarantined"
    return "writing" if isinstance(owner, CopyJob) else "prepared"
