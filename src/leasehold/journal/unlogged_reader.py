"""The reader's side of bulk batches: when one counts, and what may be concluded from it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from leasehold.journal.batch import UnloggedBatch
from leasehold.journal.chain import Position


class UnloggedReader:
    """Bulk of one epoch at a time, judged at its place in the order.

    A batch counts once its as-of record has been applied. Bulk of an older epoch is void: that epoch's `begin`
    successor has lifted every end that it could have told. A gap (batches ran out of their 60 s unseen) is closed at
    leader time g by the first batch after it; nothing counts as ended before g plus the maximum lease term, because
    a renewal in the gap may have run that long.
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
        """The number of the last batch that counted in this epoch."""
        return self._next - 1

    def begin(self, epoch: int, *, known_from_start: bool) -> None:
        """`begin` of `epoch` was applied (or loaded from a snapshot, then what came before is not known)."""
        self.epoch = epoch
        self._next = 1 if known_from_start else 0
        self.gap_closed_ms = -1
        self.waiting = {at: batch for at, batch in self.waiting.items() if at[0] >= epoch}

    def skip_to(self, number: int) -> None:
        """Everything up to `number` is our own doing."""
        self._next = number + 1

    def offer(self, batch: UnloggedBatch) -> None:
        """A batch was read; duplicates and older epochs are dropped."""
        if batch.epoch < self.epoch or (batch.epoch == self.epoch and self._next and batch.number < self._next):
            return
        self.waiting[(batch.epoch, batch.number)] = batch

    def due(self, applied: Position) -> Iterator[UnloggedBatch]:
        """The batches that count now, in order. At each, `gap_closed_ms` is what it was at that batch."""
        for at in sorted(self.waiting):
            batch = self.waiting[at]
            if batch.epoch != self.epoch or applied.epoch != self.epoch or batch.as_of_n > applied.n:
                break
            del self.waiting[at]
            if batch.number != self._next:  # 0: it is not known what came before the first one that we see
                self.gap_closed_ms = batch.leader_ms
                self.gaps += 1
            self._next = batch.number + 1
            yield batch

    def has_all_to(self, number: int) -> bool:
        """Whether every batch of this epoch up to `number` has counted here, without a gap."""
        return self.gap_closed_ms < 0 and self._next > number
