"""A limit on what a newly mounted segment receives."""

from __future__ import annotations

from leasehold.index.clock import LeaderClock
from leasehold.index.model import Segment
from leasehold.index.records import Extent


class Newcomers:
    """Limits the share of new bytes that a segment receives in its first minute (the *ramp*).

    An empty segment among full ones wins every comparison of free space. Without a limit it receives nearly all puts,
    its host's network becomes the bottleneck of the pool, and all recent objects are lost with that one host.

    Of n segments, a newcomer receives at most 1/n of the new bytes when it joins, growing linearly to 2/n at the end
    of the ramp. The limit only orders the choices: a segment that is held back is used where no other has space, so
    the ramp never makes a put fail or evict.

    State of a primary alone: a successor starts to count again.
    """

    __slots__ = ("_clock", "_given", "_placed_before", "_placed_bytes", "_ramp_ms")

    def __init__(self, clock: LeaderClock, ramp_ms: int) -> None:
        self._clock = clock
        self._ramp_ms = ramp_ms
        self._placed_bytes = 0
        # By incarnation: what a newcomer received, and what was placed in all before it was first considered.
        self._given: dict[int, int] = {}
        self._placed_before: dict[int, int] = {}

    def placed(self, extents: tuple[Extent, ...], size: int) -> None:
        """Count an object that was placed."""
        self._placed_bytes += size * len(extents)
        if self._given:
            for extent in extents:
                if extent.incarnation in self._given:
                    self._given[extent.incarnation] += size

    def holds_back(self, segment: Segment, size: int, count: int) -> bool:
        """Whether this segment, one of `count`, has its share of new bytes already."""
        age_ms, incarnation = self._clock.latest - segment.joined, segment.incarnation
        if age_ms >= self._ramp_ms or count <= 2:
            return False
        given = self._given.setdefault(incarnation, 0)
        placed = self._placed_bytes - self._placed_before.setdefault(incarnation, self._placed_bytes)
        return given + size > (1 + age_ms / self._ramp_ms) / count * (placed + size)

    def forget_old(self, mounted: dict[int, Segment]) -> None:
        """Forget segments that are no longer mounted, or no longer new."""
        for incarnation in list(self._given):
            segment = mounted.get(incarnation)
            if segment is None or self._clock.latest - segment.joined >= self._ramp_ms:
                del self._given[incarnation], self._placed_before[incarnation]
