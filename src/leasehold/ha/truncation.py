"""How the primary keeps the journal short: it moves the truncation point and deletes the batches below it."""

from __future__ import annotations

from collections.abc import Callable

from leasehold.base import limits
from leasehold.base.units import format_bytes
from leasehold.ha.context import FAR_MS, Context
from leasehold.ha.effect_queue import Activity
from leasehold.ha.events import StoreAnswered
from leasehold.ha.keys import pack
from leasehold.ha.node_values import NodeValue, TruncationPoint
from leasehold.journal.fenced_writer import fence, slot_key, slot_number
from leasehold.mvcc.model import DeleteRange, Put, Range, RangeResult, Txn, TxnResult

CHECK_MS = 1_000


def highest_truncatable(nodes: dict[str, NodeValue], copies: int, pins: dict[str, int]) -> int:
    """The highest record that may be truncated: covered by `copies` nodes' snapshots, and not above any pin."""
    lows = sorted((max((s.low_n for s in node.snapshots), default=0) for node in nodes.values()), reverse=True)
    truncated_n = lows[copies - 1] if len(lows) >= copies else 0
    return min([truncated_n, *pins.values()])


class Truncation(Activity):
    """Writes the truncation point before it deletes anything, and deletes in small steps so that commits do not wait.

    The journal's bound (P6): with too few nodes alive there are too few snapshots to truncate it. When it is full,
    there are two policies. Either the leader's own snapshot is enough: then `copies` is 1, also in the stored value,
    a warning is logged, and the mode ends when enough nodes have caught up. Or puts are refused. At twice the bound
    puts are refused in any case. Refused are all commands that could be repeated without limit: also copies, tasks,
    and removals of absent keys.
    """

    __slots__ = (
        "_busy", "_ctx", "_deleted_n", "_epoch", "_older", "_pinned_since", "_truncated_n", "_warn", "_written_copies",
        "copies", "wake_at_ms",
    )  # fmt: skip

    def __init__(self, ctx: Context, epoch: int, now_ms: int, warn: Callable[[str], None]) -> None:
        """`warn(sentence)` is called when the mode changes: for the log and the history."""
        super().__init__()
        self._ctx = ctx
        self._warn = warn
        known = ctx.state.journal_length.first_n <= ctx.view.truncated_n + 1
        self._older: list[tuple[int, int]] | None = None if known else []  # None: all batches are known
        self._written_copies = ctx.view.truncation_copies
        alone = ctx.settings.copies > 1 and ctx.view.truncation_copies == 1
        self.copies = 1 if alone else ctx.settings.copies  # nodes whose snapshots must cover the truncation point
        ctx.state.index.log.set_journal_full(False)
        if known:
            self._refuse_if_full()  # now: otherwise each of many leaders in a row could add a second's worth of records
        self._epoch = epoch
        self._truncated_n = ctx.view.truncated_n
        self._deleted_n = 0
        self._busy = False
        self._pinned_since: dict[tuple[str, str, int], int] = {}
        # Batches from before this node's snapshot are counted immediately. Otherwise each of many short-lived leaders
        # would add the records that it decides before its first check (P6).
        self.wake_at_ms = now_ms + CHECK_MS if known else now_ms

    def tick(self, now_ms: int) -> None:
        if now_ms < self.wake_at_ms:
            return
        self.wake_at_ms = now_ms + CHECK_MS
        if self._busy:
            return
        if self._older is not None:
            self._list_older()
            return
        wanted_n = self._wanted_n(self._pins(now_ms))
        self._refuse_if_full()
        if wanted_n > self._truncated_n or (self.copies != self._written_copies and self._truncated_n > 0):
            self._write(max(wanted_n, self._truncated_n))
        elif self._deleted_n < self._truncated_n:
            self._list()

    # --- the bound ---

    def _list_older(self) -> None:
        """List, a page at a time, the batches from before this node's snapshot, to learn the journal's length."""
        keys, length, found = self._ctx.keys, self._ctx.state.journal_length, self._older or []
        start = slot_key(keys.explicit, found[-1][0] + 1) if found else keys.explicit
        op = Range(start, slot_key(keys.explicit, length.first_n), limit=limits.journal_list_page_keys)
        self._busy = True
        self._ctx.effects.ask(self, op, self._counted)

    def _counted(self, now_ms: int, event: StoreAnswered) -> None:
        self._busy = False
        if not isinstance(event.result, RangeResult) or self._older is None:
            return
        self._older += [(n, len(kv.value)) for kv in event.result.kvs if (n := slot_number(kv.key))]
        if event.result.more:
            self._list_older()
        else:
            self._ctx.state.journal_length.add_older(self._older)
            self._older = None
            self._refuse_if_full()

    def _wanted_n(self, pins: dict[str, int]) -> int:
        """The highest possible truncation point; also decides how many nodes' snapshots it requires."""
        ctx = self._ctx
        settings, view, length = ctx.settings, ctx.view, ctx.state.journal_length
        covered_n = highest_truncatable(view.nodes, settings.copies, pins)
        if settings.copies == 1:
            return covered_n
        # Only this node's own snapshot counts here: another node's disk may have been lost since it was confirmed.
        me = view.nodes.get(ctx.identity.name)
        own = {me.name: me} if me is not None and me.run == ctx.identity.run else {}
        alone_n = highest_truncatable(own, 1, pins)
        if self.copies == 1 and covered_n >= self._truncated_n:
            self.copies = settings.copies
            self._warn(
                f"{settings.copies} nodes have snapshots up to record {covered_n}: "
                f"truncation requires {settings.copies} copies again."
            )
        elif self.copies > 1 and self._full() and settings.journal_full == "one_copy" and alone_n > self._truncated_n:
            self.copies = 1
            self._warn(
                f"The journal is full ({length.batches} batches, {format_bytes(length.bytes)}) and fewer than "
                f"{settings.copies} nodes have snapshots of it: durable_copies 1, records truncated now are only on "
                "this node's disk. Start another node."
            )
        return alone_n if self.copies == 1 else covered_n

    def _full(self, times: int = 1) -> bool:
        settings, length = self._ctx.settings, self._ctx.state.journal_length
        return length.exceeds(times * settings.journal_batches_max, times * settings.journal_bytes_max)

    def _refuse_if_full(self) -> None:
        index = self._ctx.state.index
        full = self._full() if self._ctx.settings.journal_full == "refuse" else self._full(2)
        if full is not index.log.journal_full:
            index.log.set_journal_full(full)
            self._warn(
                "The journal is full and too few nodes have snapshots of it: puts are refused. Start another node."
                if full
                else "The journal has space again: puts are accepted."
            )

    def _pins(self, now_ms: int) -> dict[str, int]:
        """Nodes that stream a snapshot pin the truncation point, for a limited time."""
        pins: dict[str, int] = {}
        seen: dict[tuple[str, str, int], int] = {}
        for name, node in self._ctx.view.nodes.items():
            if node.pin_n < 0:
                continue
            at = (name, node.run, node.pin_n)
            seen[at] = self._pinned_since.get(at, now_ms)
            if now_ms - seen[at] < self._ctx.settings.snapshot_pin_ms:
                pins[name] = node.pin_n
        self._pinned_since = seen
        return pins

    def _write(self, truncated_n: int) -> None:
        keys = self._ctx.keys
        copies = self.copies
        value = pack(TruncationPoint(truncated_n, self._epoch, copies))
        txn = Txn(compare=(fence(keys.leader, self._epoch),), success=(Put(keys.truncation, value),))
        self._busy = True
        self._ctx.effects.ask(self, txn, lambda now_ms, event: self._written(now_ms, event, truncated_n, copies))

    def _written(self, now_ms: int, event: StoreAnswered, truncated_n: int, copies: int) -> None:
        self._busy = False
        if isinstance(event.result, TxnResult) and event.result.succeeded:
            self._truncated_n, self._written_copies = truncated_n, copies
            self._ctx.view.truncated_to(truncated_n)
            self._list()

    def _list(self) -> None:
        """Find the batches wholly below: their successors begin at or below the record after the truncation point."""
        keys = self._ctx.keys
        end = slot_key(keys.explicit, self._truncated_n + 2)
        self._busy = True
        self._ctx.effects.ask(
            self, Range(keys.explicit, end, limit=limits.journal_trim_step_keys + 1, keys_only=True), self._listed
        )

    def _listed(self, now_ms: int, event: StoreAnswered) -> None:
        self._busy = False
        if not isinstance(event.result, RangeResult):
            return
        if len(event.result.kvs) < 2:
            self._deleted_n = self._truncated_n
            return
        stays = event.result.kvs[-1].key
        keys = self._ctx.keys
        txn = Txn(compare=(fence(keys.leader, self._epoch),), success=(DeleteRange(keys.explicit, stays),))
        more = event.result.more
        self._busy = True
        self._ctx.effects.ask(self, txn, lambda at_ms, answer: self._deleted(at_ms, answer, slot_number(stays), more))

    def _deleted(self, now_ms: int, event: StoreAnswered, stays_n: int, more: bool) -> None:
        self._busy = False
        if isinstance(event.result, TxnResult) and event.result.succeeded:
            self._ctx.state.journal_length.remove_before(stays_n)
            if more:
                self._list()
            else:
                self._deleted_n = self._truncated_n

    def close(self) -> None:
        super().close()
        self.wake_at_ms = FAR_MS
