"""Keeps a node's view and state up to date: list, watch from there, verify, list again if the watch is suspect."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from leasehold.ha.applied_state import BatchOutcome
from leasehold.ha.context import FAR_MS, Context
from leasehold.ha.effect_queue import Activity
from leasehold.ha.effects import CloseWatch, OpenWatch
from leasehold.ha.events import StoreAnswered, WatchBroken, WatchDelivered
from leasehold.ha.leader_lease import NEVER_MS
from leasehold.ha.listing import Lister, ListingFailure
from leasehold.ha.steps import Steps
from leasehold.journal.fenced_writer import slot_key, slot_number
from leasehold.mvcc.model import EventType, KeyValue, Range, RangeResult, Txn, TxnResult, prefix_end

RETRY_MS = 200
QUIET_MS = 1_500  # a watch that was silent for this long is verified with a read
STALE_MS = 5_000  # without contact for this long the view may be out of date
VERIFY_MS_MIN = 500
SHOWN_MAX = 8
PATIENCE_MS = 2_000  # a watch that is behind a read for longer than this is not trusted any more


class Watcher(Activity):
    """One watch over the whole prefix, including both kinds of batches, so that their order is kept.

    A leader watches only the keys outside the journal: it knows its own writes.

    `rebuild(now_ms, reason)` is called when the state must be rebuilt.
    """

    __slots__ = (
        "_behind_since_ms",
        "_ctx",
        "_listed_ms",
        "_lister",
        "_rebuild_state",
        "_retry_at_ms",
        "_seen",
        "_shown",
        "_suspect_since_ms",
        "_verified_ms",
        "_verifying",
        "_watches",
        "caught_up",
        "contact_ms",
        "journal",
        "tail_n",
    )  # fmt: skip

    def __init__(self, ctx: Context, rebuild: Callable[[int, str], None]) -> None:
        super().__init__()
        self._ctx = ctx
        self._rebuild_state = rebuild
        self._lister: Lister | None = None
        self._watches: tuple[int, ...] = ()
        self._retry_at_ms = FAR_MS
        self._verified_ms = -FAR_MS
        self._seen = (0, 0)  # (revision, epoch of the leader) in the last verification
        self._verifying = False
        self._behind_since_ms = FAR_MS
        self._suspect_since_ms = FAR_MS
        self._listed_ms = -FAR_MS
        self._shown: deque[tuple[int, int]] = deque(maxlen=SHOWN_MAX)  # (when a read was sent, the revision it showed)
        self.caught_up = False
        self.contact_ms = -FAR_MS
        self.journal = True  # whether batches are fed to the state; a leader knows its own writes
        self.tail_n = 0  # the first record that a linearizable read has shown and that was not applied then

    @property
    def wake_at_ms(self) -> int:
        verify_ms = FAR_MS if self._verifying or not self.caught_up else self._verify_due_ms()
        behind_ms = self._behind_since_ms + PATIENCE_MS if self._watches else FAR_MS
        return min(self._retry_at_ms, verify_ms, behind_ms)

    def _verify_due_ms(self) -> int:
        """A silent watch is verified soon, an active one at longer intervals."""
        if self._suspect_since_ms != FAR_MS:
            return self._verified_ms + RETRY_MS
        quiet_ms = max(self.contact_ms + QUIET_MS, self._verified_ms + RETRY_MS)
        # Often enough to prove, after a leader died, that its last write was not older than a storage host's TTL.
        term_ms = self._ctx.state.index.settings.client_ttl_ms
        return min(quiet_ms, self._verified_ms + min(self._ctx.settings.verify_ms, max(VERIFY_MS_MIN, term_ms // 4)))

    def fresh(self, now_ms: int) -> bool:
        """Whether the store was reached recently, and its events are not suspected to be old."""
        return now_ms - self.contact_ms < STALE_MS and self._suspect_since_ms == FAR_MS

    def awake(self, now_ms: int) -> None:
        """An event arrives. After a pause (process stopped, network cut) the first events may be old.

        They stay suspect until a read that is sent after this moment shows nothing newer.
        """
        if self.caught_up and now_ms - self.contact_ms >= STALE_MS:
            self._suspect_since_ms = now_ms  # again, even if it was set: an earlier read proves nothing now

    def written_after_ms(self, revision: int) -> int:
        """Lower bound, on this node's clock, for when this revision was written: a read sent then did not show it.

        The time of *arrival* proves nothing: this process may have been stopped, or its stream delayed.
        """
        return next((sent_ms for sent_ms, shown in reversed(self._shown) if shown < revision), NEVER_MS)

    def relist(self, now_ms: int) -> None:
        """Start over: list everything at one revision, then watch from there."""
        self._drop_watch()
        self.caught_up = False
        self._retry_at_ms = FAR_MS
        self._listed_ms = now_ms
        if self._lister is not None:
            self._lister.close()
        ctx = self._ctx
        self._lister = Lister(
            ctx.effects, ctx.keys, ctx.view, ctx.state, journal=self.journal, done=self._listed, failed=self._failed
        )
        self._lister.start()

    def tick(self, now_ms: int) -> None:
        if now_ms >= self._retry_at_ms:
            self.relist(now_ms)
        elif now_ms >= self._behind_since_ms + PATIENCE_MS and self._watches:
            self._ctx.effects.say("The watch is behind what a read shows. Listing the journal again.")
            self.relist(now_ms)
        elif self.caught_up and not self._verifying and now_ms >= self._verify_due_ms():
            self._verify(now_ms)

    def delivered(self, now_ms: int, event: WatchDelivered) -> Steps[None]:
        """Apply watched changes in the order of their revisions."""
        if event.watch not in self._watches:
            return
        self.contact_ms = now_ms
        ctx = self._ctx
        for one in event.batch.events:
            if ctx.view.change(now_ms, one) or one.type is EventType.DELETE or not self.journal:
                continue
            if one.kv.key.startswith(ctx.keys.unlogged):
                after_ms = self.written_after_ms(one.kv.mod_revision)
                yield from ctx.state.take_unlogged(now_ms, one.kv.value, leads=self._leads(), after_ms=after_ms)
            elif (n := _slot_of(ctx.keys.explicit, one.kv.key)) and not (yield from self._take(now_ms, n, one.kv)):
                return
        self.contact_ms = ctx.effects.now_ms
        if self._behind_since_ms != FAR_MS and not self._behind():
            self._behind_since_ms = FAR_MS

    def _leads(self) -> int:
        """The epoch whose leader key exists, as far as this node has seen."""
        leader = self._ctx.view.leader
        return leader.epoch if leader is not None else 0

    def _take(self, now_ms: int, n: int, kv: KeyValue) -> Steps[bool]:
        """Feed the explicit batch of slot `n`. Returns False if the rest of the delivery must be ignored."""
        outcome = yield from self._ctx.state.take_explicit(now_ms, n, kv.value, leads=self._leads())
        now_ms = self._ctx.effects.now_ms
        if outcome is BatchOutcome.GAP:
            if not self._ctx.state.quarantined_records:
                self.relist(now_ms)
            return False
        if outcome is BatchOutcome.FORK:
            self._rebuild(now_ms, "a batch contradicts an applied record")
            return False
        return True

    def broken(self, now_ms: int, event: WatchBroken) -> None:
        if event.watch in self._watches:
            self._watches = tuple(watch for watch in self._watches if watch != event.watch)
            self.relist(now_ms)

    def close(self) -> None:
        super().close()
        self._drop_watch()
        if self._lister is not None:
            self._lister.close()

    def _drop_watch(self) -> None:
        for watch in self._watches:
            self._ctx.effects.do(CloseWatch(watch))
        self._watches = ()
        self._behind_since_ms = FAR_MS

    def follow(self) -> None:
        """This node no longer leads: feed batches to the state again. The caller lists or rebuilds next."""
        self.journal = True

    def lead(self) -> None:
        """This node now writes the journal itself: watch only the other keys, from the current revision."""
        self.journal = False
        if self._watches:
            self._drop_watch()
            self._open_watch(self._ctx.view.revision + 1)

    def _open_watch(self, revision: int) -> None:
        effects, keys = self._ctx.effects, self._ctx.keys
        end = prefix_end(keys.root)
        spans = [(keys.root, end)] if self.journal else [(keys.root, keys.journal), (prefix_end(keys.journal), end)]
        self._watches = tuple(effects.number() for _ in spans)
        for watch, (first, beyond) in zip(self._watches, spans, strict=True):
            effects.do(OpenWatch(watch, first, beyond, revision))

    def _listed(self, now_ms: int, revision: int) -> None:
        self._open_watch(revision + 1)
        self._shown.append((self._listed_ms, revision))
        self._suspect_since_ms = now_ms if now_ms - self._listed_ms >= STALE_MS else FAR_MS
        self.caught_up = True
        self.contact_ms = now_ms
        self._verified_ms = now_ms

    def _failed(self, now_ms: int, failure: ListingFailure) -> None:
        if failure.needs_rebuild:
            self._rebuild(now_ms, f"the journal does not continue from this state ({failure.value})")
        else:
            self._retry_at_ms = now_ms + RETRY_MS

    def _rebuild(self, now_ms: int, reason: str) -> None:
        self._drop_watch()
        self.caught_up = False
        self._rebuild_state(now_ms, reason)

    def _verify(self, now_ms: int) -> None:
        """Read leader and tail with a linearizable read, so that lag is measured against the tail and not the watch."""
        self._verified_ms = now_ms
        self._verifying = True
        keys = self._ctx.keys
        unseen, known = slot_key(keys.explicit, self._ctx.state.applied.n + 1), self._ctx.view.revision
        tail = Range(unseen, keys.explicit_end, limit=1, keys_only=True)
        self._ctx.effects.ask(
            self,
            Txn(success=(Range(keys.leader, keys_only=True), tail)),
            lambda at_ms, event: self._verified(at_ms, event, now_ms, known),
        )

    def _verified(self, now_ms: int, event: StoreAnswered, sent_ms: int, known: int) -> None:
        self._verifying = False
        if not isinstance(event.result, TxnResult):
            return
        if event.result.header.revision < known:
            # Only a store that was restored from a backup goes back. A watch there would wait for a revision far ahead.
            self._ctx.effects.say(
                f"The store's revision went back from {known} to {event.result.header.revision}: it was restored while "
                "this node was running. Listing the journal again.",
                serious=True,
            )
            self._shown.clear()
            self.relist(now_ms)
            return
        self.contact_ms = now_ms
        leader, tail = event.result.results
        assert isinstance(leader, RangeResult)
        assert isinstance(tail, RangeResult)
        self.tail_n = (slot_number(tail.kvs[0].key) if tail.kvs else 0) or self._ctx.state.applied.n
        self._seen = (event.result.header.revision, leader.kvs[0].create_revision if leader.kvs else 0)
        self._shown.append((sent_ms, event.result.header.revision))
        if not self._behind():
            if sent_ms >= self._suspect_since_ms:
                self._suspect_since_ms = FAR_MS
        elif self._behind_since_ms == FAR_MS:
            self._behind_since_ms = now_ms

    def _behind(self) -> bool:
        """Whether a read has shown something that the watch has not delivered yet."""
        view, (revision, epoch) = self._ctx.view, self._seen
        if self.journal and self.tail_n > self._ctx.state.applied.n and not self._ctx.state.quarantined_records:
            return True
        return view.revision <= revision and epoch != (view.leader.epoch if view.leader else 0)


def _slot_of(explicit: bytes, key: bytes) -> int:
    """The number of an explicit batch's slot, or 0 for any other key."""
    return slot_number(key) if key.startswith(explicit) else 0
