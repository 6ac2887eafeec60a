"""When a node takes a snapshot of itself, and which ones it has confirmed. Pure."""

from __future__ import annotations

from leasehold.ha.context import FAR_MS, Context
from leasehold.ha.effects import WriteSnapshot
from leasehold.ha.leader_lease import NEVER_MS
from leasehold.ha.node_values import ConfirmedSnapshot
from leasehold.journal.snapshot_file import VERSION_NEWEST, SnapshotTaker

STEP_MS = 2
KEPT = 2


class Snapshots:
    """Takes one at a time, a slice a step, so that no request waits long."""

    __slots__ = (
        "_ctx",
        "_held",
        "_last_ms",
        "_last_n",
        "_last_stored_n",
        "_next_step_ms",
        "_number",
        "_seen",
        "_storing",
        "_taker",
        "confirmed",
    )

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._taker: SnapshotTaker | None = None
        self._held = b""  # the last frame, until its end is durable
        self._storing: ConfirmedSnapshot | None = None
        self._number = 0
        self._last_n = self._last_stored_n = 0
        self._seen = (0, 0)  # batches and bytes seen in the journal when the last one was begun
        self._last_ms = NEVER_MS
        self._next_step_ms = FAR_MS
        self.confirmed: tuple[ConfirmedSnapshot, ...] = ()  # on disk and read back, the newest last

    @property
    def wake_at_ms(self) -> int:
        return self._next_step_ms

    def known(self, now_ms: int, applied: ConfirmedSnapshot) -> None:
        """A file was read back at start: only now may it be confirmed (its node's word was withdrawn until then)."""
        self.confirmed = (applied,)
        self._last_n, self._last_ms = applied.end_n, now_ms

    def abandon(self) -> None:
        """The state is being rebuilt: what was begun shows something that may never have happened."""
        if self._taker is not None:
            self._taker.give_up()
        self._taker = None
        self._held = b""
        self._next_step_ms = FAR_MS

    def consider(self, now_ms: int) -> None:
        """Begin one if enough has been applied since the last."""
        if self._taker is not None or self._storing is not None:
            return
        settings, n = self._ctx.settings, self._ctx.state.applied.n
        if self._last_ms == NEVER_MS:
            self._last_ms = now_ms  # the first one is due an interval after the first look
        fresh = n - self._last_n
        aged = fresh > 0 and now_ms - self._last_ms >= settings.snapshot_ms
        if fresh >= settings.snapshot_records or aged or (fresh > 0 and self._pressed()):
            ledger = self._ctx.state.ledger
            self._seen = (ledger.batches_seen, ledger.bytes_seen)
            self._number += 1
            self._taker = SnapshotTaker(self._ctx.state.index, self._ctx.identity.cluster, self._version())
            self._next_step_ms = now_ms

    def _version(self) -> int:
        """The newest one that every live node reads: any of them may be given it."""
        return min([VERSION_NEWEST, *(node.reads_snapshots for node in self._ctx.view.nodes.values())])

    def _pressed(self) -> bool:
        """Whether a quarter of what the journal may hold was written since the last one: the floor must follow."""
        ledger, settings = self._ctx.state.ledger, self._ctx.settings
        if ledger.batches_seen < self._seen[0]:
            self._seen = (0, 0)  # rebuilt since
        batches, size = ledger.batches_seen - self._seen[0], ledger.bytes_seen - self._seen[1]
        return 4 * batches > settings.journal_batches_max or 4 * size > settings.journal_bytes_max

    def tick(self, now_ms: int, durable_n: int) -> None:
        """One step of the snapshot under way."""
        taker = self._taker
        if taker is None or now_ms < self._next_step_ms:
            return
        self._next_step_ms = now_ms + STEP_MS
        if taker.started.epoch != self._ctx.state.index.log.epoch:
            self.abandon()  # its slices tell time in two epochs' leader times: begin anew
            return
        if not taker.sliced:
            first = taker.untouched
            part = taker.slice(self._ctx.settings.snapshot_tables)
            self._ctx.desk.do(WriteSnapshot(self._number, part, first=first, last=False))
            return
        if not self._held:
            if part := taker.quarantined():
                self._ctx.desk.do(WriteSnapshot(self._number, part, first=False, last=False))
                return
            self._held = taker.keyless()
        if taker.end.n > durable_n:
            return  # valid once the number at its end is durable
        self._ctx.desk.do(WriteSnapshot(self._number, self._held, first=False, last=True))
        self._storing = ConfirmedSnapshot(taker.low_n, taker.end.epoch, taker.end.n)
        self._last_stored_n = self._last_n
        self._last_n, self._last_ms = taker.end.n, now_ms
        self.abandon()

    def stored(self, snapshot: int) -> bool:
        """The file is complete and read back: True if there is something new to confirm."""
        if self._storing is None or snapshot != self._number:
            return False
        self.confirmed = (*self.confirmed, self._storing)[-KEPT:]
        self._storing = None
        return True

    def failed(self, now_ms: int, snapshot: int) -> None:
        """The file could not be written (a full disk, say): another one is due later, or the journal grows for ever."""
        if self._storing is not None and snapshot == self._number:
            self._storing = None
            self._last_n, self._last_ms = self._last_stored_n, now_ms
