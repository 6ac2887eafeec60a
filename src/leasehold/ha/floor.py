"""How the journal is kept short: the floor, and what is below it. The primary's work, under its fence. Pure."""

from __future__ import annotations

from leasehold.base import limits
from leasehold.ha.context import FAR_MS, Context
from leasehold.ha.desk import Activity
from leasehold.ha.events import StoreAnswered
from leasehold.ha.keys import pack
from leasehold.ha.registry import FloorValue, NodeValue
from leasehold.journal.fenced import fence, slot_key, slot_number
from leasehold.mvcc.model import DeleteRange, Put, Range, RangeResult, Txn, TxnResult

CHECK_MS = 1_000


def lowest_needed(nodes: dict[str, NodeValue], copies: int, pins: dict[str, int]) -> int:
    """Up to which record the journal may go: what `copies` nodes' confirmed snapshots replace, held down by pins."""
    lows = sorted((max((s.low_n for s in node.snapshots), default=0) for node in nodes.values()), reverse=True)
    floor_n = lows[copies - 1] if len(lows) >= copies else 0
    return min([floor_n, *pins.values()])


class Floor(Activity):
    """Written before anything is deleted; deleted in small steps, so that commits are not held up."""

    __slots__ = ("_busy", "_ctx", "_epoch", "_floor_n", "_pinned_since", "_trimmed_n", "wake_at_ms")

    def __init__(self, ctx: Context, epoch: int, now_ms: int) -> None:
        super().__init__()
        self._ctx = ctx
        self._epoch = epoch
        self._floor_n = ctx.view.floor_n
        self._trimmed_n = 0
        self._busy = False
        self._pinned_since: dict[tuple[str, str, int], int] = {}
        self.wake_at_ms = now_ms + CHECK_MS

    def tick(self, now_ms: int) -> None:
        if now_ms < self.wake_at_ms:
            return
        self.wake_at_ms = now_ms + CHECK_MS
        if self._busy:
            return
        wanted_n = lowest_needed(self._ctx.view.nodes, self._ctx.settings.copies, self._pins(now_ms))
        if wanted_n > self._floor_n:
            self._write(wanted_n)
        elif self._trimmed_n < self._floor_n:
            self._list()

    def _pins(self, now_ms: int) -> dict[str, int]:
        """Nodes that stream a snapshot hold the floor, but not for ever."""
        pins: dict[str, int] = {}
        seen: dict[tuple[str, str, int], int] = {}
        for name, node in self._ctx.view.nodes.items():
            if node.pin_n < 0:
                continue
            at = (name, node.run, node.pin_n)
            seen[at] = self._pinned_since.get(at, now_ms)
            if now_ms - seen[at] < self._ctx.settings.pin_ms:
                pins[name] = node.pin_n
        self._pinned_since = seen
        return pins

    def _write(self, floor_n: int) -> None:
        keys = self._ctx.keys
        value = pack(FloorValue(floor_n, self._epoch))
        txn = Txn(compare=(fence(keys.leader, self._epoch),), success=(Put(keys.floor, value),))
        self._busy = True
        self._ctx.desk.ask(self, txn, lambda now_ms, event: self._written(now_ms, event, floor_n))

    def _written(self, now_ms: int, event: StoreAnswered, floor_n: int) -> None:
        self._busy = False
        if isinstance(event.result, TxnResult) and event.result.succeeded:
            self._floor_n = floor_n
            self._ctx.view.floor_n = max(self._ctx.view.floor_n, floor_n)
            self._list()

    def _list(self) -> None:
        """Which batches are wholly below: those whose successor begins at or below the record after the floor."""
        keys = self._ctx.keys
        end = slot_key(keys.explicit, self._floor_n + 2)
        self._busy = True
        self._ctx.desk.ask(
            self, Range(keys.explicit, end, limit=limits.journal_trim_step_keys + 1, keys_only=True), self._listed
        )

    def _listed(self, now_ms: int, event: StoreAnswered) -> None:
        self._busy = False
        if not isinstance(event.result, RangeResult):
            return
        if len(event.result.kvs) < 2:
            self._trimmed_n = self._floor_n
            return
        stays = event.result.kvs[-1].key
        keys = self._ctx.keys
        txn = Txn(compare=(fence(keys.leader, self._epoch),), success=(DeleteRange(keys.explicit, stays),))
        more = event.result.more
        self._busy = True
        self._ctx.desk.ask(self, txn, lambda at_ms, answer: self._deleted(at_ms, answer, slot_number(stays), more))

    def _deleted(self, now_ms: int, event: StoreAnswered, stays_n: int, more: bool) -> None:
        self._busy = False
        if isinstance(event.result, TxnResult) and event.result.succeeded:
            if more:
                self._list()
            else:
                self._trimmed_n = self._floor_n

    def close(self) -> None:
        super().close()
        self.wake_at_ms = FAR_MS
