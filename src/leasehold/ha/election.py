"""When this node may campaign, and the campaign for the leader key."""

from __future__ import annotations

from collections.abc import Callable

from leasehold.ha.context import FAR_MS, Context
from leasehold.ha.effect_queue import Activity
from leasehold.ha.effects import DropLease, KeepLease
from leasehold.ha.events import Failure, StoreAnswered
from leasehold.ha.keys import pack
from leasehold.mvcc.model import (
    Compare,
    CompareResult,
    CompareTarget,
    KeyValue,
    LeaseGrantResult,
    Put,
    Range,
    RangeResult,
    Txn,
    TxnResult,
)

RETRY_MS = 100
PREFERENCE_MS = 1_000  # head start of a named successor over other nodes, and of other nodes over a resigned leader


class Turn:
    """When this node may campaign: a named successor first, a leader that has just resigned last."""

    __slots__ = ("_ctx", "_patience_until_ms")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._patience_until_ms = -FAR_MS

    def again(self, now_ms: int) -> None:
        """A campaign was lost: try again a little later."""
        self._patience_until_ms = now_ms + RETRY_MS

    def after_all_others(self, now_ms: int) -> None:
        """This node resigned or failed to be promoted: other nodes campaign first."""
        self._patience_until_ms = now_ms + PREFERENCE_MS

    @property
    def comes_at_ms(self) -> int:
        view, me = self._ctx.view, self._ctx.identity.name
        at_ms = self._patience_until_ms
        marker = view.end_markers.get(max(view.end_markers)) if view.end_markers else None
        if marker is not None and marker.successor == me:
            return min(at_ms, view.no_leader_since_ms)
        if marker is not None and marker.successor:
            chosen = view.nodes.get(marker.successor)
            if chosen is not None and chosen.ready:
                at_ms = max(at_ms, view.no_leader_since_ms + PREFERENCE_MS)
        return at_ms


class Campaign(Activity):
    """Gets a new lease (ids are never reused), then creates the leader key in one transaction if it does not exist.

    After an unknown outcome it repeats the same transaction: a key that is attached to this lease was created by it.
    Calls `won(now_ms, epoch, lease)` or `lost(now_ms, sentence)`.
    """

    __slots__ = ("_ctx", "_lease", "_lost", "_requested_ms", "_won", "wake_at_ms")

    def __init__(self, ctx: Context, won: Callable[[int, int, int], None], lost: Callable[[int, str], None]) -> None:
        super().__init__()
        self._ctx, self._won, self._lost = ctx, won, lost
        self._lease = 0
        self._requested_ms = 0
        self.wake_at_ms = FAR_MS

    def start(self, now_ms: int) -> None:
        self._requested_ms = now_ms
        ttl_s = -(-self._ctx.settings.leader_ttl_ms // 1000)
        self._ctx.effects.grant(self, ttl_s, self._granted)

    def tick(self, now_ms: int) -> None:
        if now_ms >= self.wake_at_ms:
            self.wake_at_ms = FAR_MS
            self._try(now_ms)

    def _granted(self, now_ms: int, event: StoreAnswered) -> None:
        if not isinstance(event.result, LeaseGrantResult):
            self._end(now_ms, "The store granted no lease for the campaign.")
            return
        self._lease = event.result.id
        self._ctx.effects.do(KeepLease(self._lease, event.result.ttl_s, self._requested_ms))
        self._try(now_ms)

    def _try(self, now_ms: int) -> None:
        key = self._ctx.keys.leader
        value = pack(self._ctx.leader_value(self._lease))
        txn = Txn(
            compare=(Compare(key, CompareTarget.CREATE, CompareResult.EQUAL, 0),),
            success=(Put(key, value, lease=self._lease), Range(key)),
            failure=(Range(key),),
        )
        self._ctx.effects.ask(self, txn, self._answered)

    def _answered(self, now_ms: int, event: StoreAnswered) -> None:
        if not isinstance(event.result, TxnResult):
            if event.failure is Failure.REFUSED:
                self._end(now_ms, f"The store refused the leader key: {event.error}.")
            else:
                self.wake_at_ms = now_ms + RETRY_MS
            return
        found = event.result.results[-1]
        assert isinstance(found, RangeResult)
        leader: KeyValue | None = found.kvs[0] if found.kvs else None
        if leader is not None and leader.lease == self._lease:
            self.close()
            self._won(now_ms, leader.create_revision, self._lease)
        else:
            self._end(now_ms, "Another node was elected.")

    def lease_lost(self, now_ms: int, lease: int) -> None:
        if lease == self._lease:
            self._end(now_ms, "The lease of the campaign expired.")

    def _end(self, now_ms: int, sentence: str) -> None:
        self.close()
        if self._lease:
            # Revoke it: an attempt without an answer may have created the key, which must not remain.
            self._ctx.effects.do(DropLease(self._lease, revoke=True))
        self._lost(now_ms, sentence)
