"""How the journal is kept short: the floor, and what is below it. The primary's work, under its fence. Pure."""

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


def lowest_needed(nodes: dict[str, NodeValue], copies: int, pins: dict[str, int]) -> int:
    """Up to which record the journal may go: what `copies` nodes' confirmed snapshots replace, held down by pins."""
    lows = sorted((max((s.low_n for s in node.snapshots), default=0) for node in nodes.values()), reverse=True)
    truncated_n = lows[copies - 1] if len(lows) >= copies else 0
    return min([truncated_n, *pins.values()])


class Truncation(Activity):
    """Written before anything is deleted; deleted in small steps, so that commits are not held up.

    The journal's bound (P6): with too few nodes alive nothing replaces what is in it. When it is full, either the
    leader's own snapshot alone makes room, which is said (`copies` is 1 then, in the floor's value too) and ends when
    enough nodes have caught up; or puts are refused. At twice the bound puts are refused in any case.
    Refused is all that could be repeated without end: also copies, tasks, and removals of what is not there.
    """

    __slots__ = (
        "_busy", "_ctx", "_epoch", "_floor_n", "_pinned_since", "_said", "_surveyed", "_trimmed_n", "_written_copies",
        "copies", "wake_at_ms",
    )  # fmt: skip

    def __init__(self, ctx: Context, epoch: int, now_ms: int, said: Callable[[str], None]) -> None:
        """`said(sentence)` when the mode changes: for the log and the history."""
        super().__init__()
        self._ctx = ctx
        self._said = said
        known = ctx.state.ledger.first_n <= ctx.view.truncated_n + 1
        self._surveyed: list[tuple[int, int]] | None = None if known else []  # None: all batches are known
        self._written_copies = ctx.view.truncation_copies
        alone = ctx.settings.copies > 1 and ctx.view.truncation_copies == 1
        self.copies = 1 if alone else ctx.settings.copies  # on how many nodes' snapshots the floor may rest now
        ctx.state.index.log.set_journal_full(False)
        if known:
            self._refuse_if_full()  # at once: each of many leaders in a row could else add what a second brings
        self._epoch = epoch
        self._floor_n = ctx.view.truncated_n
        self._trimmed_n = 0
        self._busy = False
        self._pinned_since: dict[tuple[str, str, int], int] = {}
        # What stands before this node's base is counted at once: of leaders that come and go, each from a snapshot,
        # each would else add what is decided until its first look (P6).
        self.wake_at_ms = now_ms + CHECK_MS if known else now_ms

    def tick(self, now_ms: int) -> None:
        if now_ms < self.wake_at_ms:
            return
        self.wake_at_ms = now_ms + CHECK_MS
        if self._busy:
            return
        if self._surveyed is not None:
            self._survey()
            return
        wanted_n = self._wanted_n(self._pins(now_ms))
        self._refuse_if_full()
        if wanted_n > self._floor_n or (self.copies != self._written_copies and self._floor_n > 0):
            self._write(max(wanted_n, self._floor_n))
        elif self._trimmed_n < self._floor_n:
            self._list()

    # --- the bound ---

    def _survey(self) -> None:
        """Read, a page at a time, the batches from before this node's base: how long is the journal?"""
        keys, found = self._ctx.keys, self._surveyed or []
        start = slot_key(keys.explicit, found[-1][0] + 1) if found else keys.explicit
        op = Range(start, slot_key(keys.explicit, self._ctx.state.ledger.first_n), limit=limits.journal_list_page_keys)
        self._busy = True
        self._ctx.desk.ask(self, op, self._counted)

    def _counted(self, now_ms: int, event: StoreAnswered) -> None:
        self._busy = False
        if not isinstance(event.result, RangeResult) or self._surveyed is None:
            return
        self._surveyed += [(n, len(kv.value)) for kv in event.result.kvs if (n := slot_number(kv.key))]
        if event.result.more:
            self._survey()
        else:
            self._ctx.state.ledger.survey(self._surveyed)
            self._surveyed = None
            self._refuse_if_full()

    def _wanted_n(self, pins: dict[str, int]) -> int:
        """How high the floor may be; decides on how many nodes' word."""
        ctx = self._ctx
        settings, view, ledger = ctx.settings, ctx.view, ctx.state.ledger
        covered_n = lowest_needed(view.nodes, settings.copies, pins)
        if settings.copies == 1:
            return covered_n
        # Only this node's own word counts here: of another one's disk nobody knows whether it is still there.
        me = view.nodes.get(ctx.identity.name)
        own = {me.name: me} if me is not None and me.run == ctx.identity.run else {}
        alone_n = lowest_needed(own, 1, pins)
        if self.copies == 1 and covered_n >= self._floor_n:
            self.copies = settings.copies
            self._said(f"{settings.copies} nodes' snapshots cover record {covered_n}: the journal rests on them again.")
        elif self.copies > 1 and self._full() and settings.journal_full == "one_copy" and alone_n > self._floor_n:
            self.copies = 1
            self._said(
                f"The journal is full ({ledger.batches} batches, {format_bytes(ledger.bytes)}) and fewer than "
                f"{settings.copies} nodes have snapshots of it: durable_copies 1, what leaves it now is on this node's "
                "disk only. Bring another node back."
            )
        return alone_n if self.copies == 1 else covered_n

    def _full(self, times: int = 1) -> bool:
        settings = self._ctx.settings
        return self._ctx.state.ledger.exceeds(times * settings.journal_batches_max, times * settings.journal_bytes_max)

    def _refuse_if_full(self) -> None:
        index = self._ctx.state.index
        full = self._full() if self._ctx.settings.journal_full == "refuse" else self._full(2)
        if full is not index.log.journal_full:
            index.log.set_journal_full(full)
            self._said(
                "The journal is full, and too few nodes have snapshots of it: puts are refused. "
                "Bring another node back."
                if full
                else "The journal has room again: puts are taken."
            )

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

    def _write(self, truncated_n: int) -> None:
        keys = self._ctx.keys
        copies = self.copies
        value = pack(TruncationPoint(truncated_n, self._epoch, copies))
        txn = Txn(compare=(fence(keys.leader, self._epoch),), success=(Put(keys.floor, value),))
        self._busy = True
        self._ctx.desk.ask(self, txn, lambda now_ms, event: self._written(now_ms, event, truncated_n, copies))

    def _written(self, now_ms: int, event: StoreAnswered, truncated_n: int, copies: int) -> None:
        self._busy = False
        if isinstance(event.result, TxnResult) and event.result.succeeded:
            self._floor_n, self._written_copies = truncated_n, copies
            self._ctx.view.truncated_n = max(self._ctx.view.truncated_n, truncated_n)
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
            self._ctx.state.ledger.gone(stays_n)
            if more:
                self._list()
            else:
                self._trimmed_n = self._floor_n

    def close(self) -> None:
        super().close()
        self.wake_at_ms = FAR_MS
