"""Where new objects go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leasehold.index.apply import Apply
from leasehold.index.model import PutConfig, Segment
from leasehold.index.records import Extent

_SAMPLE = 6  # how many segments are compared for the freest, if there are many


class Placement(Apply):
    """Choosing extents. Nothing is taken here: the record that names them takes them."""

    def _place(self, size: int, config: PutConfig) -> tuple[Extent, ...]:
        """Up to `config.replicas` places on different segments; empty if there is none at all."""
        candidates = self.segments.placeable[config.native]
        if not candidates:
            return ()
        if config.replicas == 1 and not config.preferred_segments and not config.preferred_host:
            first = candidates[0] if len(candidates) == 1 else self._first_choice(candidates)
            offset = self._find_on(first, size)
            if offset >= 0:
                return (Extent(first.incarnation, offset),)
            if len(candidates) == 1:
                return ()
        return self._places_on(self._in_order(candidates, config), size, config.replicas)

    def _first_choice(self, candidates: list[Segment]) -> Segment:
        """Which segment the strategy would try first: it nearly always has room."""
        if self.settings.allocation != "free-ratio-first":
            return candidates[self.choose(len(candidates))]
        best, least_used = candidates[0], 1.0
        for segment in self._sample(candidates, 1):
            space = segment.space
            used = space.used_bytes / space.size
            if used < least_used:
                best, least_used = segment, used
        return best

    def _find_on(self, segment: Segment, size: int) -> int:
        """Where it would fit, or -1. (Doubts are settled first: what is doubtful is not free.)"""
        if self.unsettled and segment.incarnation in self.unsettled:
            self._settle(segment.incarnation, segment.space.size)
        return segment.space.find(size)

    def _places_on(self, candidates: Iterable[Segment], size: int, wanted: int) -> tuple[Extent, ...]:
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
        """Preferred ones first, then a few by the strategy, then all the rest from a random start."""
        if config.preferred_segments:
            for name in config.preferred_segments:
                for segment in self.segments.by_name.get(name):
                    if segment.placeable and segment.native == config.native:
                        yield segment
        if config.preferred_host:
            yield from (segment for segment in candidates if segment.spec.host_id == config.preferred_host)
        count = len(candidates)
        start = self.choose(count)
        if self.settings.allocation == "free-ratio-first":
            yield from sorted(self._sample(candidates, config.replicas), key=_free_ratio, reverse=True)
        for step in range(count):
            yield candidates[(start + step) % count]

    def _sample(self, candidates: list[Segment], wanted: int) -> Sequence[Segment]:
        if len(candidates) <= _SAMPLE + wanted:
            return candidates
        return [candidates[self.choose(len(candidates))] for _ in range(_SAMPLE + wanted)]

    def _largest_bytes(self, native: bool) -> int:
        return max((segment.space.size for segment in self.segments.placeable[native]), default=0)


def _free_ratio(segment: Segment) -> float:
    return segment.space.free_bytes / segment.space.size
