"""Writes unlogged batches: lease renewals and eviction hints for the standbys, which no caller waits for. Pure.

An empty batch is the heartbeat: without other writes it extends the leader lease.
"""

from __future__ import annotations

from collections.abc import Callable

from leasehold.ha.context import FAR_MS, Context
from leasehold.ha.effect_queue import Activity
from leasehold.ha.events import StoreAnswered
from leasehold.journal.batch import UnloggedBatch, encode_unlogged
from leasehold.journal.fenced_writer import Fate, FencedWriter, slot_key
from leasehold.journal.unlogged_batch import UnloggedQueue
from leasehold.mvcc.errors import LeaseNotFound
from leasehold.mvcc.model import LeaseGrantResult, Txn, TxnResult

RETRY_MS = 50


class UnloggedWriter(Activity):
    """One batch at a time, numbered without gaps in this epoch, under the fence.

    `written(now_ms, sent_ms)` is called when one is in the store, `refused(now_ms)` when another epoch has the fence.
    """

    __slots__ = (
        "_base_ms",
        "_ctx",
        "_epoch",
        "_lease",
        "_lease_at_ms",
        "_lease_requested",
        "_queue",
        "_refused",
        "_retry_at_ms",
        "_sent",
        "_writer",
        "_written",
        "complete",
        "due_ms",
        "number",
        "written_number",
    )  # fmt: skip

    def __init__(
        self,
        ctx: Context,
        epoch: int,
        base_ms: int,
        *,
        written: Callable[[int, int], None],
        refused: Callable[[int], None],
    ) -> None:
        super().__init__()
        self._ctx, self._epoch, self._base_ms = ctx, epoch, base_ms
        self._written, self._refused = written, refused
        self._writer = FencedWriter(ctx.keys.leader, epoch)
        self._queue = UnloggedQueue()
        self._sent = False
        self._retry_at_ms = FAR_MS
        self._lease = 0
        self._lease_at_ms = -FAR_MS
        self._lease_requested = False
        self.due_ms = FAR_MS  # when the next one is written, unless something urgent comes earlier
        self.number = 0  # the last one that was sent
        self.written_number = 0  # the last one in the store
        self.complete = False  # whether the last one left nothing unsent

    @property
    def under_way(self) -> bool:
        """Whether one is in flight, or its outcome is unknown."""
        return self._sent or self._writer.undecided

    @property
    def wake_at_ms(self) -> int:
        return min(self._due_ms(), self._retry_at_ms)

    def _due_ms(self) -> int:
        if self._sent or self.due_ms == FAR_MS or self._writer.undecided or not self.open:
            return FAR_MS
        if self._ctx.state.index.renewals.urgent:
            return min(
                self.due_ms,
                self.due_ms - self._ctx.settings.flush_interval_ms + self._ctx.settings.urgent_flush_interval_ms,
            )
        return self.due_ms

    def flush_at(self, due_ms: int) -> None:
        """Write the next one at this time; `FAR_MS`: none."""
        self.due_ms = due_ms

    def flush_last(self, now_ms: int) -> None:
        """Write everything that is left, before a hand-over: `complete` is set when nothing is."""
        self.complete, self.due_ms = False, now_ms

    def tick(self, now_ms: int) -> None:
        if now_ms >= self._retry_at_ms:
            self._retry_at_ms = FAR_MS
            self._again(now_ms)
        elif now_ms >= self._due_ms():
            self.flush(now_ms)

    def flush(self, now_ms: int) -> None:
        """Write the renewals and hints that are due; without any, an empty batch as the heartbeat."""
        if self._lease_wanted(now_ms):
            return
        index, number = self._ctx.state.index, self.number + 1
        renewals, hints, complete = self._queue.next_batch(index)
        batch = UnloggedBatch(
            epoch=self._epoch,
            number=number,
            as_of_n=index.log.last_n,
            leader_ms=now_ms - self._base_ms,
            complete=complete,
            right_ms=self._ctx.settings.leader_ttl_ms,
            wall_us=self._ctx.wall_us,
            renewals=renewals,
            hints=hints,
            expires=index.leases.expiry,
            unheard_n=index.owners.still_unproven_before_n(),
        )
        self.number = number
        self.complete = complete
        self.due_ms = now_ms + (self._ctx.settings.flush_interval_ms if complete else 0)
        key = slot_key(self._ctx.keys.unlogged + b"%020d/" % self._epoch, number)
        self._ask(self._writer.write(now_ms, key, encode_unlogged(batch, self._ctx.writes()), self._lease))

    def _ask(self, txn: Txn) -> None:
        self._sent = True
        self._retry_at_ms = FAR_MS
        self._ctx.effects.ask(self, txn, self._answered)

    def _answered(self, now_ms: int, event: StoreAnswered) -> None:
        self._sent = False
        if not isinstance(event.result, TxnResult):
            if isinstance(event.error, LeaseNotFound):
                self._lease, self._lease_at_ms = 0, -FAR_MS
            self._retry_at_ms = now_ms + RETRY_MS
            return
        if self._writer.judge(event.result) is Fate.WRITTEN:
            self.written_number = self.number
            self._written(now_ms, self._writer.sent_ms)
        else:
            self._refused(now_ms)

    def _again(self, now_ms: int) -> None:
        if not self._lease_wanted(now_ms):
            self._ask(self._writer.again(now_ms, self._lease))

    def _lease_wanted(self, now_ms: int) -> bool:
        """Batches expire with a store lease that is never renewed; a new one is granted every third of its TTL.

        True: wait for it.
        """
        third_ms = self._ctx.settings.unlogged_ttl_s * 1000 // 3
        if self._lease and now_ms - self._lease_at_ms < third_ms:
            return False
        if not self._lease_requested:
            self._lease_requested = True
            self._ctx.effects.grant(self, self._ctx.settings.unlogged_ttl_s, self._lease_granted)
        self._sent = True  # until the lease is granted
        return True

    def _lease_granted(self, now_ms: int, event: StoreAnswered) -> None:
        self._lease_requested = self._sent = False
        if not isinstance(event.result, LeaseGrantResult):
            self.due_ms = max(self.due_ms, now_ms + RETRY_MS)
            if self._writer.undecided:
                self._retry_at_ms = now_ms + RETRY_MS
            return
        self._lease, self._lease_at_ms = event.result.id, now_ms
        if self._writer.undecided:
            self._again(now_ms)
        else:
            self.flush(now_ms)
