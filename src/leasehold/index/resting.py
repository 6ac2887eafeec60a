"""Limbo: extents that have left their object and may still be read or written. Nobody is given them meanwhile (P2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from leasehold.base.limits import quarantine_step_extents
from leasehold.index.allocator import rounded
from leasehold.index.model import Quarantined, Replica, RetiredSegment, Segment
from leasehold.index.settings import IndexSettings
from leasehold.index.state import State


class RestingSpace(State):
    """Space that is let go rests for a while, then is free. Memory that goes away takes what rests into a grave."""

    def __init__(self, settings: IndexSettings, choose: Callable[[int], int]) -> None:
        super().__init__(settings, choose)
        self.quarantine: list[
            tuple[int, int, int, int, Quarantined]
        ] = []  # heap by end; see `by_end` and `limbo_end_of`
        self.resting_count = 0  # extents in limbo
        self.resting_bytes = 0
        self.rest_begun: list[Quarantined] | None = (
            None  # while a walk goes through limbo: what came to rest (see `walk`)
        )
        self.in_doubt: dict[int, list[tuple[int, int]]] = {}  # incarnation: (start, end); see `doubt`
        self.lifted = (0, 0, 0)  # the last `begin` that gave grace: record, internal time, length
        self.retired: list[RetiredSegment] = []

    def _release(self, segment: Segment, offset: int) -> None:
        self.used_bytes -= segment.space.release(offset)

    def _let_go(self, replicas: Iterable[Replica], size: int, n: int, now: int, quarantine_ms: int) -> None:
        """Extents leave their object: free at once, or after `limbo_ms` in limbo."""
        for replica in replicas:
            segment = replica.segment
            if segment.unmounted:
                continue
            if quarantine_ms > 0:
                entry = Quarantined(segment, replica.offset, size, quarantine_ms, now + quarantine_ms, n)
                segment.space.pass_on(replica.offset, entry)
                self._begin_rest(entry)
            else:
                self.used_bytes -= segment.space.release(replica.offset)

    def _rest(self, segment: Segment, offset: int, size: int, n: int, now: int, quarantine_ms: int) -> None:
        """Put free space into limbo."""
        entry = Quarantined(segment, offset, size, quarantine_ms, now + quarantine_ms, n)
        space = segment.space
        space.claim(offset, entry)
        self.used_bytes += rounded(size)
        self._begin_rest(entry)

    def _begin_rest(self, entry: Quarantined) -> None:
        """It has its place: from here on it is counted, found when its time is over, and seen by a walk under way."""
        self._count_resting(entry, 1)
        heappush(self.quarantine, by_end(entry))
        if self.rest_begun is not None:
            self.rest_begun.append(entry)

    def _count_resting(self, entry: Quarantined, by: int) -> None:
        self.resting_count += by
        self.resting_bytes += by * rounded(entry.size)

    def limbo_end_of(self, entry: Quarantined) -> int:
        """When an extent's time in limbo is over, in internal time: with the grace that `begin` gave to all of them.

        Its place in the heap may be too early: that is found out when its turn comes. There may be a million of them,
        and an epoch begins without going through them.
        """
        n, at, grace_ms = self.lifted
        return entry.end if entry.n >= n else max(entry.end, at + max(grace_ms, entry.duration_ms))

    def _free_limbo(self, now: int, doubted_n: int = -1) -> bool:
        """What has been in limbo long enough is free; whether there is more of it. No record: a later claim tells.

        A follower doubts what came to rest up to record `doubted_n`, as it does what was free then (see `doubt`).
        """
        heap = self.quarantine
        for _ in range(quarantine_step_extents):
            if not heap or heap[0][0] > now:
                return False
            entry = heappop(heap)[4]
            segment = entry.segment
            if segment.unmounted or segment.space.owners.get(entry.offset) is not entry:
                continue
            entry.end = self.limbo_end_of(entry)
            if entry.end > now:
                heappush(heap, by_end(entry))
            else:
                self._release(segment, entry.offset)
                self._count_resting(entry, -1)
                if entry.n <= doubted_n and segment.evicted:
                    stretch = entry.offset, entry.offset + rounded(entry.size)
                    self.in_doubt.setdefault(segment.incarnation, []).append(stretch)
        return bool(heap) and heap[0][0] <= now

    def _live_limbo(self, of: Segment | None = None) -> list[Quarantined]:
        """What is in limbo, or what of it is on one segment (also one that is just ending)."""
        return [
            entry
            for *_, entry in self.quarantine
            if (entry.segment is of or (of is None and not entry.segment.unmounted))
            and entry.segment.space.owners.get(entry.offset) is entry
        ]

    def quarantined(self) -> tuple[int, int]:
        """How many extents are in limbo, and their bytes."""
        return self.resting_count, self.resting_bytes

    def _lift_limbo(self, n: int, now: int, grace_ms: int) -> None:
        # Each `begin` reaches further than the one before (an older grace has passed by then): the last one will do.
        self.lifted = (n, now, grace_ms)
        for serious in self.retired:
            if serious.duration_ms:
                serious.end = max(serious.end, now + max(grace_ms, serious.duration_ms))
            for extent in serious.extents:
                extent.end = max(extent.end, now + max(grace_ms, extent.duration_ms))


def by_end(entry: Quarantined) -> tuple[int, int, int, int, Quarantined]:
    """A place in the heap; the numbers are unique, so that two entries are never compared themselves."""
    return entry.end, entry.n, entry.segment.incarnation, entry.offset, entry
