"""The content of the next unlogged batch, bounded by count and bytes. Entries that do not fit wait for the next one."""

from __future__ import annotations

from collections import deque

from leasehold.base import limits
from leasehold.index.index import Index
from leasehold.journal.batch import Hint, Renewal

_ENTRY_BYTES = 40  # upper bound for the numbers and the framing of one entry


class UnloggedQueue:
    """Renewals and hints that were taken out of the index and are not in a batch yet."""

    __slots__ = ("_hints", "_renewals")

    def __init__(self) -> None:
        self._renewals: deque[Renewal] = deque()
        self._hints: deque[Hint] = deque()

    def next_batch(self, index: Index) -> tuple[tuple[Renewal, ...], tuple[Hint, ...], bool]:
        """Renewals, hints, and whether this batch and the earlier ones hold every renewal up to now."""
        complete = False
        if len(self._renewals) < limits.unlogged_entries_max:
            taken, complete = index.take_renewals(limits.unlogged_entries_max - len(self._renewals))
            self._renewals.extend(Renewal(*one) for one in taken)
        if len(self._hints) < limits.journal_hints_max:
            self._hints.extend(Hint(*one) for one in index.take_hints(limits.journal_hints_max - len(self._hints)))
        renewals: list[Renewal] = []
        room = limits.unlogged_bytes_max
        while self._renewals and (room := room - _size(self._renewals[0])) >= 0:
            renewals.append(self._renewals.popleft())
        hints: list[Hint] = []
        while self._hints and (room := room - _size(self._hints[0])) >= 0:
            hints.append(self._hints.popleft())
        return tuple(renewals), tuple(hints), complete and not self._renewals


def _size(entry: Renewal | Hint) -> int:
    return len(entry.tenant) + len(entry.key) + _ENTRY_BYTES
