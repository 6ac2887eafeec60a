"""Quarantine: extents that have left their object and may still be read or written (P2)."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from leasehold.base.invariants import ensure
from leasehold.index.model import Quarantined, Segment


class Quarantine:
    """The extents in quarantine, by their end. None of them is handed out before.

    An extent in quarantine is an allocated block whose owner is a `Quarantined`. There is no second bookkeeping that
    could disagree with the allocator: an entry whose block has another owner has left the quarantine.

    Invariants: every live entry is in the heap, at or before its end; `count` and `bytes` are those of live entries.
    """

    __slots__ = ("_heap", "_lifted", "_pushed", "bytes", "count", "watched")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Quarantined]] = []  # by end; the second number is unique
        self._pushed = 0
        self._lifted = (0, 0, 0)  # the last `begin` that gave grace: record, internal time, length
        self.count = 0
        self.bytes = 0
        self.watched: list[Quarantined] | None = None  # additions, while a `QuarantineWalk` is under way

    def __len__(self) -> int:
        """Entries in the heap, also those that have left the quarantine early."""
        return len(self._heap)

    def add(self, entry: Quarantined) -> None:
        """An extent, which owns its block already, is in quarantine from now on."""
        self.count += 1
        self.bytes += entry.segment.allocator.rounded(entry.size)
        self._push(entry)
        if self.watched is not None:
            self.watched.append(entry)

    def _push(self, entry: Quarantined) -> None:
        """A replay may add an extent a second time, while the first entry, which has left, is still in the heap.

        So not even end, record and place together are unique.
        """
        self._pushed += 1
        heappush(self._heap, (entry.end, self._pushed, entry))

    def left(self, entry: Quarantined) -> None:
        """An extent has left the quarantine: freed, displaced, or its segment was unmounted."""
        self.count -= 1
        self.bytes -= entry.segment.allocator.rounded(entry.size)

    def end_of(self, entry: Quarantined) -> int:
        """When an extent leaves the quarantine, in internal time, with the grace that `begin` gave to all of them.

        Its place in the heap may be too early; that is corrected when it reaches the top. There may be a million
        entries, and an epoch begins without a walk over them.
        """
        n, at, grace_ms = self._lifted
        return entry.end if entry.n >= n else max(entry.end, at + max(grace_ms, entry.duration_ms))

    def lift(self, n: int, now: int, grace_ms: int) -> None:
        """Record `n` began an epoch: every older entry stays for the grace, or for its own duration again, if longer.

        Each `begin` reaches further than the one before, so the last one is enough.
        """
        self._lifted = (n, now, grace_ms)

    def has_expired(self, now: int) -> bool:
        """Whether an entry is due (it may turn out to have a later end)."""
        return bool(self._heap) and self._heap[0][0] <= now

    def take_expired(self, now: int, limit: int) -> list[Quarantined]:
        """Take out expired entries; looks at `limit` entries at most. The caller frees their blocks."""
        expired: list[Quarantined] = []
        heap = self._heap
        for _ in range(limit):
            if not heap or heap[0][0] > now:
                break
            entry = heappop(heap)[2]
            if not is_quarantined(entry):
                continue
            entry.end = self.end_of(entry)
            if entry.end > now:
                self._push(entry)
            else:
                self.left(entry)
                expired.append(entry)
        return expired

    def live(self, of: Segment | None = None) -> list[Quarantined]:
        """The entries on all mounted segments, or on one segment (also if that was just unmounted)."""
        return [
            entry
            for *_, entry in self._heap
            if (entry.segment is of or (of is None and not entry.segment.unmounted))
            and entry.segment.allocator.owner_of(entry.offset) is entry
        ]

    def totals(self) -> tuple[int, int]:
        """The number of extents in quarantine, and their bytes."""
        return self.count, self.bytes

    def watch(self) -> list[Quarantined]:
        """Start to collect additions in the returned list; any earlier list gets no more."""
        self.watched = []
        return self.watched

    def unwatch(self, watched: list[Quarantined]) -> None:
        """Stop collecting into this list."""
        if self.watched is watched:
            self.watched = None

    def discarding(self, every: int) -> Iterator[None]:
        """Forget all entries, of an index that is no longer used. Pauses after `every` entries."""
        self.watched = None
        while self._heap:
            del self._heap[-every:]
            yield

    def check(self) -> None:
        """Raise `InvariantBroken` unless the invariants hold."""
        live = self.live()
        ensure(self.count == len(live), "extents in quarantine are counted", self.count, len(live))
        live_bytes = sum(entry.segment.allocator.rounded(entry.size) for entry in live)
        ensure(self.bytes == live_bytes, "and their bytes", self.bytes)


def is_quarantined(entry: Quarantined) -> bool:
    """Whether this extent is still in quarantine: not freed, not displaced, on a mounted segment."""
    return not entry.segment.unmounted and entry.segment.allocator.owner_of(entry.offset) is entry
