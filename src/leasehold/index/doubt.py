"""Space that this node takes for free, and the present leader perhaps does not.

An eviction has no record, so nodes differ: one has evicted an object, or has heard the hint, or was built from a
snapshot without it; another still has it, leads next, and rightly serves it under a lease. When that one dies, the
first must not give that space away before the lease is over, though it has never heard of it.

So at each `begin` of another node, what is free here in segments where anything was ever evicted is *in doubt*: the new
leader may have objects there. What it claims or evicts itself is not. If this node leads next, what is still free of
it rests as long as every other lease does. Space that was never evicted from is never in doubt.

What rests here at that moment is not free, and is in doubt from when it is: what rests is not the same on every node.
It may be space that was in doubt under the leader before, or that a snapshot said rests and somebody was given since.

There may be hundreds of thousands of free places, and an epoch begins without going through them: a leader *settles*
its doubts between requests, and those about a segment before it places anything there. What is not settled when the
grace is over was in doubt for nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from leasehold.index.model import Segment
from leasehold.index.mounts import Mounts
from leasehold.index.settings import IndexSettings


class Doubt(Mounts):
    """A follower remembers the doubtful; a leader lets it rest."""

    def __init__(self, settings: IndexSettings, choose: Callable[[int], int]) -> None:
        super().__init__(settings, choose)
        self.unsettled: dict[int, list[tuple[int, int]]] = {}  # as `in_doubt`, of a leader: to rest until `floor`

    def _doubt_free_space(self) -> None:
        """Another node leads from here on."""
        self.unsettled = {}
        self.in_doubt = {
            segment.incarnation: [(start, start + length) for start, length in segment.space.free_blocks()]
            for segment in self.segments.values()
            if segment.evicted
        }

    def _begin_settling(self) -> None:
        """This node leads from `begin` on: what is in doubt and still free rests through the grace."""
        for incarnation, stretches in self.in_doubt.items():
            self.unsettled.setdefault(incarnation, []).extend(stretches)
        self.in_doubt = {}

    def _settle_some(self, now: int, budget: int) -> bool:
        """Settle about so many doubts, unless the grace is over; whether there are more."""
        if now >= self.floor:
            self.unsettled = {}
        for incarnation in list(self.unsettled):
            budget = self._settle(incarnation, budget)
            if budget <= 0:
                break
        return bool(self.unsettled)

    def _settle(self, incarnation: int, budget: int) -> int:
        """Settle doubts about one segment; what is left of the budget."""
        segment, stretches = self.segments.get(incarnation), self.unsettled[incarnation]
        while segment is not None and stretches and budget > 0:
            start, end = stretches.pop()
            for free_start, free_end in segment.space.free_within(start, end):
                if budget <= 0:
                    stretches.append((free_start, end))
                    break
                self._rest_doubtful(segment, free_start, free_end)
                budget -= 1
        if segment is None or not stretches:
            del self.unsettled[incarnation]
        return budget

    def _rest_doubtful(self, segment: Segment, start: int, end: int) -> None:
        """The same, whenever it is settled: as if it had been when the epoch began."""
        began = self.epoch_start
        self._rest(segment, start, end - start, self.begin_n, began, self.floor - began)

    def _all_in_doubt(self) -> tuple[tuple[int, list[tuple[int, int]]], ...]:
        """For whoever is built from a snapshot: what a leader has not settled is in doubt there too."""
        return (*self.in_doubt.items(), *self.unsettled.items())
