"""Which space was last written by whom: a write that comes too late must not touch what has changed hands (P3).

The master gives an extent to somebody else only when its writer must have given up. But a writer may be stopped between
the answer of its put and its first byte, for longer than any limit. The numbers of replicas grow from one allocation to
the next, whoever leads, so they are fencing tokens: over bytes that were written under a higher number nothing is
written under a lower one.
"""

from __future__ import annotations

from sortedcontainers import SortedDict


class WriteFence:
    """The extents that were written, by their offset. Pure. At most one entry for each extent that the master knows."""

    def __init__(self) -> None:
        self._by_offset: SortedDict[int, tuple[int, int]] = SortedDict()  # offset -> (end, number)

    def __len__(self) -> int:
        return len(self._by_offset)

    def admits(self, offset: int, length: int, number: int) -> bool:
        """Whether `number` may write there: nothing of that was written under a higher one."""
        return all(self._by_offset[start][1] <= number for start in self._overlapping(offset, offset + length))

    def note(self, offset: int, length: int, number: int) -> None:
        """`number` has written there."""
        for start in self._overlapping(offset, offset + length):
            del self._by_offset[start]
        self._by_offset[offset] = (offset + length, number)

    def clear(self) -> None:
        """After a mount: the master has begun a new life of this memory, and numbers may begin again."""
        self._by_offset.clear()

    def _overlapping(self, offset: int, end: int) -> list[int]:
        found = list(self._by_offset.irange(offset, end, inclusive=(True, False)))
        before = self._by_offset.bisect_left(offset) - 1
        if before >= 0:
            start, (its_end, _) = self._by_offset.peekitem(before)
            if its_end > offset:
                found.append(start)
        return found
