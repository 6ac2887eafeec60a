"""Choosing segments and extents for new objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from leasehold.index.model import PutConfig, Segment
from leasehold.index.records import Extent
from leasehold.index.space.space import Space

_SAMPLE = 6  # segments that are compared for the freest one, if there are many


class Placement:
    """Finds free extents. It takes none of them: the record that names them does."""

    __slots__ = ("_choose", "_free_first", "_space")

    def __init__(self, space: Space, allocation: str, choose: Callable[[int], int]) -> None:
        """`choose(n)` returns a number in 0..n-1."""
        self._space = space
        self._free_first = allocation == "free-ratio-first"
        self._choose = choose

    def place(self, size: int, config: PutConfig) -> tuple[Extent, ...]:
        """Up to `config.replicas` extents on different segments; empty if there is none at all."""
        candidates = self._space.segments.placeable[config.native]
        if not candidates:
            return ()
        if config.replicas == 1 and not config.preferred_segments and not config.preferred_host:
            first = candidates[0] if len(candidates) == 1 else self._first_choice(candidates)
            offset = self._find_on(first, size)
            if offset >= 0:
                return (Extent(first.incarnation, offset),)
            if len(candidates) == 1:
                return ()
        return self.place_on(self._in_order(candidates, config), size, config.replicas)

    def _first_choice(self, candidates: list[Segment]) -> Segment:
        """The segment that the strategy tries first: it nearly always has space."""
        if not self._free_first:
            return candidates[self._choose(len(candidates))]
        best, least_used = candidates[0], 1.0
        for segment in self._sample(candidates, 1):
            allocator = segment.allocator
            used = allocator.used_bytes / allocator.size
            if used < least_used:
                best, least_used = segment, used
        return best

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

    def _in_order(self, candidates: list[Segment], config: PutConfig) -> Iterable[Segment]:
        """Preferred segments first, then a few by the strategy, then all others from a random start."""
        if config.preferred_segments:
            for name in config.preferred_segments:
                for segment in self._space.segments.by_name.get(name):
                    if segment.placeable and segment.native == config.native:
                        yield segment
        if config.preferred_host:
            yield from (segment for segment in candidates if segment.spec.host_id == config.preferred_host)
        count = len(candidates)
        start = self._choose(count)
        if self._free_first:
            yield from sorted(self._sample(candidates, config.replicas), key=_free_ratio, reverse=True)
        for step in range(count):
            yield candidates[(start + step) % count]

    def _sample(self, candidates: list[Segment], wanted: int) -> Sequence[Segment]:
        if len(candidates) <= _SAMPLE + wanted:
            return candidates
        return [candidates[self._choose(len(candidates))] for _ in range(_SAMPLE + wanted)]

    def largest_bytes(self, native: bool) -> int:
        """The size of the largest segment for new objects."""
        return max((segment.allocator.size for segment in self._space.segments.placeable[native]), default=0)


def _free_ratio(segment: Segment) -> float:
    return segment.allocator.free_bytes / segment.allocator.size
