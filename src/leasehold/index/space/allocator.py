"""Space in one segment: an offset allocator whose free blocks are found by size class in O(1).

Free blocks are kept by start, by end (to coalesce) and in bins by size class, eight classes for each power of two. The
free block at the segment's end, the *top*, is in no bin: it is a number, and is cut from only when no bin serves,
which in a pool that was never full is always. Used blocks are kept in order, with their owners, in rows of an equal
stretch of the segment each: so an exact claim finds the blocks in its way, a block takes 16 bytes here, and every list
is short enough to be changed in microseconds. Between two used blocks there is never more than one free block.

`free + used = size`, and no byte belongs to two blocks: that is P3 within a segment.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from leasehold.base.invariants import ensure
from leasehold.base.limits import extent_alignment_bytes

_EXACT_TRIES = 4  # blocks of the class just below that are looked at before a larger class is used
_ROWS_BITS = 11
_AHEAD = 64  # used blocks that a walk over free space looks ahead


class Sized(Protocol):
    """The owner of a block knows its size."""

    size: int


Owner = TypeVar("Owner", bound=Sized)
Row = tuple[list[int], list[Owner]]  # the starts of used blocks, in order; the owner of each


def rounded(size: int, unit: int = extent_alignment_bytes) -> int:
    """The bytes that a block of this size takes: the next multiple of the unit."""
    return (size + unit - 1) & -unit


def _class_of(units: int) -> int:
    """The size class that a free block of this many units serves: every request of the class fits."""
    if units < 8:
        return units
    exponent = units.bit_length() - 4
    return (exponent << 3) + (units >> exponent)


class Allocator(Generic[Owner]):
    """All blocks of one segment. Sizes are rounded up here and nowhere else.

    Blocks are multiples of `unit`, a power of two: a cache line, or less in a segment that was adopted with blocks
    that share a line (docs/migrate.md).
    """

    __slots__ = (
        "_bins", "_free", "_free_ends", "_mask", "_round", "_row_bits", "_rows", "_top", "_unit_bits", "block_count",
        "size", "used_bytes",
    )  # fmt: skip

    def __init__(self, size: int, unit: int = extent_alignment_bytes) -> None:
        self._round = unit - 1
        self._unit_bits = unit.bit_length() - 1
        self.size = size & -unit
        self.used_bytes = 0
        self.block_count = 0  # used blocks
        self._top = 0  # from here to the end nothing is used
        self._free: dict[int, int] = {}  # start -> length
        self._free_ends: dict[int, int] = {}  # end -> start
        self._bins: dict[int, dict[int, None]] = {}
        self._mask = 0  # which bins are not empty
        self._rows: dict[int, Row[Owner]] = {}
        self._row_bits = max(self._unit_bits, self.size.bit_length() - _ROWS_BITS)

    @property
    def unit(self) -> int:
        return self._round + 1

    def rounded(self, size: int) -> int:
        """The bytes that a block of this size takes here."""
        return (size + self._round) & ~self._round

    @property
    def free_bytes(self) -> int:
        return self.size - self.used_bytes

    def find(self, size: int) -> int:
        """Where a block of this size would fit, or -1. Takes nothing: `take` and `claim` do."""
        length = (size + self._round) & ~self._round
        if self._mask:
            start = self._find_in_bins(length)
            if start >= 0:
                return start
        return self._top if length <= self.size - self._top else -1

    def _find_in_bins(self, length: int) -> int:
        units = length >> self._unit_bits
        low = _class_of(units)
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
        length = (owner.size + self._round) & ~self._round
        if offset == self._top:
            if length > self.size - offset:
                return 0
            self._top = offset + length
        else:
            free_length = self._free.get(offset, 0)
            if length > free_length:
                return 0
            self._cut(offset, free_length, length)
        row = self._rows.get(offset >> self._row_bits)
        if row is None:
            self._rows[offset >> self._row_bits] = [offset], [owner]
        else:
            starts, owners = row
            if offset > starts[-1]:
                starts.append(offset)
                owners.append(owner)
            else:
                at = bisect_left(starts, offset)
                starts.insert(at, offset)
                owners.insert(at, owner)
        self.block_count += 1
        self.used_bytes += length
        return length

    def _cut(self, start: int, free_length: int, length: int) -> None:
        """Take the beginning of a free block out of the free ones."""
        number = _class_of(free_length >> self._unit_bits)
        members = self._bins[number]
        del members[start], self._free[start]
        rest = free_length - length
        if rest:
            left = start + length
            self._free[left] = rest
            self._free_ends[start + free_length] = left
            if _class_of(rest >> self._unit_bits) == number:
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
        length = (owner.size + self._round) & ~self._round
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
        (_, owners), at = self._find_used(offset)
        ensure(self.rounded(owners[at].size) == self.rounded(owner.size), "P3 a block keeps its size", offset)
        owners[at] = owner

    def release(self, offset: int) -> int:
        """Free a block and join it with its free neighbours. Returns its bytes."""
        starts, owners = self._rows[offset >> self._row_bits]
        at = bisect_left(starts, offset)
        ensure(at < len(starts) and starts[at] == offset, "P3 a used block is known", offset)
        released = (owners.pop(at).size + self._round) & ~self._round
        del starts[at]
        if not starts:
            del self._rows[offset >> self._row_bits]
        self.block_count -= 1
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
        free_ends, bits = self._free_ends, self._unit_bits
        self._free[start] = end - start
        del free_ends[old_end]
        free_ends[end] = start
        old_number, number = _class_of((old_end - start) >> bits), _class_of((end - start) >> bits)
        if number != old_number:
            self._unbin(start, old_number)
            self._bin(start, end - start)

    def forget(self, count: int) -> list[Owner]:
        """Forget up to `count` owners. Only for a segment that was unmounted or discarded: its blocks are unused."""
        forgotten: list[Owner] = []
        rows = self._rows
        while rows and len(forgotten) < count:
            number, (starts, owners) = rows.popitem()
            first = max(0, len(owners) - (count - len(forgotten)))
            forgotten += owners[first:]
            if first:
                del owners[first:], starts[first:]
                rows[number] = starts, owners
        self.block_count -= len(forgotten)
        return forgotten

    def discard_free(self) -> None:
        """Forget where free blocks are. Only for a discarded segment: only `forget` may follow."""
        self._free.clear()
        self._free_ends.clear()
        self._bins.clear()
        self._mask = 0

    def in_the_way(self, offset: int, size: int) -> list[int]:
        """The starts of the used blocks that overlap this place."""
        end = offset + ((size + self._round) & ~self._round)
        if offset >= self._top or self._free.get(offset, 0) >= end - offset:
            return []
        found = []
        before = self._used_before(offset)
        if before is not None and before[0] + self.rounded(before[1].size) > offset:
            found.append(before[0])
        for row_number in range(offset >> self._row_bits, ((end - 1) >> self._row_bits) + 1):
            if (row := self._rows.get(row_number)) is not None:
                starts = row[0]
                found += starts[bisect_left(starts, offset) : bisect_left(starts, end)]
        return found

    def owner_at(self, offset: int) -> Owner:
        """The owner of the used block that starts here."""
        row, at = self._find_used(offset)
        return row[1][at]

    def owner_of(self, offset: int) -> Owner | None:
        """As `owner_at`, but None if no used block starts here."""
        row = self._rows.get(offset >> self._row_bits)
        if row is None:
            return None
        at = bisect_left(row[0], offset)
        return row[1][at] if at < len(row[0]) and row[0][at] == offset else None

    def used_blocks(self) -> Iterator[tuple[int, Owner]]:
        """(start, owner) of every used block."""
        for starts, owners in self._rows.values():
            yield from zip(starts, owners, strict=True)

    def used_from(self, offset: int, count: int) -> list[tuple[int, Owner]]:
        """(start, owner) of the first `count` used blocks from this offset, in order; fewer if there are fewer."""
        found: list[tuple[int, Owner]] = []
        for row_number in range(offset >> self._row_bits, (self._top >> self._row_bits) + 1):
            if (row := self._rows.get(row_number)) is not None:
                starts, owners = row
                at = 0 if starts[0] >= offset else bisect_left(starts, offset)
                beyond = at + count - len(found)
                found += zip(starts[at:beyond], owners[at:beyond], strict=True)
                if len(found) >= count:
                    break
        return found

    def free_blocks(self) -> Iterator[tuple[int, int]]:
        """(start, length) of every free block. Nothing may be taken or released meanwhile."""
        yield from self._free.items()
        if self._top < self.size:
            yield self._top, self.size - self._top

    def free_within(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """(start, end) of the free parts of this stretch, in order. Each may be taken before the next is requested."""
        if self._free.get(start, 0) == end - start:
            yield start, end
            return
        at = max(start, self._free_start_before(start))
        while at < end:
            used = self.used_from(at, _AHEAD)
            for taken, owner in used:
                if taken >= end:
                    break
                if taken > at:
                    yield at, taken
                at = taken + self.rounded(owner.size)
            if len(used) < _AHEAD or used[-1][0] >= end:
                break
        if at < end:
            yield at, end

    def contains(self, offset: int, size: int) -> bool:
        return offset >= 0 and not offset & self._round and offset + self.rounded(size) <= self.size

    def check(self) -> None:
        """Raise unless the blocks cover the segment exactly once."""
        blocks = [(start, self.rounded(owner.size), True) for start, owner in self.used_blocks()]
        blocks += [(start, length, False) for start, length in self.free_blocks()]
        at, was_free = 0, False
        for start, length, used in sorted(blocks):
            ensure(start == at and length > 0, "P3 blocks overlap or leave a hole", start, at)
            ensure(used or not was_free, "two free blocks side by side", start)
            at, was_free = start + length, not used
        ensure(at == self.size, "free + used = size", at, self.size)
        ensure(self.used_bytes == sum(b[1] for b in blocks if b[2]), "used bytes are counted", self.used_bytes)
        for number, (starts, owners) in self._rows.items():
            in_row = all(start >> self._row_bits == number for start in starts) and len(starts) == len(owners) > 0
            ensure(in_row and starts == sorted(starts), "used blocks are in order, in their row", number)
        ensure(sum(b[2] for b in blocks) == self.block_count, "used blocks are counted", self.block_count)
        binned = {start for members in self._bins.values() for start in members}
        ensure(binned == set(self._free), "every free block is in its bin")

    def _free_start_before(self, offset: int) -> int:
        before = self._used_before(offset)
        return 0 if before is None else before[0] + self.rounded(before[1].size)

    def _used_before(self, offset: int) -> tuple[int, Owner] | None:
        """The last used block that starts before this offset, with its owner."""
        row_number = offset >> self._row_bits
        row = self._rows.get(row_number)
        at = 0 if row is None else bisect_left(row[0], offset)
        if row is not None and at:
            return row[0][at - 1], row[1][at - 1]
        for earlier in range(row_number - 1, -1, -1):
            if (row := self._rows.get(earlier)) is not None:
                return row[0][-1], row[1][-1]
        return None

    def _find_used(self, offset: int) -> tuple[Row[Owner], int]:
        """The row of a used block, and its place there."""
        row = self._rows[offset >> self._row_bits]
        starts = row[0]
        at = bisect_left(starts, offset)
        ensure(at < len(starts) and starts[at] == offset, "P3 a used block is known", offset)
        return row, at

    def _add_free(self, start: int, length: int) -> None:
        self._free[start] = length
        self._free_ends[start + length] = start
        self._bin(start, length)

    def _bin(self, start: int, length: int) -> None:
        number = _class_of(length >> self._unit_bits)
        members = self._bins.get(number)
        if members is None:
            members = self._bins[number] = {}
        members[start] = None
        self._mask |= 1 << number

    def _drop_free(self, start: int, length: int) -> None:
        del self._free[start]
        del self._free_ends[start + length]
        self._unbin(start, _class_of(length >> self._unit_bits))

    def _unbin(self, start: int, number: int) -> None:
        members = self._bins[number]
        del members[start]
        if not members:
            self._mask &= ~(1 << number)
