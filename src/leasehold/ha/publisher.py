"""Publishes a new leader's address for Mooncake's clients, and writes the history."""

from __future__ import annotations

from leasehold.ha.context import FAR_MS, Context
from leasehold.ha.effect_queue import Activity
from leasehold.ha.effects import Role
from leasehold.ha.events import StoreAnswered
from leasehold.ha.keys import pack
from leasehold.ha.node_values import HistoryEntry
from leasehold.journal.fenced_writer import fence
from leasehold.mvcc.model import DeleteRange, Put, Range, RangeResult, SortOrder, Txn, prefix_end

RETRY_MS = 200


def view_key(cluster: str) -> bytes:
    """The key where Mooncake's clients look up their master."""
    return b"mooncake-store/%s/master_view" % cluster.encode()


class Publisher(Activity):
    """Executes one write at a time, each under the fence, each repeated until it is answered.

    The master view is deleted, then created: clients notice only a new create revision, which is the view version. It
    is attached to the leader's lease, so it expires with the leadership.
    """

    __slots__ = ("_ctx", "_entries", "_epoch", "_jobs", "_lease", "wake_at_ms")

    def __init__(self, ctx: Context, epoch: int, lease: int) -> None:
        super().__init__()
        self._ctx, self._epoch, self._lease = ctx, epoch, lease
        self._jobs: list[Txn] = []
        self._entries = 0
        self.wake_at_ms = FAR_MS

    def publish(self) -> None:
        """Publish the master's address to Mooncake's clients under every served cluster name."""
        for cluster, address in self._ctx.identity.views:
            key = view_key(cluster)
            self._add(DeleteRange(key))
            self._add(Put(key, address.encode(), lease=self._lease))

    def add_history(self, role: Role, sentence: str, counts: dict[str, int]) -> None:
        """Add one history entry."""
        ctx = self._ctx
        self._entries += 1
        entry = HistoryEntry(ctx.identity.name, self._epoch, role.value, sentence, ctx.wall_us, counts)
        key = ctx.keys.history + b"%020d-%06d" % (self._epoch, self._entries)
        self._add(Put(key, pack(entry)))

    def trim_history(self) -> None:
        """Delete all but the newest entries and end markers."""
        prefix = self._ctx.keys.history
        keep = self._ctx.settings.history_max
        op = Range(prefix, prefix_end(prefix), limit=keep + 1, sort_order=SortOrder.DESCEND, keys_only=True)
        self._ctx.effects.ask(self, op, self._history)

    def _history(self, now_ms: int, event: StoreAnswered) -> None:
        result = event.result
        if isinstance(result, RangeResult) and len(result.kvs) > self._ctx.settings.history_max:
            self._add(DeleteRange(self._ctx.keys.history, result.kvs[-1].key + b"\0"))
        keys, keep, epochs = self._ctx.keys, self._ctx.settings.history_max, sorted(self._ctx.view.end_markers)
        if len(epochs) > keep:
            self._add(DeleteRange(keys.end_markers, keys.end_marker(epochs[-keep])))

    def _add(self, op: Put | DeleteRange) -> None:
        self._jobs.append(Txn(compare=(fence(self._ctx.keys.leader, self._epoch),), success=(op,)))
        if len(self._jobs) == 1:
            self._next()

    def _next(self) -> None:
        if self._jobs:
            self._ctx.effects.ask(self, self._jobs[0], self._answered)

    def _answered(self, now_ms: int, event: StoreAnswered) -> None:
        if event.failure is None:
            self._jobs.pop(0)
            self._next()
        else:
            self.wake_at_ms = now_ms + RETRY_MS

    def tick(self, now_ms: int) -> None:
        if now_ms >= self.wake_at_ms:
            self.wake_at_ms = FAR_MS
            self._next()
