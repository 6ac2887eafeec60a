"""A node's state as a function of the journal: the index, the applied position, and records that cannot be applied.

The source of a batch does not matter: watch, listing or buffer. Explicit records are applied once, in the order of the
chain, above one applied position. Unlogged batches take effect at their place in that order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum

from msgspec import Struct

from leasehold.base.errors import LeaseholdError
from leasehold.base.limits import discard_step_objects, replay_piece_objects
from leasehold.ha.leader_lease import NEVER_MS
from leasehold.ha.steps import Steps
from leasehold.index.errors import NotHere
from leasehold.index.index import Index
from leasehold.index.records import NEVER_MS as NO_HANDOVER_MS
from leasehold.index.records import Begin, Handover, PutEnds, Record, RemoveRange
from leasehold.journal.batch import (
    NOT_STATED,
    ExplicitBatch,
    UnloggedBatch,
    UnreadableBatch,
    decode_explicit,
    decode_unlogged,
)
from leasehold.journal.chain import Fit, Position, fit
from leasehold.journal.length import JournalLength
from leasehold.journal.snapshot_file import SnapshotReader
from leasehold.journal.unlogged_reader import UnloggedReader


class BatchOutcome(Enum):
    """The result of offering a batch."""

    APPLIED = "applied"
    OLD = "old"  # already applied
    GAP = "gap"  # records before it are missing: list again
    FORK = "fork"  # this state holds a record that never became durable: rebuild
    QUARANTINED = "quarantined"  # unreadable, or it could not be applied: not ready until it is replaced


class QuarantinedRecord(Struct, frozen=True):
    """A record that could not be applied; `n` is its number, or that of its batch's first record."""

    n: int
    reason: str


class LastWrite(Struct, frozen=True):
    """The newest write of the newest epoch that this node has seen, on this node's clock.

    `lease_ms`: the leader lease that this write extended lasts this long.
    `live`: received while that epoch's leader held its key. A batch that was found by listing may be of any age, and so
    may a batch that a successor attached from a dead leader's buffer.
    """

    epoch: int = 0
    seen_ms: int = NEVER_MS
    lease_ms: int = 0
    live: bool = False


class Heartbeat(Struct, frozen=True):
    """The newest unlogged batch. Only a live worker writes those; a guardian never writes one for a dead worker.

    `live`: as in `LastWrite`.
    `after_ms`: it was written after this moment. The time of its arrival proves nothing: it may have been delayed.
    """

    live: bool = False
    after_ms: int = NEVER_MS


class AppliedState:
    """The state that a standby builds from the journal; a primary continues with the same `index`.

    Invariants: every record up to `applied` is in `index`, and `applied` only moves forward until `reset`. While
    `quarantined_records` is not empty, this node is not ready.
    """

    __slots__ = (
        "_batches_until_trusted",
        "_cleared_before",
        "_discarded",
        "_make",
        "_missing_object_n",
        "_reported_unheard_n",
        "_unlogged_seen",
        "applied",
        "diverged",
        "handover",
        "heartbeat",
        "index",
        "journal_length",
        "last_write",
        "partial_batch",
        "quarantined_records",
        "records_applied",
        "step_objects",
        "unexplained_renewal",
        "unlogged",
    )

    def __init__(self, make_index: Callable[[], Index]) -> None:
        self._make = make_index
        self.step_objects = replay_piece_objects
        self._missing_object_n = 0  # the last record that caused a rebuild because its object was missing here
        self._discarded: deque[Iterator[None]] = deque()  # earlier indexes, see `discard_some`
        self._start_empty()

    def reset(self) -> None:
        """Forget everything, before a rebuild."""
        self._discarded.append(self.index.discarding(discard_step_objects))
        self._start_empty()

    def _start_empty(self) -> None:
        self.index = self._make()
        self.applied = Position()
        self.unlogged = UnloggedReader()
        self.journal_length = JournalLength()
        self.handover: Handover | None = None  # set if the last applied record is a hand-over
        self.quarantined_records: list[QuarantinedRecord] = []
        self.partial_batch: ExplicitBatch | None = None  # set if the first quarantined record is inside a batch
        self.diverged = ""  # why this state cannot be a prefix of the leader's state; empty: it can
        self.unexplained_renewal = False  # a renewal of this epoch named an object that is missing here
        self.records_applied = 0
        self.last_write = LastWrite()
        self.heartbeat = Heartbeat()
        self._batches_until_trusted = 0  # unlogged batches to ignore as evidence about owners, see `_take_heartbeat`
        self._unlogged_seen = (0, 0)
        self._reported_unheard_n = NOT_STATED  # from the newest unlogged batch seen, also one that has not taken effect
        self._cleared_before = (0, 0, 0)

    def limit_steps(self, objects: int) -> None:
        """Apply at most this many records, or renew this many objects, in one step."""
        self.step_objects = objects

    @property
    def discarding(self) -> bool:
        """Whether an index that `reset` dropped still occupies memory: call `discard_some`."""
        return bool(self._discarded)

    def discard_some(self) -> None:
        """Do one step of freeing the indexes that `reset` dropped. With a million objects that takes half a second."""
        if self._discarded and next(self._discarded[0], self) is self:
            self._discarded.popleft()

    def loading(self, reader: SnapshotReader) -> Steps[None]:
        """Start from a snapshot; replay continues after its lowest slice."""
        self.reset()
        while self._discarded:  # first, or the memory of two indexes would be needed
            self.discard_some()
            yield
        yield from self.index.loading(reader.keyless, reader.parts())
        self.applied = reader.low
        self.unlogged.begin(self.applied.epoch, known_from_start=False)

    def advance_to(self, durable: Position) -> None:
        """The leader's own records up to `durable`, already in `index`, became durable."""
        self.applied = durable

    def follow(self, unlogged_written: int, handover: Handover | None) -> None:
        """Continue as a standby of the epoch that this node led and handed over cleanly, with its last record."""
        self.handover = handover
        self.unlogged = UnloggedReader()
        self.unlogged.begin(self.applied.epoch, known_from_start=True)
        self.unlogged.skip_to(unlogged_written)
        self.discard_quarantined()
        index = self.index
        evicted = index.eviction
        self._cleared_before = (index.space.displaced_count, evicted.evicted_count, evicted.evicted_bytes)

    def discard_quarantined(self) -> None:
        """The quarantined records were deleted from the journal."""
        self.quarantined_records = []
        self.partial_batch = None

    def cleared(self) -> tuple[int, int, int]:
        """As a standby: objects displaced by newer claims, objects evicted as the primary reported, their bytes."""
        index, (displaced, count, size) = self.index, self._cleared_before
        evicted = index.eviction
        return index.space.displaced_count - displaced, evicted.evicted_count - count, evicted.evicted_bytes - size

    def take_explicit(self, now_ms: int, n: int, raw: bytes, *, leads: int) -> Steps[BatchOutcome]:
        """Offer one value of `journal/explicit/` from the slot of record `n`.

        `leads`: the epoch whose leader is writing now, as far as this node knows; 0 if the value came from a listing.
        """
        try:
            batch = decode_explicit(raw)
        except UnreadableBatch as error:
            return self._quarantine(n, str(error)) if n > self.applied.n else BatchOutcome.OLD
        if batch.first_n != n:
            return self._quarantine(n, f"slot {n} holds batch {batch.first_n}")
        if n + len(batch.records) > self.applied.n + 1 or batch.epoch > self.last_write.epoch:
            self._record_write(now_ms, batch.epoch, batch.right_ms, leads)
        outcome = yield from self.take_batch(batch)
        if outcome is BatchOutcome.APPLIED:
            self.journal_length.add(n, len(raw))
        return outcome

    def take_batch(self, batch: ExplicitBatch) -> Steps[BatchOutcome]:
        """Apply a decoded batch. Between two steps the state is the same as if the batch ended there."""
        verdict = fit(self.applied, batch)
        if verdict is Fit.OLD:
            return BatchOutcome.OLD
        if verdict is Fit.GAP:
            return BatchOutcome.GAP
        if verdict is Fit.FORK:
            return BatchOutcome.FORK
        touched = 0
        for at, record in enumerate(batch.records, start=batch.first_n):
            if at <= self.applied.n:
                continue
            if touched >= self.step_objects:
                touched = 0
                yield
            try:
                left_work = self._apply(batch.epoch, at, record)
            except LeaseholdError as error:
                self.partial_batch = batch if at > batch.first_n else None
                if isinstance(error, NotHere) and at != self._missing_object_n:
                    # An older leader reported this object as evicted, but the present leader still has it and copies
                    # it. The record is not at fault: the leader's snapshot has the object. Rebuild from it once; if
                    # that does not help, quarantine the record like any other.
                    self._missing_object_n = at
                    self.diverged = str(error)
                return self._quarantine(at, f"record {at} cannot be applied: {error}")
            while left_work:
                yield
                left_work = self.index.finish_some()
            if self.unlogged.waiting:
                yield from self._apply_due_unlogged()  # exactly here, or a missing object could not be judged
            # A range takes a step of its own.
            touched += self.step_objects if isinstance(record, RemoveRange) else _objects_of(record)
        if self.quarantined_records:
            # An operator discarded the slot that could not be applied, and the chain continues in its place.
            self.quarantined_records = [one for one in self.quarantined_records if one.n > self.applied.n]
            self.partial_batch = None  # its record was replaced: a later cut must not write this batch back
        return BatchOutcome.APPLIED

    def _apply(self, epoch: int, n: int, record: Record) -> bool:
        """Returns whether the record left work for `Index.finish_some`."""
        left_work = self.index.apply(n, record)
        self.applied = Position(epoch, n)
        self.records_applied += 1
        if isinstance(record, Begin):
            self._begin(epoch, record)
        self.handover = record if isinstance(record, Handover) else None
        return left_work

    def _begin(self, epoch: int, record: Begin) -> None:
        """Start a new epoch. After a hand-over lease ends stay valid, also those of renewals that this node missed."""
        handed_over, before = record.handover_ms != NO_HANDOVER_MS, self.handover
        unknown = handed_over and (before is None or not self.unlogged.has_all_to(before.last_unlogged))
        self.unlogged.begin(epoch, known_from_start=True)
        self.unexplained_renewal = False
        if unknown:
            self.unlogged.open_gap_at_start()
            self.index.gap_closed(record.drift_ms)  # lease ends that were handed over are mapped later by the drift

    def take_unlogged(self, now_ms: int, raw: bytes, *, leads: int, after_ms: int = NEVER_MS) -> Steps[None]:
        """Offer one value of the unlogged journal; `leads` as above. A damaged batch is dropped and leaves a gap."""
        try:
            batch = decode_unlogged(raw)
        except UnreadableBatch:
            return
        if (batch.epoch, batch.number) > self._unlogged_seen:
            self._unlogged_seen = (batch.epoch, batch.number)
            self._reported_unheard_n = batch.unheard_n
            self._record_write(now_ms, batch.epoch, batch.right_ms, leads)
            self._take_heartbeat(now_ms, Heartbeat(batch.epoch == leads, after_ms))
        self.unlogged.offer(batch)
        yield from self._apply_due_unlogged()

    def _apply_due_unlogged(self) -> Steps[None]:
        for batch in self.unlogged.due(self.applied):
            yield from self._apply_unlogged(batch)

    def _apply_unlogged(self, batch: UnloggedBatch) -> Steps[None]:
        index, every = self.index, self.step_objects
        for place, one in enumerate(batch.renewals, start=1):
            if place % every == 0:
                yield
            known = index.apply_renewal(one.tenant, one.key, one.put_seq, one.lease_end_ms, one.soft_pin_end_ms)
            if known:
                continue
            if batch.as_of_n == self.applied.n and index.coverage.tables_n is None:
                # As of exactly this record the primary has an object that this node lacks: the states diverged.
                self.diverged = f"the primary renewed {one.key!r} (put {one.put_seq}), which this node does not have"
            else:
                self.unexplained_renewal = True  # it may have been removed since, or was never here
        for place, hint in enumerate(batch.hints, start=1):
            if place % every == 0:
                yield
            index.apply_hint(hint.tenant, hint.key, hint.put_seq)
        while index.observe(batch.leader_ms):
            yield
        if batch.unheard_n != NOT_STATED:
            index.owners.set_unproven_before_n(batch.unheard_n)
        if self.unlogged.gap_closed_ms == batch.leader_ms:
            index.gap_closed(batch.leader_ms)
        if batch.complete and batch.expires:  # the leader's policy decides: this node's may differ
            yield from index.expiring(batch.leader_ms, every)

    def _take_heartbeat(self, now_ms: int, heartbeat: Heartbeat) -> None:
        """A leader is alive and receives the pings of the owners of memory.

        After a silence longer than a client's TTL the first batch may have been written before the leader noticed the
        silence. A standby ignores it as evidence about owners, and trusts the second (H9).
        """
        if now_ms - self.heartbeat.after_ms > self.index.settings.client_ttl_ms:
            self._batches_until_trusted = 1
        elif self._batches_until_trusted:
            self._batches_until_trusted -= 1
        self.heartbeat = heartbeat

    def owners_known(self, now_ms: int) -> bool:
        """Whether a leader recently received pings from the owners of memory, or reported the owners without one."""
        recent = now_ms - self.heartbeat.after_ms <= self.index.settings.client_ttl_ms
        return self.heartbeat.live and recent and not self._batches_until_trusted

    def unheard_n(self) -> int:
        """The last leader still waits for pings from owners of segments mounted before this record, as it reported."""
        reported_n = self._reported_unheard_n if self._unlogged_seen[0] == self.applied.epoch else NOT_STATED
        return max(self.index.owners.unproven_before_n, reported_n)

    def _quarantine(self, n: int, reason: str) -> BatchOutcome:
        if all(one.n != n for one in self.quarantined_records):
            self.quarantined_records.append(QuarantinedRecord(n, reason))
        return BatchOutcome.QUARANTINED

    def _record_write(self, now_ms: int, epoch: int, lease_ms: int, leads: int) -> None:
        """Remember the newest write of the newest epoch: a successor waits from then on."""
        if epoch >= self.last_write.epoch:
            self.last_write = LastWrite(epoch, now_ms, lease_ms, epoch == leads)


def _objects_of(record: Record) -> int:
    """How many objects a record changes."""
    return len(record.put_seqs) if isinstance(record, PutEnds) else 1
