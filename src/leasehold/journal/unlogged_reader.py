"""The reader's side of unlogged batches: when a batch takes effect, and what a missing batch implies."""

from __future__ import annotations

from collections.abc import Iterator

from leasehold.journal.batch import UnloggedBatch
from leasehold.journal.chain import Position


class UnloggedReader:
    """Orders the unlogged batches of one epoch and detects gaps between them.

    A batch takes effect once its as-of record has been applied. Batches of an older epoch have no effect: the next
    epoch's `begin` has extended every lease end that they could report. A gap means that batches expired from the
    store unread. The first batch after the gap closes it, at leader time g. No lease counts as expired before g plus
    the maximum lease term, because a renewal inside the gap may have lasted that long.
    """

    __slots__ = ("_next", "epoch", "gap_closed_ms", "gaps", "waiting")

    def __init__(self) -> None:
        self.epoch = 0
        self._next = 1
        self.waiting: dict[tuple[int, int], UnloggedBatch] = {}  # batches whose place in the order has not come
        self.gap_closed_ms = -1  # leader time of this epoch; -1: no gap
        self.gaps = 0

    @property
    def applied(self) -> int:
        """The number of the last batch of this epoch that took effect."""
        return self._next - 1

    def begin(self, epoch: int, *, known_from_start: bool) -> None:
        """`begin` of `epoch` was applied, or loaded from a snapshot: then the earlier batches are not known."""
        self.epoch = epoch
        self._next = 1 if known_from_start else 0
        self.gap_closed_ms = -1
        self.waiting = {at: batch for at, batch in self.waiting.items() if at[0] >= epoch}

    def open_gap_at_start(self) -> None:
        """Renewals of the epoch before are missing: record a gap that closed when this epoch began."""
        self.gap_closed_ms = 0

    def skip_to(self, number: int) -> None:
        """This node wrote every batch up to `number` itself."""
        self._next = number + 1

    def offer(self, batch: UnloggedBatch) -> None:
        """Take a batch that was read; duplicates and batches of older epochs are dropped."""
        if batch.epoch < self.epoch or (batch.epoch == self.epoch and self._next and batch.number < self._next):
            return
        self.waiting[(batch.epoch, batch.number)] = batch

    def due(self, applied: Position) -> Iterator[UnloggedBatch]:
        """The batches that take effect now, in order. `gap_closed_ms` is up to date for the batch just returned."""
        for at in sorted(self.waiting):
            batch = self.waiting[at]
            if batch.epoch != self.epoch or applied.epoch != self.epoch or batch.as_of_n > applied.n:
                break
            del self.waiting[at]
            if batch.number != self._next:  # `_next` is 0 if the batches before the first one are not known
                self.gap_closed_ms = batch.leader_ms
                self.gaps += 1
            self._next = batch.number + 1
            yield batch

    def has_all_to(self, number: int) -> bool:
        """Whether every batch of this epoch up to `number` took effect here, without a gap."""
        return self.gap_closed_ms < 0 and self._next > number
