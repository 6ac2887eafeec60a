"""Keeps a node's picture true: list, watch from there, verify, list again when in doubt."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from leasehold.ha.applied_state import Took
from leasehold.ha.context import FAR_MS, Context
from leasehold.ha.effect_queue import Activity
from leasehold.ha.effects import CloseWatch, OpenWatch
from leasehold.ha.events import StoreAnswered, WatchBroken, WatchDelivered
from leasehold.ha.leader_lease import NEVER_MS
from leasehold.ha.listing import Lister
from leasehold.ha.steps import Pieces
from leasehold.journal.fenced_writer import slot_key, slot_number
from leasehold.mvcc.model import EventType, KeyValue, Range, RangeResult, Txn, TxnResult, prefix_end

RETRY_MS = 200
HEARD_MS = 1_500  # a watch that has been silent for this long is asked about
STALE_MS = 5_000  # not heard for this long: what we know may be old
VERIFY_MS_MIN = 500
SHOWN_MAX = 8
PATIENCE_MS = 2_000  # what a read has shown and the watch has not: after this the watch is not believed


class Watcher(Activity):
    """One watch over the whole prefix, both kinds of batches included: it keeps their order.

    A leader watches only what is around the journal: it knows what it wrote, and need not be sent it all again.

    `troubled(now_ms, reason)` is called when the state must be rebuilt.
    """

    __slots__ = (
        "_behind_since_ms",
        "_ctx",
        "_doubtful_since_ms",
        "_listed_ms",
        "_lister",
        "_retry_at_ms",
        "_seen",
        "_shown",
        "_troubled",
        "_verified_ms",
        "_verify_asked",
        "_watches",
        "caught_up",
        "heard_ms",
        "journal",
        "tail_n",
    )  # fmt: skip

    def __init__(self, ctx: Context, troubled: Callable[[int, str], None]) -> None:
        super().__init__()
        self._ctx = ctx
        self._troubled = troubled
        self._lister: Lister | None = None
        self._watches: tuple[int, ...] = ()
        self._retry_at_ms = FAR_MS
        self._verified_ms = -FAR_MS
        self._seen = (0, 0)  # (revision, epoch of the leader) in the last verification
        self._verify_asked = False
        self._behind_since_ms = FAR_MS
        self._doubtful_since_ms = FAR_MS
        self._listed_ms = -FAR_MS
        self._shown: deque[tuple[int, int]] = deque(maxlen=SHOWN_MAX)  # (when a read was sent, the revision it showed)
        self.caught_up = False
        self.heard_ms = -FAR_MS
        self.journal = True  # whether batches are fed to the state; a leader knows what it wrote
        self.tail_n = 0  # the first record that a linearizable read has shown and that was not applied then

    @property
    def wake_at_ms(self) -> int:
        verify_ms = FAR_MS if self._verify_asked or not self.caught_up else self._verify_due_ms()
        behind_ms = self._behind_since_ms + PATIENCE_MS if self._watches else FAR_MS
        return min(self._retry_at_ms, verify_ms, behind_ms)

    def _verify_due_ms(self) -> int:
        """A silent watch is asked about soon, one that speaks now and then."""
        if self._doubtful_since_ms != FAR_MS:
            return self._verified_ms + RETRY_MS
        quiet_ms = max(self.heard_ms + HEARD_MS, self._verified_ms + RETRY_MS)
        # Often enough to know of a dead leader's last write that it was not older than a storage host's term.
        term_ms = self._ctx.state.index.settings.client_ttl_ms
        return min(quiet_ms, self._verified_ms + min(self._ctx.settings.verify_ms, max(VERIFY_MS_MIN, term_ms // 4)))

    def fresh(self, now_ms: int) -> bool:
        """Whether the store has been heard of lately, and what was heard is no old news."""
        return now_ms - self.heard_ms < STALE_MS and self._doubtful_since_ms == FAR_MS

    def awake(self, now_ms: int) -> None:
        """Something happens. After a time without any (stopped, cut off) what comes first was said long ago: doubt it

        until a read that is sent from here on shows nothing else.
        """
        if self.caught_up and now_ms - self.heard_ms >= STALE_MS:
            self._doubtful_since_ms = now_ms  # anew, also if it was: a read of before the last stop shows nothing now

    def written_after_ms(self, revision: int) -> int:
        """A moment on this node's clock before which this was not written: a read that was sent then did not show it.

        When it was *heard* of says nothing: this process may have been stopped, or its stream held up.
        """
        return next((sent_ms for sent_ms, shown in reversed(self._shown) if shown < revision), NEVER_MS)

    def relist(self, now_ms: int) -> None:
        """Begin anew: everything at one revision, then watch from there."""
        self._drop_watch()
        self.caught_up = False
        self._retry_at_ms = FAR_MS
        self._listed_ms = now_ms
        if self._lister is not None:
            self._lister.close()
        ctx = self._ctx
        self._lister = Lister(
            ctx.desk, ctx.keys, ctx.view, ctx.state, journal=self.journal, done=self._listed, failed=self._failed
        )
        self._lister.start()

    def tick(self, now_ms: int) -> None:
        if now_ms >= self._retry_at_ms:
            self.relist(now_ms)
        elif now_ms >= self._behind_since_ms + PATIENCE_MS and self._watches:
            self._ctx.desk.say("The watch has fallen behind what a read shows: list the journal again.")
            self.relist(now_ms)
        elif self.caught_up and not self._verify_asked and now_ms >= self._verify_due_ms():
            self._verify(now_ms)

    def delivered(self, now_ms: int, event: WatchDelivered) -> Pieces[None]:
        """Changes in the order of their revisions."""
        if event.watch not in self._watches:
            return
        self.heard_ms = now_ms
        ctx = self._ctx
        for one in event.batch.events:
            if ctx.view.change(now_ms, one) or one.type is EventType.DELETE or not self.journal:
                continue
            if one.kv.key.startswith(ctx.keys.unlogged):
                after_ms = self.written_after_ms(one.kv.mod_revision)
                yield from ctx.state.take_unlogged(now_ms, one.kv.value, leads=self._leads(), after_ms=after_ms)
            elif (n := _slot_of(ctx.keys.explicit, one.kv.key)) and not (yield from self._take(now_ms, n, one.kv)):
                return
        self.heard_ms = ctx.desk.now_ms
        if self._behind_since_ms != FAR_MS and not self._behind():
            self._behind_since_ms = FAR_MS

    def _leads(self) -> int:
        """The epoch whose leader's key stands, as far as this node has seen."""
        leader = self._ctx.view.leader
        return leader.epoch if leader is not None else 0

    def _take(self, now_ms: int, n: int, kv: KeyValue) -> Pieces[bool]:
        """Feed one explicit batch, of slot `n`; False if the rest of the delivery no longer counts."""
        took = yield from self._ctx.state.take_explicit(now_ms, n, kv.value, leads=self._leads())
        now_ms = self._ctx.desk.now_ms
        if took is Took.GAP:
            if not self._ctx.state.quarantined_records:
                self.relist(now_ms)
            return False
        if took is Took.FORK:
            self._rebuild(now_ms, "a batch contradicts what was applied")
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
            self._ctx.desk.do(CloseWatch(watch))
        self._watches = ()
        self._behind_since_ms = FAR_MS

    def lead(self) -> None:
        """From here on this node writes the journal itself: look past it, from where the watch has come to."""
        self.journal = False
        if self._watches:
            self._drop_watch()
            self._open_watch(self._ctx.view.revision + 1)

    def _open_watch(self, revision: int) -> None:
        desk, keys = self._ctx.desk, self._ctx.keys
        end = prefix_end(keys.root)
        spans = [(keys.root, end)] if self.journal else [(keys.root, keys.journal), (prefix_end(keys.journal), end)]
        self._watches = tuple(desk.number() for _ in spans)
        for watch, (first, beyond) in zip(self._watches, spans, strict=True):
            desk.do(OpenWatch(watch, first, beyond, revision))

    def _listed(self, now_ms: int, revision: int) -> None:
        self._open_watch(revision + 1)
        self._shown.append((self._listed_ms, revision))
        self._doubtful_since_ms = now_ms if now_ms - self._listed_ms >= STALE_MS else FAR_MS
        self.caught_up = True
        self.heard_ms = now_ms
        self._verified_ms = now_ms

    def _failed(self, now_ms: int, reason: str) -> None:
        if reason in ("below the floor", Took.FORK.value, Took.GAP.value):
            self._rebuild(now_ms, f"the journal does not go on from here ({reason})")
        else:
            self._retry_at_ms = now_ms + RETRY_MS

    def _rebuild(self, now_ms: int, reason: str) -> None:
        self._drop_watch()
        self.caught_up = False
        self._troubled(now_ms, reason)

    def _verify(self, now_ms: int) -> None:
        """Ask for leader and tail with a linearizable read: lag is measured against the tail, not what arrived."""
        self._verified_ms = now_ms
        self._verify_asked = True
        keys = self._ctx.keys
        unseen, known = slot_key(keys.explicit, self._ctx.state.applied.n + 1), self._ctx.view.revision
        tail = Range(unseen, keys.explicit_end, limit=1, keys_only=True)
        self._ctx.desk.ask(
            self,
            Txn(success=(Range(keys.leader, keys_only=True), tail)),
            lambda at_ms, event: self._verified(at_ms, event, now_ms, known),
        )

    def _verified(self, now_ms: int, event: StoreAnswered, sent_ms: int, known: int) -> None:
        self._verify_asked = False
        if not isinstance(event.result, TxnResult):
            return
        if event.result.header.revision < known:
            # Only a store that was put back from a backup says so. A watch waits there for what was shown long ago.
            self._ctx.desk.say(
                f"The store's revision went back from {known} to {event.result.header.revision}: it was restored while "
                "this node ran. List the journal again.",
                serious=True,
            )
            self._shown.clear()
            self.relist(now_ms)
            return
        self.heard_ms = now_ms
        leader, tail = event.result.results
        assert isinstance(leader, RangeResult)
        assert isinstance(tail, RangeResult)
        self.tail_n = (slot_number(tail.kvs[0].key) if tail.kvs else 0) or self._ctx.state.applied.n
        self._seen = (event.result.header.revision, leader.kvs[0].create_revision if leader.kvs else 0)
        self._shown.append((sent_ms, event.result.header.revision))
        if not self._behind():
            if sent_ms >= self._doubtful_since_ms:
                self._doubtful_since_ms = FAR_MS
        elif self._behind_since_ms == FAR_MS:
            self._behind_since_ms = now_ms

    def _behind(self) -> bool:
        """Whether a read has shown something that the watch has not told yet."""
        view, (revision, epoch) = self._ctx.view, self._seen
        if self.journal and self.tail_n > self._ctx.state.applied.n and not self._ctx.state.quarantined_records:
            return True
        return view.revision <= revision and epoch != (view.leader.epoch if view.leader else 0)


def _slot_of(explicit: bytes, key: bytes) -> int:
    """The number of an explicit batch's slot; 0 for any other key."""
    return slot_number(key) if key.startswith(explicit) else 0
