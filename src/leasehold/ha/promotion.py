"""From elected to `begin`: the exact order that keeps the promises. Pure.

1. read the journal with a linearizable read to its tail, and apply all of it (nobody else can write to it any more);
2. wait until the old primary's right to serve has ended, unless a note says that it will not answer again;
3. drain the buffer: batches that were acknowledged and not yet written;
4. one-time cleanup, with counts;
5. `begin` (written by `Leading`), durable before the first answer.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from leasehold.ha.applied_state import Took
from leasehold.ha.context import FAR_MS, Context
from leasehold.ha.effect_queue import Activity
from leasehold.ha.effects import DrainBuffer
from leasehold.ha.events import StoreAnswered
from leasehold.ha.listing import Lister
from leasehold.ha.steps import Pieces
from leasehold.journal.batch import UnreadableBatch, decode_explicit, encode_explicit, encode_records
from leasehold.journal.chain import Fit, fit
from leasehold.journal.fenced_writer import Fate, FencedWriter, fence, slot_key
from leasehold.mvcc.model import DeleteRange, Put, Txn, TxnResult, prefix_end

RETRY_MS = 100


class Ready(Struct, frozen=True):
    """Everything that `begin` needs to know."""

    handover_ms: int | None  # leader time of a hand-over that holds, else None: full grace
    owners_unheard: bool  # nobody knows how long nobody led: storage hosts may have come and gone (H9)
    spoke_ms: int  # the old epoch's last write was not before this
    counts: dict[str, int]
    sentence: str


class Promotion(Activity):
    """`ready(now_ms, Ready)` or `failed(now_ms, sentence)`, once."""

    __slots__ = (
        "_applied_before", "_batches", "_ctx", "_drain_asked", "_drained", "_failed", "_forced",
        "_lister", "_ready", "_retry_at_ms", "_uses_buffer", "_wait_until_ms", "_writer", "epoch", "lease",
    )  # fmt: skip

    def __init__(
        self,
        ctx: Context,
        epoch: int,
        lease: int,
        *,
        forced: bool,
        ready: Callable[[int, Ready], None],
        failed: Callable[[int, str], None],
    ) -> None:
        super().__init__()
        self._ctx, self._ready, self._failed = ctx, ready, failed
        self.epoch, self.lease = epoch, lease
        self._forced = forced
        self._applied_before = ctx.state.records_applied
        self._lister: Lister | None = None
        self._retry_at_ms = FAR_MS
        self._wait_until_ms = FAR_MS
        self._uses_buffer = ctx.settings.durability == "buffered"
        self._drain_asked = False
        self._batches: list[bytes] = []
        self._drained = 0
        self._writer = FencedWriter(ctx.keys.leader, epoch)

    @property
    def wake_at_ms(self) -> int:
        return min(self._retry_at_ms, self._wait_until_ms)

    def close(self) -> None:
        super().close()
        if self._lister is not None:
            self._lister.close()

    def start(self, now_ms: int) -> None:
        ctx = self._ctx
        self._lister = Lister(
            ctx.desk, ctx.keys, ctx.view, ctx.state, journal=True, done=self._read, failed=self._not_read
        )
        self._lister.start()

    def tick(self, now_ms: int) -> None:
        if now_ms >= self._retry_at_ms:
            self._retry_at_ms = FAR_MS
            if self._writer.undecided:
                self._ctx.desk.ask(self, self._writer.again(now_ms), self._attached)
            else:
                self.start(now_ms)
        if now_ms >= self._wait_until_ms:
            self._wait_until_ms = FAR_MS
            self._right_ended(now_ms)

    def _not_read(self, now_ms: int, reason: str) -> None:
        if reason in ("below the floor", Took.FORK.value, Took.GAP.value):
            self._fail(now_ms, f"The journal does not go on from here ({reason}).")
        else:
            self._retry_at_ms = now_ms + RETRY_MS

    def _read(self, now_ms: int, revision: int) -> None:
        state = self._ctx.state
        if state.quarantined_records or (state.diverged and not self._forced):
            self._cannot_apply(now_ms)
        else:
            self._await_right(now_ms)

    def _cannot_apply(self, now_ms: int) -> None:
        if self._forced:
            self._cut_off()
        else:
            self._fail(now_ms, "The tail holds a record that cannot be applied: another node must lead.")

    def _cut_off(self) -> None:
        """An operator's word: what cannot be applied, and all that follows it, leaves the journal."""
        ctx = self._ctx
        n, torn = ctx.state.applied.n, ctx.state.torn
        ops: list[DeleteRange | Put] = [DeleteRange(slot_key(ctx.keys.explicit, n + 1), prefix_end(ctx.keys.explicit))]
        if torn is not None:
            # What stands in the middle of a batch leaves with the rest of that batch: else the chain would go on at a
            # place that its own slot contradicts, and no other node could ever follow it.
            kept = [encode_records(torn.records[: n + 1 - torn.first_n])]
            prev = (torn.prev_epoch, torn.prev_n)
            value = encode_explicit(torn.epoch, torn.first_n, prev, torn.right_ms, torn.wall_us, kept, ctx.writes())
            ops.append(Put(slot_key(ctx.keys.explicit, torn.first_n), value))
        ctx.desk.ask(self, Txn((fence(ctx.keys.leader, self.epoch),), tuple(ops)), self._cut)

    def _cut(self, now_ms: int, event: StoreAnswered) -> None:
        if not isinstance(event.result, TxnResult):
            self._retry_at_ms = now_ms + RETRY_MS
            return
        if not event.result.succeeded:
            self._fail(now_ms, "The leader key was lost while the journal was being cut off.")
            return
        state = self._ctx.state
        self._ctx.desk.say(
            f"By an operator's word everything after record {state.applied.n} has left the journal "
            f"({state.quarantined_records[0].reason}).",
            serious=True,
        )
        state.quarantined_records = []
        state.torn = None
        self._await_right(now_ms)

    def _await_right(self, now_ms: int) -> None:
        state = self._ctx.state
        wait_ms = max(0, self._old_right_ends_ms() - now_ms)
        if wait_ms:
            self._ctx.desk.say(
                f"Elected for epoch {self.epoch}; epoch {state.applied.epoch} left no note: "
                f"waiting {wait_ms} ms until it cannot answer any more."
            )
        self._wait_until_ms = now_ms + wait_ms
        self.tick(now_ms)

    def _old_right_ends_ms(self) -> int:
        """When the last epoch that wrote anything can no longer answer, on this node's clock.

        An epoch without a committed write never had the right to serve, so the newest one that wrote is all that
        counts. Expired and revoked leases look the same; only a note in the deleting transaction proves an end.
        """
        last, settings = self._ctx.state.last_write, self._ctx.settings
        if last.epoch == 0 or last.epoch in self._ctx.view.notes:
            return -FAR_MS
        return last.seen_ms + last.right_ms + int(last.right_ms * settings.drift) + 1

    def _right_ended(self, now_ms: int) -> None:
        if self._uses_buffer:
            self._drain_asked = True
            self._ctx.desk.do(DrainBuffer(self.epoch))
        else:
            self._finish(now_ms)

    # --- the buffer ---

    def drained(self, now_ms: int, batches: tuple[bytes, ...]) -> None:
        """What the buffer held. A batch is attached only if its predecessor is the tail."""
        if self._drain_asked:
            self._drain_asked = False
            self._batches = list(batches)
            self._attach(now_ms)

    def drain_failed(self, now_ms: int, reason: str) -> None:
        if not self._drain_asked:
            return
        if self._forced:
            self.drained(now_ms, ())
        else:
            self._fail(now_ms, f"The buffer cannot be reached ({reason}): it may hold acknowledged records. "
                       "Bring it back, or force the promotion.")  # fmt: skip

    def _attach(self, now_ms: int) -> None:
        while self._batches:
            raw = self._batches[0]
            try:
                batch = decode_explicit(raw)
            except UnreadableBatch as error:
                self._ctx.desk.say(f"Set aside from the buffer: {error}.", serious=True)
                self._batches.pop(0)
                continue
            verdict = fit(self._ctx.state.applied, batch)
            if verdict is Fit.NEXT:
                txn = self._writer.write(now_ms, slot_key(self._ctx.keys.explicit, batch.first_n), raw)
                self._ctx.desk.ask(self, txn, self._attached)
                return
            if verdict is not Fit.OLD:
                self._ctx.desk.say(
                    f"Set aside from the buffer: batch {batch.first_n} of epoch {batch.epoch} does not fit the tail.",
                    serious=True,
                )
            self._batches.pop(0)
        self._finish(now_ms)

    def _attached(self, now_ms: int, event: StoreAnswered) -> Pieces[None]:
        if not isinstance(event.result, TxnResult):
            self._retry_at_ms = now_ms + RETRY_MS
            return
        if self._writer.judge(event.result) is not Fate.WRITTEN:
            self._fail(now_ms, "The leader key was lost while the buffer was being drained.")
            return
        raw = self._batches.pop(0)
        batch = decode_explicit(raw)
        took = yield from self._ctx.state.take_batch(batch)
        if took not in (Took.APPLIED, Took.OLD):  # old: our own watch was faster
            # It stands in the journal now: to begin in its middle would contradict it, and nobody could follow.
            self._cannot_apply(self._ctx.desk.now_ms)
            return
        self._ctx.state.ledger.saw(batch.first_n, len(raw))
        self._drained += 1
        self._attach(self._ctx.desk.now_ms)

    # --- the end ---

    def overtaken(self) -> bool:
        """Whether another epoch is known to have followed this one: then nothing may be begun any more."""
        view = self._ctx.view
        if self._ctx.state.applied.epoch > self.epoch:
            return True
        return view.revision >= self.epoch and (view.leader is None or view.leader.epoch != self.epoch)

    def _finish(self, now_ms: int) -> None:
        state = self._ctx.state
        if self.overtaken():
            self._fail(now_ms, f"The leader key of epoch {self.epoch} is gone.")
            return
        handover = state.handover
        holds = handover is not None and state.unlogged.has_all_to(handover.last_unlogged) and not state.unexplained
        counts = self._counts(handed_over=holds)
        self.close()
        handover_ms = handover.at_ms if holds and handover is not None else None
        sentence = _begins(self.epoch, state.applied.n, counts, handed_over=holds)
        state.index.owners.set_unproven_before_n(state.unheard_n())
        unheard = self._owners_unheard(now_ms)
        spoke_ms = now_ms if unheard or not state.applied.n else state.heard.after_ms
        self._ready(now_ms, Ready(handover_ms, unheard, spoke_ms, counts, sentence))

    def _owners_unheard(self, now_ms: int) -> bool:
        """Whether the owners of memory may have come and gone unseen: no leader is known to have heard them lately."""
        state = self._ctx.state
        return state.applied.n > 0 and not state.owners_heard(now_ms)

    def _counts(self, *, handed_over: bool) -> dict[str, int]:
        """What this promotion has done, what this node has cleared away as a standby, and what it begins with."""
        state = self._ctx.state
        index = state.index
        quarantined, resting_bytes = index.space.quarantine.totals()
        displaced, cleaned_up, bytes_cleaned_up = state.cleared()
        return {
            "applied": state.records_applied - self._applied_before,
            "displaced": displaced,
            "cleaned_up": cleaned_up,
            "bytes_cleaned_up": bytes_cleaned_up,
            "batches_drained": self._drained,
            "objects": index.catalog.object_count,
            "bytes_used": index.space.used_bytes,
            "in_grace": 0 if handed_over else index.catalog.readable_count,
            "extents_resting": quarantined,
            "bytes_resting": resting_bytes,
        }

    def _fail(self, now_ms: int, sentence: str) -> None:
        self.close()
        self._failed(now_ms, sentence)


def _begins(epoch: int, n: int, counts: dict[str, int], *, handed_over: bool) -> str:
    """One sentence for people: what is none is not told (`counts` has it all)."""
    told = [
        f"{counts['applied']} applied on the way" if counts["applied"] else "",
        f"{counts['batches_drained']} batches drained" if counts["batches_drained"] else "",
        f"as a standby {counts['displaced']} displaced" if counts["displaced"] else "",
        f"{counts['cleaned_up']} cleaned up ({counts['bytes_cleaned_up']} bytes)" if counts["cleaned_up"] else "",
        f"{counts['objects']} objects in {counts['bytes_used']} bytes",
        f"{counts['bytes_resting']} of them at rest" if counts["bytes_resting"] else "",
    ]
    in_grace = f" ({counts['in_grace']} objects held in grace)" if counts["in_grace"] else ""
    grace = "leases go on as handed over" if handed_over else f"every lease gets its full term again{in_grace}"
    return f"Epoch {epoch} begins after record {n}: {', '.join(part for part in told if part)}; {grace}."
