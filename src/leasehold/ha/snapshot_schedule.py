"""When a node takes a snapshot of itself, and which of its snapshots are confirmed."""

from __future__ import annotations

from leasehold.ha.context import FAR_MS, Context
from leasehold.ha.effects import WriteSnapshot
from leasehold.ha.leader_lease import NEVER_MS
from leasehold.ha.node_values import ConfirmedSnapshot
from leasehold.index.features import LEVEL_NEWEST
from leasehold.journal.snapshot_file import SnapshotTaker

STEP_MS = 2
# A snapshot that could not be written is tried again after this time, doubled with every further failure.
RETRY_MS, RETRY_MS_MAX = 1_000, 60_000
KEPT = 2


class SnapshotSchedule:
    """Takes one snapshot at a time, one slice per step, so that no request waits long."""

    __slots__ = (
        "_ctx",
        "_failures",
        "_last_frame",
        "_last_ms",
        "_last_n",
        "_last_stored_n",
        "_next_step_ms",
        "_number",
        "_retry_at_ms",
        "_seen",
        "_storing",
        "_taker",
        "confirmed",
    )

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._taker: SnapshotTaker | None = None
        self._last_frame = b""  # kept until every record in it is durable
        self._storing: ConfirmedSnapshot | None = None
        self._number = 0
        self._last_n = self._last_stored_n = 0
        self._seen = (0, 0)  # batches and bytes written to the journal before the last snapshot was started
        self._last_ms = NEVER_MS
        self._next_step_ms = FAR_MS
        self._failures = 0  # since the last one that was written
        self._retry_at_ms = NEVER_MS
        self.confirmed: tuple[ConfirmedSnapshot, ...] = ()  # on disk and read back, the newest last

    @property
    def wake_at_ms(self) -> int:
        return self._next_step_ms

    def known(self, now_ms: int, snapshot: ConfirmedSnapshot) -> None:
        """A file was read back at start. Only now is it confirmed: the disk may have been replaced meanwhile (H10)."""
        self.confirmed = (snapshot,)
        self._last_n, self._last_ms = snapshot.end_n, now_ms

    def abandon(self) -> None:
        """Discard the snapshot under way: it may hold records that never became durable."""
        if self._taker is not None:
            self._taker.give_up()
        self._taker = None
        self._last_frame = b""
        self._next_step_ms = FAR_MS

    def consider(self, now_ms: int) -> None:
        """Start a snapshot if enough records were applied since the last one."""
        if self._taker is not None or self._storing is not None or now_ms < self._retry_at_ms:
            return
        settings, n = self._ctx.settings, self._ctx.state.applied.n
        if self._last_ms == NEVER_MS:
            self._last_ms = now_ms  # the first one is due an interval after the first check
        fresh = n - self._last_n
        aged = fresh > 0 and now_ms - self._last_ms >= settings.snapshot_ms
        # After the feature level was lowered, nodes of an older release can start only from a newer snapshot.
        features = self._ctx.state.index.features
        switched = features.level < LEVEL_NEWEST and features.switched_n > self._last_n
        if fresh >= settings.snapshot_records or aged or (fresh > 0 and (switched or self._pressed())):
            length = self._ctx.state.journal_length
            self._seen = (length.batches_seen, length.bytes_seen)
            self._number += 1
            self._taker = SnapshotTaker(self._ctx.state.index, self._ctx.identity.cluster)
            self._next_step_ms = now_ms

    def _pressed(self) -> bool:
        """Whether a quarter of the journal's limit was written since the last snapshot: truncation depends on it."""
        length, settings = self._ctx.state.journal_length, self._ctx.settings
        if length.batches_seen < self._seen[0]:
            self._seen = (0, 0)  # the state was rebuilt since
        batches, size = length.batches_seen - self._seen[0], length.bytes_seen - self._seen[1]
        return 4 * batches > settings.journal_batches_max or 4 * size > settings.journal_bytes_max

    def tick(self, now_ms: int, durable_n: int) -> None:
        """Do one step of the snapshot under way."""
        taker = self._taker
        if taker is None or now_ms < self._next_step_ms:
            return
        self._next_step_ms = now_ms + STEP_MS
        if taker.outdated:
            self.abandon()  # start again
            return
        if not taker.sliced:
            first = taker.untouched
            part = taker.slice(self._ctx.settings.snapshot_tables)
            self._ctx.effects.do(WriteSnapshot(self._number, part, first=first, last=False))
            return
        if not self._last_frame:
            if part := taker.quarantined():
                self._ctx.effects.do(WriteSnapshot(self._number, part, first=False, last=False))
                return
            self._last_frame = taker.keyless()
        if taker.end.n > durable_n:
            return  # the snapshot is valid only once its last record is durable
        self._ctx.effects.do(WriteSnapshot(self._number, self._last_frame, first=False, last=True))
        self._storing = ConfirmedSnapshot(taker.low_n, taker.end.epoch, taker.end.n)
        self._last_stored_n = self._last_n
        self._last_n, self._last_ms = taker.end.n, now_ms
        self.abandon()

    def stored(self, snapshot: int) -> bool:
        """The file is complete and read back. Returns True if that confirms a new snapshot."""
        if self._storing is None or snapshot != self._number:
            return False
        self.confirmed = (*self.confirmed, self._storing)[-KEPT:]
        self._storing = None
        self._failures = 0
        return True

    def failed(self, now_ms: int, snapshot: int) -> None:
        """A part could not be written, e.g. the disk is full: try again later, or the journal grows without limit."""
        if snapshot != self._number or (self._storing is None and self._taker is None):
            return
        if self._storing is not None:
            self._storing = None
            self._last_n, self._last_ms = self._last_stored_n, now_ms
        self.abandon()
        self._retry_at_ms = now_ms + min(RETRY_MS << min(self._failures, 10), RETRY_MS_MAX)
        self._failures += 1
