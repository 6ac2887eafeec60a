"""Choosing segments and extents for new objects."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from leasehold.index.clock import LeaderClock
from leasehold.index.disk_capacity import DiskCapacity
from leasehold.index.model import PutConfig, Segment
from leasehold.index.newcomers import Newcomers
from leasehold.index.records import Extent
from leasehold.index.settings import IndexSettings
from leasehold.index.space.space import Space
from leasehold.index.strategies import make_strategy


class Placement:
    """Finds free extents. It takes none of them: the record that names them does.

    Segments are tried in this order: those that the put names, those of the host that it names, those that the
    strategy ranks, all others from a random start. So a strategy never makes a put fail or evict.
    """

    __slots__ = ("_choose", "_newcomers", "_ranks_by_host", "_space", "_strategy", "disks")

    def __init__(self, settings: IndexSettings, clock: LeaderClock, space: Space, choose: Callable[[int], int]) -> None:
        """`choose(n)` returns a number in 0..n-1."""
        self._space = space
        self._choose = choose
        self._newcomers = Newcomers(clock, settings.newcomer_ramp_ms)
        self.disks = DiskCapacity()
        name = settings.allocation
        self._strategy = make_strategy(name, choose, self._newcomers, self.disks, settings.host_labels)
        self._ranks_by_host = name == "local-first"

    def place(self, size: int, config: PutConfig) -> tuple[Extent, ...]:
        """Up to `config.replicas` extents on different segments; empty if there is none at all."""
        candidates = self._space.segments.placeable[config.native]
        if not candidates:
            return ()
        if (
            config.replicas == 1
            and not config.preferred_segments
            and not config.preferred_host
            and not (self._ranks_by_host and config.host)
        ):
            first = candidates[0] if len(candidates) == 1 else self._strategy.first(candidates, size)
            offset = self._find_on(first, size)
            if offset >= 0:
                found = (Extent(first.incarnation, offset),)
                self._newcomers.placed(found, size)
                return found
            if len(candidates) == 1:
                return ()
        extents = self.place_on(self._in_order(candidates, size, config), size, config.replicas)
        self._newcomers.placed(extents, size)
        return extents

    def _find_on(self, segment: Segment, size: int) -> int:
        """The offset of a free extent of this size, or -1. Suspect space of the segment is settled first."""
        unsettled = self._space.unsettled
        if unsettled and segment.incarnation in unsettled:
            self._space.settle_segment(segment.incarnation, segment.allocator.size)
        return segment.allocator.find(size)

    def place_on(self, candidates: Iterable[Segment], size: int, wanted: int) -> tuple[Extent, ...]:
        """Up to `wanted` extents on different segments, in the order of the candidates."""
        found: list[Extent] = []
        tried: set[int] = set()
        for segment in candidates:
            if segment.incarnation in tried:
                continue
            tried.add(segment.incarnation)
            offset = self._find_on(segment, size)
            if offset >= 0:
                found.append(Extent(segment.incarnation, offset))
                if len(found) == wanted:
                    break
        return tuple(found)

    def _in_order(self, candidates: list[Segment], size: int, config: PutConfig) -> Iterable[Segment]:
        """Preferred segments first, then some by the strategy, then all others from a random start."""
        if config.preferred_segments:
            for name in config.preferred_segments:
                for segment in self._space.segments.by_name.get(name):
                    if segment.placeable and segment.native == config.native:
                        yield segment
        if config.preferred_host:
            yield from (segment for segment in candidates if segment.spec.host_id == config.preferred_host)
        count = len(candidates)
        start = self._choose(count)
        yield from self._strategy.ranked(candidates, size, config)
        for step in range(count):
            yield candidates[(start + step) % count]

    def largest_bytes(self, native: bool) -> int:
        """The size of the largest segment for new objects."""
        return max((segment.allocator.size for segment in self._space.segments.placeable[native]), default=0)

    def forget_dead(self, clients: Container[bytes]) -> None:
        """Forget unmounted segments, and all clients but these."""
        self._newcomers.forget_old(self._space.segments)
        self.disks.forget_all_but(clients)
