"""Reads everything under a cluster's prefix at one revision, in pages, and feeds it to the view and the state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from leasehold.base import limits
from leasehold.ha.applied_state import AppliedState, BatchOutcome
from leasehold.ha.effect_queue import Activity, EffectQueue
from leasehold.ha.events import StoreAnswered
from leasehold.ha.keys import Keys
from leasehold.ha.steps import Steps
from leasehold.ha.view import View
from leasehold.journal.batch import UnreadableBatch, decode_explicit
from leasehold.journal.fenced_writer import slot_key, slot_number
from leasehold.mvcc.model import KeyValue, Range, RangeResult, SortOrder, Txn, TxnResult, prefix_end


class ListingFailure(Enum):
    """Why a listing failed. The value is the reason for people; no decision depends on its words."""

    TRUNCATED = "the next record was truncated"
    FORK = "it contradicts an applied record"
    GAP = "a record is missing"
    NO_ANSWER = "the store did not answer"

    @property
    def needs_rebuild(self) -> bool:
        """Whether this state cannot continue with this journal. Otherwise a retry helps."""
        return self is not ListingFailure.NO_ANSWER


class Lister(Activity):
    """One pass. Calls `done(now_ms, revision)` when everything was fed, or `failed(now_ms, failure)`.

    The first answer holds the leader, pause, truncation point, end markers and nodes at exactly the revision of the
    journal pages that follow: a truncation point read at another time would hide a truncation in between. A leader
    knows its own journal and lists only the view (`journal=False`).
    """

    __slots__ = ("_done", "_effects", "_failed", "_journal", "_keys", "_revision", "_start_n", "_state", "_view")

    def __init__(
        self,
        effects: EffectQueue,
        keys: Keys,
        view: View,
        state: AppliedState,
        *,
        journal: bool,
        done: Callable[[int, int], None],
        failed: Callable[[int, ListingFailure], None],
    ) -> None:
        super().__init__()
        self._effects, self._keys, self._view, self._state = effects, keys, view, state
        self._journal = journal
        self._done, self._failed = done, failed
        self._revision = 0
        self._start_n = 0  # the applied record when the first read was sent: the journal must reach at least to it

    def start(self) -> None:
        keys, page = self._keys, limits.journal_list_page_keys
        reads: list[Range] = [
            Range(keys.leader),
            Range(keys.pause),
            Range(keys.truncation),
            Range(keys.end_markers, prefix_end(keys.end_markers)),
            Range(keys.nodes, prefix_end(keys.nodes)),
        ]
        if self._journal:
            self._start_n = self._state.applied.n
            # The batch that holds the next record may begin before it: a snapshot can end inside a batch.
            here = slot_key(keys.explicit, self._state.applied.n + 1)
            # The range is bounded, because etcd reads and sorts all of it to return the last key.
            back = slot_key(keys.explicit, max(0, self._state.applied.n + 1 - limits.journal_batch_records_max))
            reads.append(Range(back, here, limit=1, sort_order=SortOrder.DESCEND))
            reads.append(Range(here, keys.explicit_end, limit=page))
            reads.append(Range(keys.explicit, keys.explicit_end, limit=1, keys_only=True))
        self._effects.ask(self, Txn(success=tuple(reads)), self._first)

    def _first(self, now_ms: int, event: StoreAnswered) -> Steps[None]:
        result = event.result
        if not isinstance(result, TxnResult):
            self._fail(now_ms, ListingFailure.NO_ANSWER)
            return
        parts = [part for part in result.results if isinstance(part, RangeResult)]
        self._revision = result.header.revision
        self._view.replace(now_ms, self._revision, [kv for part in parts[:5] for kv in part.kvs])
        if not self._journal:
            self._finish(now_ms)
            return
        if self._state.applied.n < self._view.truncated_n and not parts[5].kvs and self._lacks(parts[6]):
            self._fail(now_ms, ListingFailure.TRUNCATED)
            return
        if parts[7].kvs and not parts[6].kvs and self._ends_before_us(parts[5].kvs):
            self._fail(now_ms, ListingFailure.FORK)
            return
        if (yield from self._feed_explicit(now_ms, [*parts[5].kvs, *parts[6].kvs])):
            self._page_explicit(parts[6])

    def _ends_before_us(self, behind: Sequence[KeyValue]) -> bool:
        """Whether the journal ends before the applied position: the store was restored from a backup.

        New epochs of any number then write those records again, and this node would ignore them as already applied. It
        keeps its state only if there is nothing else to start from: the beginning of the journal was truncated and no
        peer has a snapshot of it, or the journal is empty and contradicts nothing.
        """
        view = self._view
        if self._start_n <= view.truncated_n:
            return False
        try:
            tail_n = decode_explicit(behind[0].value).last_n if behind else 0
        except UnreadableBatch:
            return False  # reported when the batch is applied
        if tail_n >= self._start_n:
            return False
        snapshot_ends = (s.end_n for node in view.nodes.values() if node.applied_n <= tail_n for s in node.snapshots)
        return view.truncated_n == 0 or any(end_n <= tail_n for end_n in snapshot_ends)

    def _lacks(self, ahead: RangeResult) -> bool:
        """Whether the record after the applied position is missing from the journal."""
        return not ahead.kvs or slot_number(ahead.kvs[0].key) > self._state.applied.n + 1

    def _page_explicit(self, page: RangeResult) -> None:
        # Nothing fits after a quarantined record: the next pages would only look like a gap.
        if page.more and page.kvs and not self._state.quarantined_records:
            op = Range(
                page.kvs[-1].key + b"\0",
                self._keys.explicit_end,
                limit=limits.journal_list_page_keys,
                revision=self._revision,
            )
            self._effects.ask(self, op, self._explicit_page)
            return
        self._request_unlogged(self._keys.unlogged)

    def _explicit_page(self, now_ms: int, event: StoreAnswered) -> Steps[None]:
        if not isinstance(event.result, RangeResult):
            self._fail(now_ms, ListingFailure.NO_ANSWER)
        elif (yield from self._feed_explicit(now_ms, list(event.result.kvs))):
            self._page_explicit(event.result)

    def _feed_explicit(self, now_ms: int, kvs: list[KeyValue]) -> Steps[bool]:
        for kv in kvs:
            if not (n := slot_number(kv.key)):
                continue  # not a slot key, e.g. written manually
            outcome = yield from self._state.take_explicit(now_ms, n, kv.value, leads=0)
            if outcome is BatchOutcome.GAP or outcome is BatchOutcome.FORK:
                fork = outcome is BatchOutcome.FORK
                self._fail(self._effects.now_ms, ListingFailure.FORK if fork else ListingFailure.GAP)
                return False
            if outcome is BatchOutcome.QUARANTINED:
                break  # nothing fits after it; the caller checks `state.quarantined_records`
        return True

    def _request_unlogged(self, start: bytes) -> None:
        op = Range(start, prefix_end(self._keys.unlogged), limit=limits.journal_list_page_keys, revision=self._revision)
        self._effects.ask(self, op, self._unlogged_page)

    def _unlogged_page(self, now_ms: int, event: StoreAnswered) -> Steps[None]:
        if not isinstance(event.result, RangeResult):
            self._fail(now_ms, ListingFailure.NO_ANSWER)
            return
        for kv in event.result.kvs:
            yield from self._state.take_unlogged(now_ms, kv.value, leads=0)
        if event.result.more and event.result.kvs:
            self._request_unlogged(event.result.kvs[-1].key + b"\0")
        else:
            self._finish(self._effects.now_ms)

    def _finish(self, now_ms: int) -> None:
        self.close()
        self._done(now_ms, self._revision)

    def _fail(self, now_ms: int, failure: ListingFailure) -> None:
        self.close()
        self._failed(now_ms, failure)
