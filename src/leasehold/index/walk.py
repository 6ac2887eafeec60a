"""Going through all that rests in short steps, while the state goes on.

By place: an extent in limbo does not move, so one that rests from before the walk until after it is met. What comes to
rest meanwhile the index tells (`rest_begun`). So what rests at the end is among what was told; what was told and rests
no more does no harm, for whoever was given its place since has a higher number (docs/why/index.md has the argument).
"""

from __future__ import annotations

from leasehold.base.invariants import ensure
from leasehold.index.model import Quarantined, Segment
from leasehold.index.mounts import Mounts

_LOOKS_PER_EXTENT = 8  # looking at so many blocks that do not rest takes as long as saving one that does


class QuarantineWalk:
    """One walk over one index. The index knows of one at a time: a new one ends the one before."""

    __slots__ = ("_ahead", "_begun", "_index", "_next_offset")

    def __init__(self, index: Mounts) -> None:
        self._index = index
        self._ahead: list[Segment] = list(index.segments.values())[::-1]  # the last one is being walked over
        self._next_offset = 0
        self._begun: list[Quarantined] = []
        index.rest_begun = self._begun

    def is_short(self, extents_max: int) -> bool:
        """Whether all that is left can be told in one step."""
        return not self._ahead and len(self._begun) <= extents_max

    def step(self, extents_max: int) -> list[Quarantined]:
        """Some of what rests, at most about `extents_max`; nothing, if nothing was met on a stretch of this length."""
        self._go_on_watching()
        if self._ahead:
            return self._look(extents_max)
        some = self._begun[-extents_max:]  # in no order: from the end a long list is cut at once
        del self._begun[-extents_max:]
        return [entry for entry in some if _rests(entry)]

    def _look(self, extents_max: int) -> list[Quarantined]:
        found: list[Quarantined] = []
        looks = extents_max * _LOOKS_PER_EXTENT
        while self._ahead and looks > 0 and len(found) < extents_max:
            segment = self._ahead[-1]
            # A stretch of as many blocks as may rest: then the bound holds, whatever they are.
            stretch = min(looks, extents_max - len(found))
            starts = [] if segment.unmounted else segment.space.used_from(self._next_offset, stretch)
            owners = segment.space.owners
            found += [owner for start in starts if type(owner := owners[start]) is Quarantined]
            looks -= len(starts) + 1
            if len(starts) == stretch:
                self._next_offset = starts[-1] + 1
            else:
                self._ahead.pop()
                self._next_offset = 0
        return found

    def rest(self) -> list[Quarantined]:
        """All that was not told yet, in one step; the walk is over."""
        self._go_on_watching()
        found: list[Quarantined] = []
        while self._ahead:
            found += self._look(1 << 30)
        found += [entry for entry in self._begun if _rests(entry)]
        self.end()
        return found

    def end(self) -> None:
        """Whether it came to its end or not: the index need not remember any more what comes to rest."""
        if self._index.rest_begun is self._begun:
            self._index.rest_begun = None

    def _go_on_watching(self) -> None:
        ensure(self._index.rest_begun is self._begun, "P2 a walk over what rests was told of all that came to rest")


def _rests(entry: Quarantined) -> bool:
    return not entry.segment.unmounted and entry.segment.space.owners.get(entry.offset) is entry
