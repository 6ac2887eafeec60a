"""Retired segments: which bytes of unmounted memory may still be read or written."""

from __future__ import annotations

from leasehold.base.invariants import ensure
from leasehold.index.model import RetiredExtent, RetiredSegment, SegmentSpec


class RetiredSegments:
    """Unmounted memory, by endpoint and address. If it is mounted again, these bytes start in quarantine.

    Invariant: every retired segment has extents, or counts as a whole until its `end`.
    """

    __slots__ = ("_segments",)

    def __init__(self) -> None:
        self._segments: list[RetiredSegment] = []

    def all(self) -> list[RetiredSegment]:
        """Every retired segment."""
        return list(self._segments)

    def add(self, spec: SegmentSpec, now: int, whole_ms: int, extents: list[RetiredExtent]) -> None:
        """Remember an unmounted segment: `extents`, and all of it for `whole_ms`."""
        if extents or whole_ms:
            end = now + whole_ms
            self._segments.append(RetiredSegment(spec.endpoint, spec.base, spec.size, end, whole_ms, extents))

    def under(self, spec: SegmentSpec) -> list[RetiredSegment]:
        """The retired segments whose memory this segment overlaps."""
        return [each for each in self._segments if overlap(spec, each.endpoint, each.base, each.size)]

    def lift(self, now: int, grace_ms: int) -> None:
        """An epoch began: every end is at least the grace, or its own duration again, if longer."""
        for segment in self._segments:
            if segment.duration_ms:
                segment.end = max(segment.end, now + max(grace_ms, segment.duration_ms))
            for extent in segment.extents:
                extent.end = max(extent.end, now + max(grace_ms, extent.duration_ms))

    def prune(self, now: int) -> None:
        """Forget expired extents and segments."""
        if self._segments:
            for segment in self._segments:
                segment.extents = [extent for extent in segment.extents if extent.end > now]
            self._segments = [segment for segment in self._segments if segment.extents or segment.end > now]

    def load(self, segments: list[RetiredSegment]) -> None:
        """Continue from a snapshot."""
        self._segments = segments

    def check(self) -> None:
        """Raise `InvariantBroken` unless the invariant holds."""
        for segment in self._segments:
            ensure(segment.end or segment.extents, "a retired segment protects something", segment.endpoint)


def overlap(spec: SegmentSpec, endpoint: str, base: int, size: int) -> bool:
    """The same bytes: one endpoint, and addresses that overlap (H8: the endpoint's name alone is not enough)."""
    return spec.endpoint == endpoint and spec.base < base + size and base < spec.base + spec.size
