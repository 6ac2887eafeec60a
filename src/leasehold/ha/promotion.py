"""From elected to `begin`. The promises depend on this order:

1. read the journal to its tail with a linearizable read, and apply all of it (no other node can write to it any more);
2. wait until the old primary's leader lease has expired, unless an end marker proves that it will not answer again;
3. drain the buffer: batches that were acknowledged and are not in the store yet;
4. count what this node cleaned up and what it starts with;
5. write `begin` (done by `Leading`); it is durable before the first answer.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from leasehold.ha.applied_state import BatchOutcome
from leasehold.ha.context import FAR_MS, Context
from leasehold.ha.effect_queue import Activity
from leasehold.ha.effects import DrainBuffer
from leasehold.ha.events import StoreAnswered
from leasehold.ha.listing import Lister, ListingFailure
from leasehold.ha.steps import Steps
from leasehold.journal.batch import UnreadableBatch, decode_explicit, encode_explicit, encode_records
from leasehold.journal.chain import Fit, fit
from leasehold.journal.fenced_writer import Fate, FencedWriter, fence, slot_key
from leasehold.mvcc.model import DeleteRange, Put, Txn, TxnResult, prefix_end

RETRY_MS = 100


class PromotionResult(Struct, frozen=True):
    """The input of `begin`."""

    handover_ms: int | None  # leader time of a valid hand-over; None: every lease gets the full grace
    owners_unheard: bool  # the cluster may have been without a leader for long: storage hosts may have restarted (H9)
    last_write_ms: int  # lower bound on when the previous epoch last wrote
    counts: dict[str, int]
    sentence: str


class Promotion(Activity):
    """Calls `ready(now_ms, result)` or `failed(now_ms, sentence)`, once."""

    __slots__ = (
        "_applied_before", "_batches", "_ctx", "_drained", "_draining", "_failed", "_forced",
        "_lister", "_ready", "_retry_at_ms", "_uses_buffer", "_wait_until_ms", "_writer", "epoch", "lease",
    )  # fmt: skip

    def __init__(
        self,
        ctx: Context,
        epoch: int,
        lease: int,
        *,
        forced: bool,
        ready: Callable[[int, PromotionResult], None],
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
        self._draining = False
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
            ctx.effects, ctx.keys, ctx.view, ctx.state, journal=True, done=self._read, failed=self._not_read
        )
        self._lister.start()

    def tick(self, now_ms: int) -> None:
        if now_ms >= self._retry_at_ms:
            self._retry_at_ms = FAR_MS
            if self._writer.undecided:
                self._ctx.effects.ask(self, self._writer.again(now_ms), self._attached)
            else:
                self.start(now_ms)
        if now_ms >= self._wait_until_ms:
            self._wait_until_ms = FAR_MS
            self._lease_ended(now_ms)

    def _not_read(self, now_ms: int, failure: ListingFailure) -> None:
        if failure.needs_rebuild:
            self._does_not_continue(now_ms, failure.value)
        else:
            self._retry_at_ms = now_ms + RETRY_MS

    def _does_not_continue(self, now_ms: int, how: str) -> None:
        """The journal has records that this state lacks or contradicts. Also if forced: it must be rebuilt."""
        self._fail(now_ms, f"The journal does not continue from this state ({how}).")

    def _read(self, now_ms: int, revision: int) -> None:
        state = self._ctx.state
        if state.quarantined_records or (state.diverged and not self._forced):
            self._cannot_apply(now_ms)
        else:
            self._await_lease_end(now_ms)

    def _cannot_apply(self, now_ms: int) -> None:
        if self._forced:
            self._cut_off()
        else:
            self._fail(now_ms, "The tail has a record that this node cannot apply: another node must lead.")

    def _cut_off(self) -> None:
        """An operator forced it: delete the quarantined record, and all records after it."""
        ctx = self._ctx
        n, partial = ctx.state.applied.n, ctx.state.partial_batch
        ops: list[DeleteRange | Put] = [DeleteRange(slot_key(ctx.keys.explicit, n + 1), prefix_end(ctx.keys.explicit))]
        if partial is not None:
            # The record is in the middle of a batch: rewrite that batch without it. Otherwise the chain would continue
            # at a record that the batch also holds, and no other node could follow it.
            kept = [encode_records(partial.records[: n + 1 - partial.first_n])]
            prev = (partial.prev_epoch, partial.prev_n)
            value = encode_explicit(
                partial.epoch, partial.first_n, prev, partial.right_ms, partial.wall_us, kept, ctx.writes()
            )
            ops.append(Put(slot_key(ctx.keys.explicit, partial.first_n), value))
        ctx.effects.ask(self, Txn((fence(ctx.keys.leader, self.epoch),), tuple(ops)), self._cut)

    def _cut(self, now_ms: int, event: StoreAnswered) -> None:
        if not isinstance(event.result, TxnResult):
            self._retry_at_ms = now_ms + RETRY_MS
            return
        if not event.result.succeeded:
            self._fail(now_ms, "The leader key was lost while the journal was being cut.")
            return
        state = self._ctx.state
        self._ctx.effects.say(
            f"Forced by an operator: every record after {state.applied.n} was deleted from the journal "
            f"({state.quarantined_records[0].reason}).",
            serious=True,
        )
        state.discard_quarantined()
        self._await_lease_end(now_ms)

    def _await_lease_end(self, now_ms: int) -> None:
        state = self._ctx.state
        wait_ms = max(0, self._old_lease_ends_ms() - now_ms)
        if wait_ms:
            self._ctx.effects.say(
                f"Elected for epoch {self.epoch}. Epoch {state.applied.epoch} left no end marker: "
                f"waiting {wait_ms} ms until its leader lease has expired."
            )
        self._wait_until_ms = now_ms + wait_ms
        self.tick(now_ms)

    def _old_lease_ends_ms(self) -> int:
        """When the leader lease of the last epoch that wrote anything expires, on this node's clock.

        An epoch without a committed write never had a leader lease, so only the newest epoch that wrote counts. An
        expired leader key and a deleted one look the same; only an end marker proves that the leader stopped.
        """
        last, settings = self._ctx.state.last_write, self._ctx.settings
        if last.epoch == 0 or last.epoch in self._ctx.view.end_markers:
            return -FAR_MS
        return last.seen_ms + last.lease_ms + int(last.lease_ms * settings.drift) + 1

    def _lease_ended(self, now_ms: int) -> None:
        if self._uses_buffer:
            self._draining = True
            self._ctx.effects.do(DrainBuffer(self.epoch))
        else:
            self._finish(now_ms)

    # --- the buffer ---

    def drained(self, now_ms: int, batches: tuple[bytes, ...]) -> None:
        """Take the batches of the buffer. A batch is attached only if its predecessor is the tail."""
        if self._draining:
            self._draining = False
            self._batches = list(batches)
            self._attach(now_ms)

    def drain_failed(self, now_ms: int, reason: str) -> None:
        if not self._draining:
            return
        if self._forced:
            self.drained(now_ms, ())
        else:
            self._fail(now_ms, f"The buffer cannot be reached ({reason}) and may hold acknowledged records. "
                       "Restore it, or force the promotion.")  # fmt: skip

    def _attach(self, now_ms: int) -> None:
        while self._batches:
            raw = self._batches[0]
            try:
                batch = decode_explicit(raw)
            except UnreadableBatch as error:
                self._ctx.effects.say(f"A batch from the buffer was not attached: {error}.", serious=True)
                self._batches.pop(0)
                continue
            verdict = fit(self._ctx.state.applied, batch)
            if verdict is Fit.NEXT:
                txn = self._writer.write(now_ms, slot_key(self._ctx.keys.explicit, batch.first_n), raw)
                self._ctx.effects.ask(self, txn, self._attached)
                return
            if verdict is not Fit.OLD:
                self._ctx.effects.say(
                    f"Batch {batch.first_n} of epoch {batch.epoch} from the buffer was not attached: "
                    "it does not follow the tail.",
                    serious=True,
                )
            self._batches.pop(0)
        self._finish(now_ms)

    def _attached(self, now_ms: int, event: StoreAnswered) -> Steps[None]:
        if not isinstance(event.result, TxnResult):
            self._retry_at_ms = now_ms + RETRY_MS
            return
        if self._writer.judge(event.result) is not Fate.WRITTEN:
            self._fail(now_ms, "The leader key was lost while the buffer was being drained.")
            return
        raw = self._batches.pop(0)
        batch = decode_explicit(raw)
        outcome = yield from self._ctx.state.take_batch(batch)
        if outcome is BatchOutcome.QUARANTINED:
            # The batch is in the journal now: an epoch that begins in its middle would contradict it (schedule 14).
            self._cannot_apply(self._ctx.effects.now_ms)
            return
        if outcome in (BatchOutcome.GAP, BatchOutcome.FORK):  # this state has changed since `_attach`
            self._does_not_continue(self._ctx.effects.now_ms, outcome.value)
            return
        # Applied now, or old: this node's watch delivered it first.
        self._ctx.state.journal_length.add(batch.first_n, len(raw))
        self._drained += 1
        self._attach(self._ctx.effects.now_ms)

    # --- the end ---

    def overtaken(self) -> bool:
        """Whether another epoch is known to have followed this one: then this one must not begin."""
        view = self._ctx.view
        if self._ctx.state.applied.epoch > self.epoch:
            return True
        return view.revision >= self.epoch and (view.leader is None or view.leader.epoch != self.epoch)

    def _finish(self, now_ms: int) -> None:
        state = self._ctx.state
        if self.overtaken():
            self._fail(now_ms, f"The leader key of epoch {self.epoch} was lost.")
            return
        handover = state.handover
        complete = handover is not None and state.unlogged.has_all_to(handover.last_unlogged)
        holds = complete and not state.unexplained_renewal
        counts = self._counts(handed_over=holds)
        self.close()
        handover_ms = handover.at_ms if holds and handover is not None else None
        sentence = _begins(self.epoch, state.applied.n, counts, handed_over=holds)
        state.index.owners.set_unproven_before_n(state.unheard_n())
        unheard = self._owners_unheard(now_ms)
        last_write_ms = now_ms if unheard or not state.applied.n else state.heartbeat.after_ms
        self._ready(now_ms, PromotionResult(handover_ms, unheard, last_write_ms, counts, sentence))

    def _owners_unheard(self, now_ms: int) -> bool:
        """Whether owners of memory may have restarted unnoticed: no leader is known to have received their pings."""
        state = self._ctx.state
        return state.applied.n > 0 and not state.owners_known(now_ms)

    def _counts(self, *, handed_over: bool) -> dict[str, int]:
        """Counts of this promotion's work, of this node's cleanup as a standby, and of the state it starts with."""
        state = self._ctx.state
        index = state.index
        extents, extent_bytes = index.space.quarantine.totals()
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
            "extents_resting": extents,
            "bytes_resting": extent_bytes,
        }

    def _fail(self, now_ms: int, sentence: str) -> None:
        self.close()
        self._failed(now_ms, sentence)


def _begins(epoch: int, n: int, counts: dict[str, int], *, handed_over: bool) -> str:
    """One sentence for people, without the counts that are zero (`counts` has them all)."""
    parts = [
        f"{counts['applied']} records applied during promotion" if counts["applied"] else "",
        f"{counts['batches_drained']} batches drained" if counts["batches_drained"] else "",
        f"{counts['displaced']} displaced as a standby" if counts["displaced"] else "",
        f"{counts['cleaned_up']} cleaned up ({counts['bytes_cleaned_up']} bytes)" if counts["cleaned_up"] else "",
        f"{counts['objects']} objects in {counts['bytes_used']} bytes",
        f"{counts['bytes_resting']} of them in quarantine" if counts["bytes_resting"] else "",
    ]
    in_grace = f" ({counts['in_grace']} objects in grace)" if counts["in_grace"] else ""
    grace = "leases continue as handed over" if handed_over else f"every lease gets its full term again{in_grace}"
    return f"Epoch {epoch} begins after record {n}: {', '.join(part for part in parts if part)}; {grace}."
