"""A walk over the quarantine in short steps, while the state changes.

The walk is by place: an extent in quarantine does not move, so an extent that is in quarantine from before the walk
until after it is met. Additions during the walk are collected (`Quarantine.watch`). So every extent that is in
quarantine at the end was reported. An extent that was reported and has left the quarantine does no harm: an owner that
got its place since has a higher number (docs/why/index.md has the argument).
"""

from __future__ import annotations

from leasehold.base.invariants import ensure
from leasehold.index.model import Quarantined, Segment
from leasehold.index.space.quarantine import is_quarantined
from leasehold.index.space.space import Space

_LOOKS_PER_EXTENT = 8  # looking at this many other blocks takes as long as saving one extent


class QuarantineWalk:
    """One walk over one index. There is one at a time: a new one ends the one before."""

    __slots__ = ("_ahead", "_begun", "_next_offset", "_quarantine")

    def __init__(self, space: Space) -> None:
        self._quarantine = space.quarantine
        self._ahead: list[Segment] = list(space.segments.values())[::-1]  # the last one is the current one
        self._next_offset = 0
        self._begun: list[Quarantined] = self._quarantine.watch()

    def is_short(self, extents_max: int) -> bool:
        """Whether the rest fits into one step."""
        return not self._ahead and len(self._begun) <= extents_max

    def step(self, extents_max: int) -> list[Quarantined]:
        """Some extents, at most about `extents_max`; none, if none was met on a stretch of this length."""
        self._ensure_watched()
        if self._ahead:
            return self._look(extents_max)
        some = self._begun[-extents_max:]  # in no order: cutting a long list at its end is cheap
        del self._begun[-extents_max:]
        return [entry for entry in some if is_quarantined(entry)]

    def _look(self, extents_max: int) -> list[Quarantined]:
        found: list[Quarantined] = []
        looks = extents_max * _LOOKS_PER_EXTENT
        while self._ahead and looks > 0 and len(found) < extents_max:
            segment = self._ahead[-1]
            # A stretch of as many blocks as may still be found: then the bound holds, whatever they are.
            stretch = min(looks, extents_max - len(found))
            blocks = [] if segment.unmounted else segment.allocator.used_from(self._next_offset, stretch)
            found += [owner for _, owner in blocks if type(owner) is Quarantined]
            looks -= len(blocks) + 1
            if len(blocks) == stretch:
                self._next_offset = blocks[-1][0] + 1
            else:
                self._ahead.pop()
                self._next_offset = 0
        return found

    def rest(self) -> list[Quarantined]:
        """Every extent that was not reported yet, in one step. The walk is finished."""
        self._ensure_watched()
        found: list[Quarantined] = []
        while self._ahead:
            found += self._look(1 << 30)
        found += [entry for entry in self._begun if is_quarantined(entry)]
        self.end()
        return found

    def end(self) -> None:
        """Stop, whether the walk is finished or not."""
        self._quarantine.unwatch(self._begun)

    def _ensure_watched(self) -> None:
        ensure(self._quarantine.watched is self._begun, "P2 a walk over the quarantine sees all additions")
