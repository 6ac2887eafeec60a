"""One epoch as primary: commit the decided records, keep the leader lease, hand over. Pure."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from leasehold.base import limits
from leasehold.ha.context import FAR_MS, Context
from leasehold.ha.effect_queue import Activity
from leasehold.ha.effects import ForgetBuffer, PushBuffer
from leasehold.ha.events import Failure, StoreAnswered
from leasehold.ha.feature_level import level_of_new_cluster
from leasehold.ha.keys import EndMarker, end_epoch, pack
from leasehold.ha.leader_lease import LeaderLease
from leasehold.ha.unlogged import RETRY_MS, UnloggedWriter
from leasehold.index.records import Handover
from leasehold.journal.committer import Committer
from leasehold.journal.fenced_writer import Fate, FencedWriter, fence
from leasehold.mvcc.model import Put, Txn, TxnResult

HAND_OVER_MS_MAX = 20_000  # a leader that cannot finish its hand-over by then gives up its lease


class Phase(Enum):
    BEGINNING = "beginning"  # `begin` is not durable yet
    SERVING = "serving"
    STOPPING = "stopping"  # no more answers; the decided records become durable, then the last unlogged batch
    HANDING_OVER = "handing over"  # the hand-over record was sent: the last record of this epoch
    RESIGNING = "resigning"


class Leading(Activity):
    """Law: this epoch answers nothing before `begin` is durable, nor after a hand-over or resignation was sent.

    `over(now_ms, sentence, clean)` is called once, at the end: clean if every decided record is durable.
    `began(now_ms)` is called when `begin` is durable.
    """

    __slots__ = (
        "_began",
        "_buffered",
        "_buffered_n",
        "_ctx",
        "_over",
        "_pushed",
        "_refused",
        "_retry_at_ms",
        "_sent",
        "_silent_until",
        "_stop_at_ms",
        "_unbuffered_n",
        "_unlogged",
        "_wrote_ms",
        "base_ms",
        "commit_request",
        "committer",
        "epoch",
        "handover",
        "leader_lease",
        "lease",
        "phase",
        "successor",
        "sync",
    )  # fmt: skip

    def __init__(
        self,
        ctx: Context,
        epoch: int,
        lease: int,
        now_ms: int,
        *,
        began: Callable[[int], None],
        over: Callable[[int, str, bool], None],
    ) -> None:
        super().__init__()
        self._ctx, self._began, self._over = ctx, began, over
        self.epoch, self.lease = epoch, lease
        settings = ctx.settings
        self.base_ms = now_ms  # leader time counts from here
        self.leader_lease = LeaderLease(settings.leader_ttl_ms, settings.leader_margin_ms)
        self.committer = Committer(
            ctx.keys.explicit,
            FencedWriter(ctx.keys.leader, epoch),
            ctx.state.applied,
            settings.leader_ttl_ms,
            ctx.writes(),
            ctx.state.journal_length,
        )
        self.phase = Phase.BEGINNING
        self.successor = ""
        self.sync = settings.durability == "sync"  # every answer waits for its record
        self._buffered = settings.durability == "buffered"
        self.commit_request = 0  # the number of the last request that commits a batch
        self._refused = False  # the store has refused a batch since it last accepted one
        self._sent = False
        self._retry_at_ms = FAR_MS
        self._pushed = 0
        self._buffered_n = self._unbuffered_n = ctx.state.applied.n
        self._unlogged = UnloggedWriter(ctx, epoch, now_ms, written=self._heartbeat, refused=self._heartbeat_refused)
        self._wrote_ms = now_ms  # when the last committed write was sent; at first, that of the previous epoch
        self._silent_until = 0  # nothing is answered before this unlogged batch is in the store
        self._stop_at_ms = FAR_MS
        self.handover: Handover | None = None  # the last record of this epoch, once decided

    # --- read by the machine ---

    @property
    def durable_n(self) -> int:
        return self.committer.durable.n

    @property
    def acked_n(self) -> int:
        """Answers that hand out no space may be sent up to this record."""
        settings, durable_n = self._ctx.settings, self.committer.durable.n
        if self._buffered:
            return max(durable_n, self._buffered_n)
        if settings.durability == "async":
            return durable_n + settings.async_records_max
        return durable_n

    @property
    def steady(self) -> bool:
        """Serving, nothing to repeat, and the journal keeps up with the decisions."""
        return (
            self.phase is Phase.SERVING
            and self._retry_at_ms == FAR_MS
            and self.committer.pending <= limits.journal_pending_records_max
        )

    @property
    def wake_at_ms(self) -> int:
        return min(self._retry_at_ms, self._unlogged.wake_at_ms, self._stop_at_ms)

    @property
    def unlogged_written(self) -> int:
        """The number of the last unlogged batch of this epoch in the store."""
        return self._unlogged.written_number

    def leader_ms(self, now_ms: int) -> int:
        return now_ms - self.base_ms

    # --- explicit batches ---

    def begin(self, now_ms: int, handover_ms: int | None, *, owners_unheard: bool, spoke_ms: int) -> None:
        """Write the epoch's first record. `spoke_ms`: lower bound on when the previous epoch last wrote."""
        self._wrote_ms = spoke_ms
        drift_ms = self._drift_ms() if handover_ms is not None else 0
        index, is_new = self._ctx.state.index, self._ctx.state.applied.n == 0
        index.begin(0, self.epoch, handover_ms=handover_ms, drift_ms=drift_ms, owners_unproven=owners_unheard)
        level = level_of_new_cluster(self._ctx.view.nodes.values()) if is_new else 0
        if level and self._ctx.settings.newest_level:
            index.set_feature_level(0, level)
        self.decided(now_ms)

    def _drift_ms(self) -> int:
        index = self._ctx.state.index
        return int(index.clock.max_term_ms * self._ctx.settings.drift) + self._ctx.settings.leader_margin_ms

    def decided(self, now_ms: int) -> None:
        """Take the records that the index has decided and send them, unless a batch is in flight (group commit)."""
        records = [record for _, record in self._ctx.state.index.log.take_outbox()]
        if self._sent or self._buffered:
            self.committer.offer(records)
            self._send(now_ms)
        elif records or not self.committer.idle:
            self._request(self.committer.commit(now_ms, self._ctx.wall_us, records))

    def _send(self, now_ms: int) -> None:
        """Send the next batch, or the one whose outcome is unknown, unless one is in flight."""
        if self._sent or self.committer.idle:
            return
        if not self._buffered or self._is_in_buffer():
            self._request(self.committer.commit(now_ms, self._ctx.wall_us))

    def _is_in_buffer(self) -> bool:
        """Durability `buffered`: a batch is sent once it is in the buffer, or once the buffer has failed."""
        last_n, value, is_new = self.committer.pack(self._ctx.wall_us)
        if is_new:
            self._pushed = last_n
            self._ctx.effects.do(PushBuffer(self.epoch, last_n, value))
        return last_n <= max(self._buffered_n, self._unbuffered_n)

    def _request(self, txn: Txn) -> None:
        self._sent = True
        self._retry_at_ms = FAR_MS
        self.commit_request = self._ctx.effects.ask(self, txn, self._committed)

    def _committed(self, now_ms: int, event: StoreAnswered) -> None:
        self._sent = False
        if not isinstance(event.result, TxnResult):
            if event.failure is Failure.REFUSED and not self._refused:
                self._refused = True
                self._ctx.effects.say(f"The store refuses the journal ({event.error}): nothing is acknowledged.")
            self._retry_at_ms = now_ms + RETRY_MS
            return
        fate = self.committer.answered(event.result)
        if fate is Fate.DEPOSED:
            self.end(now_ms, f"Epoch {self.epoch} ended: another node holds the leader key.", clean=False)
            return
        if fate is Fate.FOREIGN:
            self.end(now_ms, "A journal slot holds bytes that this epoch did not write.", clean=False)
            return
        self._durable(now_ms)

    def _durable(self, now_ms: int) -> None:
        self._refused = False
        durable = self.committer.durable
        state = self._ctx.state
        state.advance_to(durable)
        state.index.log.durable(durable.n)
        self._extend(now_ms, self.committer.writer.sent_ms)
        if self._buffered:
            self._ctx.effects.do(ForgetBuffer(self.epoch, durable.n))
        if self.phase is Phase.BEGINNING:
            self.phase = Phase.SERVING
            self._unlogged.flush_at(now_ms)
            self._began(now_ms)
        self._send(now_ms)
        if self.phase is not Phase.SERVING:
            self._go_on(now_ms)

    def _extend(self, now_ms: int, sent_ms: int) -> None:
        """A write of this epoch was committed: extend the lease.

        While the lease had expired, clients could not ping: their time-outs start again.
        """
        index, lease = self._ctx.state.index, self.leader_lease
        lapsed = not lease.holds(now_ms)
        silent_ms, self._wrote_ms = now_ms - self._wrote_ms, max(self._wrote_ms, sent_ms)
        if lapsed and silent_ms > index.settings.client_ttl_ms:
            # Owners of memory may have died and been replaced in that time. Successors must learn this before anything
            # is answered (H9).
            index.owners.suspect_all()
            self._silent_until = self._unlogged.number + 1
            self._unlogged.flush_at(now_ms)
        if self.unlogged_written < self._silent_until:
            return
        lease.committed(sent_ms)
        if lapsed and lease.holds(now_ms):
            index.owners.all_seen(self.leader_ms(now_ms))

    def _has_unknown_batch(self, now_ms: int) -> bool:
        """After an outage of the store, a batch of unknown outcome is written again before anything is answered."""
        writer = self.committer.writer
        return writer.undecided and writer.attempts > 1 and not self.leader_lease.holds(now_ms)

    def _heartbeat(self, now_ms: int, sent_ms: int) -> None:
        """An unlogged batch is in the store: also a write of this epoch."""
        if not self._has_unknown_batch(now_ms):
            self._extend(now_ms, sent_ms)
        self._go_on(now_ms)

    def _heartbeat_refused(self, now_ms: int) -> None:
        self.end(now_ms, f"Epoch {self.epoch} ended: the fence refused a heartbeat.", clean=False)

    def pushed(self, now_ms: int, n: int) -> None:
        """The buffer has every record up to `n`."""
        self._buffered_n = max(self._buffered_n, n)
        self._send(now_ms)

    def push_failed(self, now_ms: int) -> None:
        """The buffer is unavailable: records that only it would cover are acknowledged when the store has them."""
        self._unbuffered_n = max(self._unbuffered_n, self._pushed)
        self._send(now_ms)

    # --- time ---

    def tick(self, now_ms: int) -> None:
        self.committer.use_version(self._ctx.writes())  # nodes join and leave only with events that end in a tick
        if now_ms >= self._stop_at_ms:
            self.end(now_ms, "The hand-over could not be finished in time.", clean=False)
            return
        if now_ms >= self._retry_at_ms:
            self._retry_at_ms = FAR_MS
            if self.phase is Phase.RESIGNING:
                self._resign()
            else:
                self._send(now_ms)
        self._unlogged.tick(now_ms)

    # --- the end ---

    def hand_over(self, now_ms: int, successor: str) -> None:
        """Begin a planned switchover. The lease ends now: nothing more is answered in this epoch."""
        self.leader_lease.give_up()
        self.successor = successor
        self.phase = Phase.STOPPING
        self._stop_at_ms = now_ms + HAND_OVER_MS_MAX
        self._unlogged.flush_last(now_ms)
        self._go_on(now_ms)

    def _go_on(self, now_ms: int) -> None:
        """The next step of a hand-over, if the previous one is finished."""
        if self.phase is Phase.STOPPING:
            if not self.committer.idle or self._unlogged.under_way:
                return
            if not self._unlogged.complete or self._unlogged.number == 0:
                self._unlogged.flush(now_ms)
                return
            self.phase = Phase.HANDING_OVER
            at_ms = self.leader_ms(now_ms)
            self._ctx.state.index.handover(at_ms, self.unlogged_written)
            self.handover = Handover(at_ms, self.epoch, self.unlogged_written)
            self._unlogged.flush_at(FAR_MS)
            self.decided(now_ms)
        elif self.phase is Phase.HANDING_OVER and self.committer.idle:
            self.phase = Phase.RESIGNING
            self._resign()

    def _resign(self) -> None:
        who = self._ctx.identity
        marker = EndMarker(who.name, who.run, "handed over", wall_us=self._ctx.wall_us, successor=self.successor)
        self._ctx.effects.ask(self, end_epoch(self._ctx.keys, self.epoch, marker), self._resigned)

    def _resigned(self, now_ms: int, event: StoreAnswered) -> None:
        if isinstance(event.result, TxnResult):
            self.end(now_ms, "Handed over and resigned.", clean=True)
        else:
            self._retry_at_ms = now_ms + RETRY_MS

    def restore_key(self, lease: int) -> None:
        """The leader key has another value than this leader wrote: write it again, in the same epoch, or step down."""
        keys = self._ctx.keys
        txn = Txn(
            compare=(fence(keys.leader, self.epoch),),
            success=(Put(keys.leader, pack(self._ctx.leader_value(lease)), lease=lease),),
        )
        self._ctx.effects.ask(self, txn, self._restored)

    def _restored(self, now_ms: int, event: StoreAnswered) -> None:
        if not isinstance(event.result, TxnResult) or not event.result.succeeded:
            self.end(now_ms, "The forged leader key could not be restored.", clean=False)

    def end(self, now_ms: int, sentence: str, *, clean: bool) -> None:
        """End this epoch on this node, permanently."""
        if not self.open:
            return
        self.leader_lease.give_up()
        self.close()
        self._unlogged.close()
        self._over(now_ms, sentence, clean and self.committer.idle)
