"""What this node says about itself in `nodes/{name}`, on a lease of its own."""

from __future__ import annotations

from leasehold.ha.context import FAR_MS, Context
from leasehold.ha.effect_queue import Activity
from leasehold.ha.effects import KeepLease
from leasehold.ha.events import Failure, StoreAnswered
from leasehold.ha.keys import pack
from leasehold.ha.node_values import NodeValue
from leasehold.mvcc.model import LeaseGrantResult, Put

RETRY_MS = 500
MARK_MS = 2_000  # a mark that moves is told this often; everything else at once


class Registration(Activity):
    """Keeps the store's value equal to the wanted one; news about the mark alone may wait."""

    __slots__ = ("_asked_ms", "_busy", "_ctx", "_lease", "_mark_at_ms", "_retry_at_ms", "_said", "_said_ms", "_wanted")

    def __init__(self, ctx: Context) -> None:
        super().__init__()
        self._ctx = ctx
        self._lease = 0
        self._busy = False
        self._asked_ms = 0
        self._wanted: NodeValue | None = None
        self._said: NodeValue | None = None
        self._said_ms = -FAR_MS
        self._retry_at_ms = FAR_MS  # after a failure: nothing is said before
        self._mark_at_ms = FAR_MS  # a mark that has moved is told then; anything else does not wait for it

    @property
    def wake_at_ms(self) -> int:
        return min(self._retry_at_ms, self._mark_at_ms)

    @property
    def told(self) -> NodeValue | None:
        """What the store is known to hold."""
        return self._said

    def want(self, now_ms: int, value: NodeValue) -> None:
        """Say this from now on."""
        self._wanted = value
        self._go(now_ms)

    def tick(self, now_ms: int) -> None:
        if now_ms >= self.wake_at_ms:
            self._retry_at_ms = self._mark_at_ms = FAR_MS
            self._go(now_ms)

    def lease_lost(self, now_ms: int, lease: int) -> None:
        if lease == self._lease:
            self._lease, self._said = 0, None
            self._go(now_ms)

    def _go(self, now_ms: int) -> None:
        if self._busy or self._retry_at_ms != FAR_MS:
            return
        if not self._lease:
            self._busy = True
            self._asked_ms = now_ms
            self._ctx.desk.grant(self, -(-self._ctx.settings.node_ttl_ms // 1000), self._granted)
            return
        wanted, said = self._wanted, self._said
        if wanted is None or wanted == said:
            return
        if said is not None and now_ms < self._said_ms + MARK_MS and _same_but_mark(wanted, said):
            self._mark_at_ms = self._said_ms + MARK_MS
            return
        self._mark_at_ms = FAR_MS
        self._busy = True
        key = self._ctx.keys.node(self._ctx.identity.name)
        sent = wanted
        self._ctx.desk.ask(
            self, Put(key, pack(sent), lease=self._lease), lambda at_ms, event: self._put(at_ms, event, sent)
        )

    def _granted(self, now_ms: int, event: StoreAnswered) -> None:
        self._busy = False
        if isinstance(event.result, LeaseGrantResult):
            self._lease = event.result.id
            self._ctx.desk.do(KeepLease(self._lease, event.result.ttl_s, self._asked_ms))
            self._go(now_ms)
        else:
            self._retry_at_ms = now_ms + RETRY_MS

    def _put(self, now_ms: int, event: StoreAnswered, sent: NodeValue) -> None:
        self._busy = False
        if event.failure is None:
            self._said, self._said_ms = sent, now_ms
            self._go(now_ms)
            return
        if event.failure is Failure.REFUSED:
            self._lease = 0  # most likely the lease has ended; a new one harms nobody
        self._said = None  # unknown: the next put says it again
        self._retry_at_ms = now_ms + RETRY_MS


def _same_but_mark(one: NodeValue, other: NodeValue) -> bool:
    return (one.role, one.ready, one.snapshots, one.pin_n, one.quarantined_records, one.applied_epoch) == (
        other.role, other.ready, other.snapshots, other.pin_n, other.quarantined_records, other.applied_epoch,
    )  # fmt: skip
