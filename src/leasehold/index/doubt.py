"""Space that this node takes for free, and the present leader perhaps does not.

An eviction has no record, so nodes differ: one has evicted an object, or has heard the hint, or was built from a
snapshot without it; another still has it, leads next, and rightly serves it under a lease. When that one dies, the
first must not give that space away before the lease is over, though it has never heard of it.

So at each `begin` of another node, what is free here in segments where anything was ever evicted is *in doubt*: the new
leader may have objects there. What it claims or evicts itself is not. If this node leads next, what is still free of
it rests as long as every other lease does. Space that was never evicted from is never in doubt.

What rests here at that moment is not free, and is in doubt from when it is: what rests is not the same on every node.
It may be space that was in doubt under the leader before, or that a snapshot said rests and somebody was given since.
"""

from __future__ import annotations

from leasehold.index.mounts import Mounts


class Doubt(Mounts):
    """A follower remembers the doubtful; a leader lets it rest."""

    def _doubt_free_space(self) -> None:
        """Another node leads from here on."""
        self.in_doubt = [
            (segment.incarnation, start, length)
            for segment in self.segments.values()
            if segment.evicted
            for start, length in segment.space.free_blocks()
        ]

    def _rest_in_doubt(self, n: int, now: int) -> None:
        """This node leads from `begin`, record `n`, on: what is in doubt and still free rests through the grace."""
        doubts: dict[int, list[tuple[int, int]]] = {}
        for incarnation, start, length in self.in_doubt:
            doubts.setdefault(incarnation, []).append((start, start + length))
        self.in_doubt = []
        rest_ms = self.floor - now
        if rest_ms <= 0:
            return
        for incarnation, stretches in doubts.items():
            segment = self.segments.get(incarnation)
            if segment is None:
                continue
            free = [(start, start + length) for start, length in segment.space.free_blocks()]
            for start, end in _common(_joined(stretches), sorted(free)):
                self._rest(segment, start, end - start, n, now, rest_ms)


def _joined(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """In order, and each byte once: what was in doubt, was claimed and has rested since may be in doubt twice."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined


def _common(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where two sorted lists of stretches overlap."""
    found, at = [], 0
    for start, end in some:
        while at < len(others) and others[at][1] <= start:
            at += 1
        look = at
        while look < len(others) and others[look][0] < end:
            found.append((max(start, others[look][0]), min(end, others[look][1])))
            look += 1
    return found
