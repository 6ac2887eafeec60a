"""Space in one segment: an offset allocator whose free blocks are found by size class in O(1).

Free blocks are kept by start, by end (to coalesce) and in bins by size class, eight classes for each power of two. The
free block at the segment's end, the *top*, is in no bin: it is a number, and is cut from only when no bin serves,
which in a pool that was never full is always. Used blocks are kept by start with their owner, and coarsely in order
(`_rows`), so that an exact claim finds the blocks in its way. Between two used blocks there is never more than one
free block.

`free + used = size`, and no byte belongs to two blocks: that is P3 within a segment.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from leasehold.base.invariants import ensure
from leasehold.base.limits import extent_alignment_bytes

_ROUND = extent_alignment_bytes - 1
_UNIT_BITS = extent_alignment_bytes.bit_length() - 1
_EXACT_TRIES = 4  # blocks of the class just below that are looked at before a larger class is used
_ROWS_BITS = 12
_AHEAD = 64  # used blocks that a walk over free space looks ahead


class Sized(Protocol):
    """The owner of a block knows its size."""

    size: int


Owner = TypeVar("Owner", bound=Sized)


def rounded(size: int) -> int:
    """The bytes that a block of this size takes: the next multiple of the alignment."""
    return (size + _ROUND) & ~_ROUND


def _class_of(length: int) -> int:
    """The size class that a free block of this length serves: every request of the class fits."""
    units = length >> _UNIT_BITS
    if units < 8:
        return units
    exponent = units.bit_length() - 4
    return (exponent << 3) + (units >> exponent)


class Allocator(Generic[Owner]):
    """All blocks of one segment. Sizes are rounded up here and nowhere else."""

    __slots__ = ("_bins", "_free", "_free_ends", "_mask", "_row_bits", "_rows", "_top", "owners", "size", "used_bytes")

    def __init__(self, size: int) -> None:
        self.size = size & ~_ROUND
        self.used_bytes = 0
        self.owners: dict[int, Owner] = {}
        self._top = 0  # from here to the end nothing is used
        self._free: dict[int, int] = {}  # start -> length
        self._free_ends: dict[int, int] = {}  # end -> start
        self._bins: dict[int, dict[int, None]] = {}
        self._mask = 0  # which bins are not empty
        self._rows: dict[int, list[int]] = {}  # the starts of used blocks, in order within each row
        self._row_bits = max(_UNIT_BITS, self.size.bit_length() - _ROWS_BITS)

    @property
    def free_bytes(self) -> int:
        return self.size - self.used_bytes

    def find(self, size: int) -> int:
        """Where a block of this size would fit, or -1. Takes nothing: `take` and `claim` do."""
        length = (size + _ROUND) & ~_ROUND
        if self._mask:
            start = self._find_in_bins(length)
            if start >= 0:
                return start
        return self._top if length <= self.size - self._top else -1

    def _find_in_bins(self, length: int) -> int:
        units = length >> _UNIT_BITS
        low = _class_of(length)
        exponent = units.bit_length() - 4
        if exponent > 0 and units & ((1 << exponent) - 1):
            # The class just below holds blocks of nearly this size, and with equal sizes mostly exact fits.
            tries = _EXACT_TRIES
            free = self._free
            for start in reversed(self._bins.get(low, ())):
                if free[start] >= length:
                    return start
                tries -= 1
                if not tries:
                    break
            low += 1
        mask = self._mask >> low
        if not mask:
            return -1
        return next(reversed(self._bins[low + (mask & -mask).bit_length() - 1]))

    def take(self, offset: int, owner: Owner) -> int:
        """Take this place if a free block begins here and is long enough: the usual claim, in few steps.

        Returns the bytes taken. 0: nothing was taken; use `in_the_way` and `claim`.
        """
        length = (owner.size + _ROUND) & ~_ROUND
        if offset == self._top:
            if length > self.size - offset:
                return 0
            self._top = offset + length
        else:
            free_length = self._free.get(offset, 0)
            if length > free_length:
                return 0
            self._cut(offset, free_length, length)
        self.owners[offset] = owner
        row = self._rows.get(offset >> self._row_bits)
        if row is None:
            self._rows[offset >> self._row_bits] = [offset]
        elif offset > row[-1]:
            row.append(offset)
        else:
            insort(row, offset)
        self.used_bytes += length
        return length

    def _cut(self, start: int, free_length: int, length: int) -> None:
        """Take the beginning of a free block out of the free ones."""
        number = _class_of(free_length)
        members = self._bins[number]
        del members[start], self._free[start]
        rest = free_length - length
        if rest:
            left = start + length
            self._free[left] = rest
            self._free_ends[start + free_length] = left
            if _class_of(rest) == number:
                members[left] = None
            else:
                self._bin(left, rest)
        else:
            del self._free_ends[start + free_length]
        if not members:
            self._mask &= ~(1 << number)

    def claim(self, offset: int, owner: Owner) -> None:
        """Take exactly this place, which must be free (see `in_the_way`)."""
        if self.take(offset, owner):
            return
        length = (owner.size + _ROUND) & ~_ROUND
        start = self._free_start_before(offset)
        free_length = self.size - start if start == self._top else self._free.get(start, 0)
        ensure(free_length >= offset - start + length, "P3 a claim on space that is not free", offset, owner.size)
        # Cut the free block in front of the place: then a free block begins at the place.
        if start == self._top:
            self._top = offset
        else:
            self._drop_free(start, free_length)
            self._add_free(offset, free_length - (offset - start))
        self._add_free(start, offset - start)
        ensure(self.take(offset, owner) == length, "P3 a claim takes its place", offset, owner.size)

    def pass_on(self, offset: int, owner: Owner) -> None:
        """Give a used block to another owner of the same size. No byte is free in between."""
        ensure(rounded(self.owners[offset].size) == rounded(owner.size), "P3 a block keeps its size", offset)
        self.owners[offset] = owner

    def release(self, offset: int) -> int:
        """Free a block and join it with its free neighbours. Returns its bytes."""
        released = (self.owners.pop(offset).size + _ROUND) & ~_ROUND
        row = self._rows[offset >> self._row_bits]
        if row[-1] == offset:
            row.pop()
        else:
            del row[bisect_left(row, offset)]
        if not row:
            del self._rows[offset >> self._row_bits]
        self.used_bytes -= released
        end = offset + released
        before = self._free_ends.get(offset)
        if end == self._top:
            if before is not None:
                self._drop_free(before, offset - before)
                offset = before
            self._top = offset
            return released
        after = self._free.get(end)
        if after is not None:
            self._drop_free(end, after)
            end += after
        if before is None:
            self._add_free(offset, end - offset)
        else:
            self._grow(before, offset, end)
        return released

    def _grow(self, start: int, old_end: int, end: int) -> None:
        """A free block becomes longer. It mostly stays in its bin: objects put together are removed together."""
        free_ends = self._free_ends
        self._free[start] = end - start
        del free_ends[old_end]
        free_ends[end] = start
        old_number, number = _class_of(old_end - start), _class_of(end - start)
        if number != old_number:
            self._unbin(start, old_number)
            self._bin(start, end - start)

    def forget(self, count: int) -> list[Owner]:
        """Forget up to `count` owners. Only for a segment that was unmounted or discarded: its blocks are unused."""
        owners = self.owners
        return [owners.popitem()[1] for _ in range(min(count, len(owners)))]

    def discard_order(self) -> None:
        """Forget where blocks are, used or free. Only for a discarded segment: only `forget` may follow.

        Cheap while `owners` has the same offsets; after the last `forget` it would free them all in one step.
        """
        self._rows.clear()
        self._free.clear()
        self._free_ends.clear()
        self._bins.clear()
        self._mask = 0

    def in_the_way(self, offset: int, size: int) -> list[int]:
        """The starts of the used blocks that overlap this place."""
        end = offset + ((size + _ROUND) & ~_ROUND)
        if offset >= self._top or self._free.get(offset, 0) >= end - offset:
            return []
        found = []
        before = self._used_before(offset)
        if before >= 0 and before + rounded(self.owners[before].size) > offset:
            found.append(before)
        for row_number in range(offset >> self._row_bits, ((end - 1) >> self._row_bits) + 1):
            row = self._rows.get(row_number, ())
            found += [start for start in row[bisect_right(row, offset - 1) :] if start < end and start not in found]
        return found

    def used_from(self, offset: int, count: int) -> list[int]:
        """The starts of the first `count` used blocks from this offset on, in order; fewer if the segment has fewer."""
        found: list[int] = []
        for row_number in range(offset >> self._row_bits, (self._top >> self._row_bits) + 1):
            if row := self._rows.get(row_number):
                at = 0 if row[0] >= offset else bisect_left(row, offset)
                found += row[at : at + count - len(found)]
                if len(found) >= count:
                    break
        return found

    def free_blocks(self) -> Iterator[tuple[int, int]]:
        """(start, length) of every free block."""
        blocks = list(self._free.items())
        if self._top < self.size:
            blocks.append((self._top, self.size - self._top))
        return iter(blocks)

    def free_within(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """(start, end) of the free parts of this stretch, in order. Each may be taken before the next is requested."""
        if self._free.get(start, 0) == end - start:
            yield start, end
            return
        at = max(start, self._free_start_before(start))
        while at < end:
            used = self.used_from(at, _AHEAD)
            for taken in used:
                if taken >= end:
                    break
                if taken > at:
                    yield at, taken
                at = taken + rounded(self.owners[taken].size)
            if len(used) < _AHEAD or used[-1] >= end:
                break
        if at < end:
            yield at, end

    def contains(self, offset: int, size: int) -> bool:
        return offset >= 0 and not offset & _ROUND and offset + rounded(size) <= self.size

    def check(self) -> None:
        """Raise unless the blocks cover the segment exactly once."""
        blocks = [(start, rounded(owner.size), True) for start, owner in self.owners.items()]
        blocks += [(start, length, False) for start, length in self.free_blocks()]
        at, was_free = 0, False
        for start, length, used in sorted(blocks):
            ensure(start == at and length > 0, "P3 blocks overlap or leave a hole", start, at)
            ensure(used or not was_free, "two free blocks side by side", start)
            at, was_free = start + length, not used
        ensure(at == self.size, "free + used = size", at, self.size)
        ensure(self.used_bytes == sum(b[1] for b in blocks if b[2]), "used bytes are counted", self.used_bytes)
        ensure(sum(map(len, self._rows.values())) == len(self.owners), "every used block is in its row")
        binned = {start for members in self._bins.values() for start in members}
        ensure(binned == set(self._free), "every free block is in its bin")

    def _free_start_before(self, offset: int) -> int:
        before = self._used_before(offset)
        return 0 if before < 0 else before + rounded(self.owners[before].size)

    def _used_before(self, offset: int) -> int:
        """The last used block that starts before this offset, or -1."""
        row_number = offset >> self._row_bits
        row = self._rows.get(row_number, [])
        index = bisect_left(row, offset)
        if index:
            return row[index - 1]
        for earlier in range(row_number - 1, -1, -1):
            if row := self._rows.get(earlier, []):
                return row[-1]
        return -1

    def _add_free(self, start: int, length: int) -> None:
        self._free[start] = length
        self._free_ends[start + length] = start
        self._bin(start, length)

    def _bin(self, start: int, length: int) -> None:
        number = _class_of(length)
        members = self._bins.get(number)
        if members is None:
            members = self._bins[number] = {}
        members[start] = None
        self._mask |= 1 << number

    def _drop_free(self, start: int, length: int) -> None:
        del self._free[start]
        del self._free_ends[start + length]
        self._unbin(start, _class_of(length))

    def _unbin(self, start: int, number: int) -> None:
        members = self._bins[number]
        del members[start]
        if not members:
            self._mask &= ~(1 << number)
