"""Publishes this node's status in `nodes/{name}`, attached to a lease of its own."""

from __future__ import annotations

from leasehold.ha.context import FAR_MS, Context
from leasehold.ha.effect_queue import Activity
from leasehold.ha.effects import KeepLease
from leasehold.ha.events import Failure, StoreAnswered
from leasehold.ha.keys import pack
from leasehold.ha.node_values import NodeValue
from leasehold.mvcc.model import LeaseGrantResult, Put

RETRY_MS = 500
APPLIED_MS = 2_000  # interval for publishing a new applied position; everything else is published immediately


class Registration(Activity):
    """Keeps the value in the store equal to the wanted one; a new applied position alone may wait."""

    __slots__ = (
        "_applied_at_ms", "_busy", "_ctx", "_lease", "_published", "_published_ms", "_requested_ms", "_retry_at_ms",
        "_signed_with", "_wanted",
    )  # fmt: skip

    def __init__(self, ctx: Context) -> None:
        super().__init__()
        self._ctx = ctx
        self._lease = 0
        self._busy = False
        self._requested_ms = 0
        self._wanted: NodeValue | None = None
        self._published: NodeValue | None = None
        self._published_ms = -FAR_MS
        self._signed_with = b""  # the secret of the published value
        self._retry_at_ms = FAR_MS  # after a failure: publish nothing before this
        self._applied_at_ms = FAR_MS  # when to publish a new applied position; other changes do not wait for it

    @property
    def wake_at_ms(self) -> int:
        return min(self._retry_at_ms, self._applied_at_ms)

    @property
    def published(self) -> NodeValue | None:
        """The value that the store is known to hold."""
        return self._published

    def want(self, now_ms: int, value: NodeValue) -> None:
        """Publish this value from now on."""
        self._wanted = value
        self._go(now_ms)

    def write_again(self, now_ms: int) -> None:
        """Another client has overwritten the value."""
        if not self._busy and self._retry_at_ms == FAR_MS:
            self._published = None
            self._retry_at_ms = now_ms + RETRY_MS

    def tick(self, now_ms: int) -> None:
        if now_ms >= self.wake_at_ms:
            self._retry_at_ms = self._applied_at_ms = FAR_MS
            self._go(now_ms)

    def lease_lost(self, now_ms: int, lease: int) -> None:
        if lease == self._lease:
            self._lease, self._published = 0, None
            self._go(now_ms)

    def _go(self, now_ms: int) -> None:
        if self._busy or self._retry_at_ms != FAR_MS:
            return
        if not self._lease:
            self._busy = True
            self._requested_ms = now_ms
            self._ctx.effects.grant(self, -(-self._ctx.settings.node_ttl_ms // 1000), self._granted)
            return
        wanted, published = self._wanted, self._published
        current = self._ctx.signer.current
        secret_changed = current != self._signed_with
        if wanted is None or (wanted == published and not secret_changed):
            return
        if (
            published is not None
            and not secret_changed
            and now_ms < self._published_ms + APPLIED_MS
            and _same_but_applied(wanted, published)
        ):
            self._applied_at_ms = self._published_ms + APPLIED_MS
            return
        self._applied_at_ms = FAR_MS
        self._busy = True
        key = self._ctx.keys.node(self._ctx.identity.name)
        sent, self._signed_with = wanted, current
        value = self._ctx.signer.signed(sent, key, self._lease)
        self._ctx.effects.ask(
            self, Put(key, pack(value), lease=self._lease), lambda at_ms, event: self._put(at_ms, event, sent)
        )

    def _granted(self, now_ms: int, event: StoreAnswered) -> None:
        self._busy = False
        if isinstance(event.result, LeaseGrantResult):
            self._lease = event.result.id
            self._ctx.effects.do(KeepLease(self._lease, event.result.ttl_s, self._requested_ms))
            self._go(now_ms)
        else:
            self._retry_at_ms = now_ms + RETRY_MS

    def _put(self, now_ms: int, event: StoreAnswered, sent: NodeValue) -> None:
        self._busy = False
        if event.failure is None:
            self._published, self._published_ms = sent, now_ms
            self._go(now_ms)
            return
        if event.failure is Failure.REFUSED:
            self._lease = 0  # most likely the lease expired; a new one does no harm
        self._published = None  # unknown: the next put writes it again
        self._retry_at_ms = now_ms + RETRY_MS


def _same_but_applied(one: NodeValue, other: NodeValue) -> bool:
    return (one.role, one.ready, one.snapshots, one.pin_n, one.quarantined_records, one.applied_epoch) == (
        other.role, other.ready, other.snapshots, other.pin_n, other.quarantined_records, other.applied_epoch,
    )  # fmt: skip
