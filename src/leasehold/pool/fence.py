"""The last writer of each extent: a late write must not touch space that was reallocated (P3).

The master reallocates an extent only when its writer must have given up. But a writer may be paused between the answer
to its put and its first byte, for longer than any limit. The numbers of replicas grow with every allocation, across
leaders, so they are fencing tokens: bytes written under a higher number are never overwritten under a lower one.

Without capabilities a writer may name any number. A number that the master has not given out yet is forged, and is
dropped as soon as an honest writer meets it (`forget_above`).
"""

from __future__ import annotations

from sortedcontainers import SortedDict


class WriteFence:
    """The written extents by offset, at most one entry for each extent of the master. Pure."""

    def __init__(self) -> None:
        self._by_offset: SortedDict[int, tuple[int, int]] = SortedDict()  # offset -> (end, number)

    def __len__(self) -> int:
        return len(self._by_offset)

    def admits(self, offset: int, length: int, number: int) -> bool:
        """Whether `number` may write there: no byte was written under a higher number."""
        return all(self._by_offset[start][1] <= number for start in self._overlapping(offset, offset + length))

    def highest(self, offset: int, length: int) -> int:
        """The highest number under which a byte there was written; 0 if none was."""
        found = self._overlapping(offset, offset + length)
        return max((self._by_offset[start][1] for start in found), default=0)

    def note(self, offset: int, length: int, number: int) -> None:
        """`number` has written there."""
        for start in self._overlapping(offset, offset + length):
            del self._by_offset[start]
        self._by_offset[offset] = (offset + length, number)

    def forget_above(self, offset: int, length: int, number: int) -> int:
        """The master has given out no higher number: forget writes under such numbers there, and count them."""
        found = self._overlapping(offset, offset + length)
        forged = [start for start in found if self._by_offset[start][1] > number]
        for start in forged:
            del self._by_offset[start]
        return len(forged)

    def clear(self) -> None:
        """After a mount the master treats the memory as new, and numbers may start again."""
        self._by_offset.clear()

    def _overlapping(self, offset: int, end: int) -> list[int]:
        found = list(self._by_offset.irange(offset, end, inclusive=(True, False)))
        before = self._by_offset.bisect_left(offset) - 1
        if before >= 0:
            start, (its_end, _) = self._by_offset.peekitem(before)
            if its_end > offset:
                found.append(start)
        return found
