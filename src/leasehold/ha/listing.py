"""Reads everything under a cluster's prefix at one revision, in pages, and feeds it to view and state."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leasehold.base import limits
from leasehold.ha.applied_state import AppliedState, Took
from leasehold.ha.effect_queue import Activity, Desk
from leasehold.ha.events import Failure, StoreAnswered
from leasehold.ha.keys import Keys
from leasehold.ha.steps import Pieces
from leasehold.ha.view import View
from leasehold.journal.batch import UnreadableBatch, decode_explicit
from leasehold.journal.fenced_writer import slot_key, slot_number
from leasehold.mvcc.model import KeyValue, Range, RangeResult, SortOrder, Txn, TxnResult, prefix_end


class Lister(Activity):
    """One pass. `done(now_ms, revision)` when everything has been fed; `failed(now_ms, reason)` otherwise.

    The first answer holds floor, leader, notes, nodes and pause at the very revision of the journal that follows: a
    floor read at another time would hide what was trimmed in between. With a leader of our own the journal is
    known, and only the view is read.
    """

    __slots__ = ("_desk", "_done", "_failed", "_journal", "_keys", "_revision", "_start_n", "_state", "_view")

    def __init__(
        self,
        desk: Desk,
        keys: Keys,
        view: View,
        state: AppliedState,
        *,
        journal: bool,
        done: Callable[[int, int], None],
        failed: Callable[[int, str], None],
    ) -> None:
        super().__init__()
        self._desk, self._keys, self._view, self._state = desk, keys, view, state
        self._journal = journal
        self._done, self._failed = done, failed
        self._revision = 0
        self._start_n = 0  # what was applied when the first read was sent, which has to show all of it

    def start(self) -> None:
        keys, page = self._keys, limits.journal_list_page_keys
        reads: list[Range] = [
            Range(keys.leader),
            Range(keys.pause),
            Range(keys.floor),
            Range(keys.notes, prefix_end(keys.notes)),
            Range(keys.nodes, prefix_end(keys.nodes)),
        ]
        if self._journal:
            self._start_n = self._state.applied.n
            # The batch that holds the next record may have begun before it (a snapshot ends anywhere).
            here = slot_key(keys.explicit, self._state.applied.n + 1)
            # How far back is bounded, because etcd reads and sorts the whole of a range that is asked for backwards.
            back = slot_key(keys.explicit, max(0, self._state.applied.n + 1 - limits.journal_batch_records_max))
            reads.append(Range(back, here, limit=1, sort_order=SortOrder.DESCEND))
            reads.append(Range(here, keys.explicit_end, limit=page))
            reads.append(Range(keys.explicit, keys.explicit_end, limit=1, keys_only=True))
        self._desk.ask(self, Txn(success=tuple(reads)), self._first)

    def _first(self, now_ms: int, event: StoreAnswered) -> Pieces[None]:
        result = event.result
        if not isinstance(result, TxnResult):
            self._fail(now_ms, event)
            return
        parts = [part for part in result.results if isinstance(part, RangeResult)]
        self._revision = result.header.revision
        self._view.replace(now_ms, self._revision, [kv for part in parts[:5] for kv in part.kvs])
        if not self._journal:
            self._finish(now_ms)
            return
        if self._state.applied.n < self._view.truncated_n and not parts[5].kvs and self._lacks(parts[6]):
            self.close()
            self._failed(now_ms, "below the floor")
            return
        if parts[7].kvs and not parts[6].kvs and self._ends_before_us(parts[5].kvs):
            self.close()
            self._failed(now_ms, Took.FORK.value)
            return
        if (yield from self._feed_explicit(now_ms, [*parts[5].kvs, *parts[6].kvs])):
            self._page_explicit(parts[6])

    def _ends_before_us(self, behind: Sequence[KeyValue]) -> bool:
        """Whether a journal that has nothing new ends before what was applied here: the store was put back, as it was.

        What was cut off so is written anew, by epochs of any number, and would look old to this node. It goes on with
        what it has only if nothing else is left to begin from: the journal's beginning is gone, and no peer has it; or
        all of the journal is gone, and contradicts nothing.
        """
        view = self._view
        if self._start_n <= view.truncated_n:
            return False
        try:
            tail_n = decode_explicit(behind[0].value).last_n if behind else 0
        except UnreadableBatch:
            return False  # that is told in another way
        if tail_n >= self._start_n:
            return False
        bases = (s.end_n for node in view.nodes.values() if node.applied_n <= tail_n for s in node.snapshots)
        return view.truncated_n == 0 or any(end_n <= tail_n for end_n in bases)

    def _lacks(self, ahead: RangeResult) -> bool:
        """Whether the record after the mark is gone from the journal."""
        return not ahead.kvs or slot_number(ahead.kvs[0].key) > self._state.applied.n + 1

    def _page_explicit(self, page: RangeResult) -> None:
        # After a record that is set aside nothing fits: the pages behind it would only look like a gap.
        if page.more and page.kvs and not self._state.quarantined_records:
            op = Range(
                page.kvs[-1].key + b"\0",
                self._keys.explicit_end,
                limit=limits.journal_list_page_keys,
                revision=self._revision,
            )
            self._desk.ask(self, op, self._explicit_page)
            return
        self._ask_bulk(self._keys.unlogged)

    def _explicit_page(self, now_ms: int, event: StoreAnswered) -> Pieces[None]:
        if not isinstance(event.result, RangeResult):
            self._fail(now_ms, event)
        elif (yield from self._feed_explicit(now_ms, list(event.result.kvs))):
            self._page_explicit(event.result)

    def _feed_explicit(self, now_ms: int, kvs: list[KeyValue]) -> Pieces[bool]:
        for kv in kvs:
            if not (n := slot_number(kv.key)):
                continue  # somebody's hand: it is no slot
            took = yield from self._state.take_explicit(now_ms, n, kv.value, leads=0)
            if took in (Took.GAP, Took.FORK):
                self.close()
                self._failed(self._desk.now_ms, took.value)
                return False
            if took is Took.SET_ASIDE:
                break  # nothing after it fits; the caller sees `state.quarantined_records`
        return True

    def _ask_bulk(self, start: bytes) -> None:
        op = Range(start, prefix_end(self._keys.unlogged), limit=limits.journal_list_page_keys, revision=self._revision)
        self._desk.ask(self, op, self._bulk_page)

    def _bulk_page(self, now_ms: int, event: StoreAnswered) -> Pieces[None]:
        if not isinstance(event.result, RangeResult):
            self._fail(now_ms, event)
            return
        for kv in event.result.kvs:
            yield from self._state.take_unlogged(now_ms, kv.value, leads=0)
        if event.result.more and event.result.kvs:
            self._ask_bulk(event.result.kvs[-1].key + b"\0")
        else:
            self._finish(self._desk.now_ms)

    def _finish(self, now_ms: int) -> None:
        self.close()
        self._done(now_ms, self._revision)

    def _fail(self, now_ms: int, event: StoreAnswered) -> None:
        self.close()
        reason = event.failure.value if event.failure else "no answer"
        if event.failure is Failure.REFUSED and event.error is not None:
            reason = str(event.error)
        self._failed(now_ms, reason)
