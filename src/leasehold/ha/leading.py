"""One epoch as primary: commit what is decided, keep the right to serve, hand over. Pure."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from leasehold.base import limits
from leasehold.ha.context import FAR_MS, Context
from leasehold.ha.effect_queue import Activity
from leasehold.ha.effects import ForgetBuffer, PushBuffer
from leasehold.ha.events import Failure, StoreAnswered
from leasehold.ha.keys import EndMarker, end_epoch
from leasehold.ha.leader_lease import Right
from leasehold.ha.unlogged import RETRY_MS, UnloggedWriter
from leasehold.index.records import Handover
from leasehold.journal.committer import Committer
from leasehold.journal.fenced_writer import Fate, FencedWriter
from leasehold.mvcc.model import TxnResult

HAND_OVER_MS_MAX = 20_000  # after that a leader that cannot finish its hand-over gives up its lease


class Phase(Enum):
    BEGINNING = "beginning"  # `begin` is not durable yet
    SERVING = "serving"
    STOPPING = "stopping"  # no more answers; what was decided is being made durable, then the last bulk
    HANDING_OVER = "handing over"  # the hand-over is on its way: the last record of this epoch
    RESIGNING = "resigning"


class Leading(Activity):
    """Law: nothing of this epoch is answered before `begin` is durable, nor after a hand-over or resignation was sent.

    `over(now_ms, sentence, clean)` is called once, at the end: clean if every record decided is durable.
    `began(now_ms)` when `begin` is durable.
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
        "_spoke_ms",
        "_started_ms",
        "_stop_at_ms",
        "_tell_from",
        "_unbuffered_n",
        "_unlogged",
        "base_ms",
        "commit_request",
        "committer",
        "epoch",
        "handover",
        "lease",
        "phase",
        "right",
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
        self.right = Right(settings.leader_ttl_ms, settings.leader_margin_ms)
        writer = FencedWriter(ctx.keys.leader, epoch)
        self.committer = Committer(ctx.keys.explicit, writer, ctx.state.applied, settings.leader_ttl_ms, ctx.writes())
        self.phase = Phase.BEGINNING
        self.successor = ""
        self.sync = settings.durability == "sync"  # an answer waits for its record, always
        self._buffered = settings.durability == "buffered"
        self.commit_request = 0  # the number of the last request that commits a batch
        self._refused = False  # the store has said no since it last said yes
        self._sent = False
        self._retry_at_ms = FAR_MS
        self._pushed = 0
        self._buffered_n = self._unbuffered_n = ctx.state.applied.n
        self._unlogged = UnloggedWriter(ctx, epoch, now_ms, written=self._heartbeat, refused=self._heartbeat_refused)
        self._spoke_ms = now_ms  # when the last write was sent that was committed; at first, the epoch before's
        self._tell_from = 0  # nothing is answered before this bulk batch stands in the store
        self._stop_at_ms = FAR_MS
        self.handover: Handover | None = None  # the last record of this epoch, once it was decided

    # --- what the hot path and the gate read ---

    @property
    def durable_n(self) -> int:
        return self.committer.durable.n

    @property
    def acked_n(self) -> int:
        """Up to here an answer that hands out no space may leave."""
        settings, durable_n = self._ctx.settings, self.committer.durable.n
        if self._buffered:
            return max(durable_n, self._buffered_n)
        if settings.durability == "async":
            return durable_n + settings.async_records_max
        return durable_n

    @property
    def steady(self) -> bool:
        """Serving, and nothing to be repeated; the journal keeps up with what is decided."""
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
        """The last bulk batch of this epoch that stands in the store."""
        return self._unlogged.written_number

    def leader_ms(self, now_ms: int) -> int:
        return now_ms - self.base_ms

    # --- explicit batches ---

    def begin(self, now_ms: int, handover_ms: int | None, *, owners_unheard: bool, spoke_ms: int) -> None:
        """Write the epoch's first record. `spoke_ms`: a moment that the last write before it was not before."""
        self._spoke_ms = spoke_ms
        drift_ms = self._drift_ms() if handover_ms is not None else 0
        self._ctx.state.index.begin(
            0, self.epoch, handover_ms=handover_ms, drift_ms=drift_ms, owners_unproven=owners_unheard
        )
        self.decided(now_ms)

    def _drift_ms(self) -> int:
        index = self._ctx.state.index
        return int(index.clock.max_term_ms * self._ctx.settings.drift) + self._ctx.settings.leader_margin_ms

    def decided(self, now_ms: int) -> None:
        """Take what the index has decided and get it on its way."""
        outbox = self._ctx.state.index.log.take_outbox()
        if outbox:
            self.committer.offer([record for _, record in outbox])
        self._send(now_ms)

    def _send(self, now_ms: int) -> None:
        """Get the next batch on its way, unless one is: what is pending goes together (group commit)."""
        committer = self.committer
        if self._sent or committer.idle:
            return
        undecided = committer.undecided
        if undecided is None:
            undecided = committer.finish(self._ctx.wall_us)
            if self._buffered:
                self._pushed = undecided[0]
                self._ctx.desk.do(PushBuffer(self.epoch, undecided[0], undecided[1]))
        if self._buffered and undecided[0] > max(self._buffered_n, self._unbuffered_n):
            return
        self._sent = True
        self._retry_at_ms = FAR_MS
        self.commit_request = self._ctx.desk.ask(self, committer.send(now_ms), self._committed)

    def _committed(self, now_ms: int, event: StoreAnswered) -> None:
        self._sent = False
        if not isinstance(event.result, TxnResult):
            if event.failure is Failure.REFUSED and not self._refused:
                self._refused = True
                self._ctx.desk.say(f"The store refuses the journal ({event.error}): nothing is acknowledged.")
            self._retry_at_ms = now_ms + RETRY_MS
            return
        fate = self.committer.answered(event.result)
        if fate is Fate.DEPOSED:
            self.end(now_ms, f"Epoch {self.epoch} is over: the leader key is not ours any more.", clean=False)
            return
        if fate is Fate.FOREIGN:
            self.end(now_ms, "A journal slot holds bytes that nobody of this epoch wrote.", clean=False)
            return
        self._durable(now_ms)

    def _durable(self, now_ms: int) -> None:
        self._refused = False
        durable = self.committer.durable
        state = self._ctx.state
        state.advance_to(durable)
        first_n, _, value = self.committer.written
        state.journal_length.add(first_n, len(value))
        state.index.log.durable(durable.n)
        self._extend(now_ms, self.committer.writer.sent_ms)
        if self._buffered:
            self._ctx.desk.do(ForgetBuffer(self.epoch, durable.n))
        if self.phase is Phase.BEGINNING:
            self.phase = Phase.SERVING
            self._unlogged.due_ms = now_ms
            self._began(now_ms)
        self._send(now_ms)
        if self.phase is not Phase.SERVING:
            self._go_on(now_ms)

    def _extend(self, now_ms: int, sent_ms: int) -> None:
        """A write of this epoch counted. After a time without the right, clients could not ping: they start anew."""
        index = self._ctx.state.index
        lapsed = not self.right.holds(now_ms)
        silent_ms, self._spoke_ms = now_ms - self._spoke_ms, max(self._spoke_ms, sent_ms)
        if lapsed and silent_ms > index.settings.client_ttl_ms:
            # Longer than owners of memory are believed in: they may have come and gone. Successors must know that, too,
            # and are told before anything is answered (H9).
            index.owners.suspect_all()
            self._tell_from, self._unlogged.due_ms = self._unlogged.number + 1, now_ms
        if self.unlogged_written < self._tell_from:
            return
        self.right.committed(sent_ms)
        if lapsed and self.right.holds(now_ms):
            index.owners.all_seen(self.leader_ms(now_ms))

    def _in_doubt(self, now_ms: int) -> bool:
        """After a time without the store, every undetermined batch is written again before anything is answered."""
        writer = self.committer.writer
        return writer.undecided and writer.attempts > 1 and not self.right.holds(now_ms)

    def _heartbeat(self, now_ms: int, sent_ms: int) -> None:
        """A bulk batch stands in the store: a write of this epoch, too."""
        if not self._in_doubt(now_ms):
            self._extend(now_ms, sent_ms)
        self._go_on(now_ms)

    def _heartbeat_refused(self, now_ms: int) -> None:
        self.end(now_ms, f"Epoch {self.epoch} is over: a heartbeat was refused by the fence.", clean=False)

    def pushed(self, now_ms: int, n: int) -> None:
        """The buffer has everything up to `n`."""
        self._buffered_n = max(self._buffered_n, n)
        self._send(now_ms)

    def push_failed(self, now_ms: int) -> None:
        """The buffer is away: what only it would have covered is acknowledged when the store has it."""
        self._unbuffered_n = max(self._unbuffered_n, self._pushed)
        self._send(now_ms)

    # --- time ---

    def tick(self, now_ms: int) -> None:
        self.committer.version = self._ctx.writes()  # nodes come and go only with events that end in a tick
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
        """Begin a planned switchover. The right ends here and now: nothing is answered any more in this epoch."""
        self.right.give_up()
        self.successor = successor
        self.phase = Phase.STOPPING
        self._stop_at_ms = now_ms + HAND_OVER_MS_MAX
        self._unlogged.complete, self._unlogged.due_ms = False, now_ms
        self._go_on(now_ms)

    def _go_on(self, now_ms: int) -> None:
        """The next step of a hand-over, if the one before is done."""
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
            self._unlogged.due_ms = FAR_MS
            self.decided(now_ms)
        elif self.phase is Phase.HANDING_OVER and self.committer.idle:
            self.phase = Phase.RESIGNING
            self._resign()

    def _resign(self) -> None:
        who = self._ctx.identity
        note = EndMarker(who.name, who.run, "handed over", wall_us=self._ctx.wall_us, successor=self.successor)
        self._ctx.desk.ask(self, end_epoch(self._ctx.keys, self.epoch, note), self._resigned)

    def _resigned(self, now_ms: int, event: StoreAnswered) -> None:
        if isinstance(event.result, TxnResult):
            self.end(now_ms, "Handed over and resigned.", clean=True)
        else:
            self._retry_at_ms = now_ms + RETRY_MS

    def end(self, now_ms: int, sentence: str, *, clean: bool) -> None:
        """Stop for good."""
        if not self.open:
            return
        self.right.give_up()
        self.close()
        self._unlogged.close()
        self._over(now_ms, sentence, clean and self.committer.idle)
