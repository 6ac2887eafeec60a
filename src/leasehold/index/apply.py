"""Applying records: the same code for the primary that decides them, for a standby, and for replay.

A method for every kind: those of epochs are here; `mounts`, `put_records` and `copy_records` have the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leasehold.index.copy_records import CopyRecords
from leasehold.index.records import (
    NEVER_MS,
    Begin,
    ClientGone,
    CopyEnd,
    CopyRevoke,
    CopyStart,
    DrainSegment,
    Handover,
    MaxTerm,
    MountSegment,
    PutEnd,
    PutRevoke,
    PutStart,
    Record,
    Remove,
    RemoveRange,
    ReplicaClear,
    TaskCreate,
    TaskDone,
    UnmountSegment,
)
from leasehold.index.state import Unappliable

_END_PER_RECORD = 16  # objects of a segment that has ended, gone through with every record that is applied


class Apply(CopyRecords):
    """The one door for records: those that come from the journal, and those that are decided here."""

    def apply(self, n: int, record: Record) -> None:
        """Apply record `n`, which must be the next one. `Unappliable` if it does not fit this state."""
        if n != self.last_n + 1:
            raise Unappliable(f"record {n} does not follow {self.last_n}: records between them are missing")
        handler = HANDLERS.get(type(record))
        if handler is None:
            raise Unappliable(f"record {n} is of an unknown kind, {type(record).__name__}")
        self.last_n = n
        if n > self.durable_n:
            self.durable_n = n  # it comes from the journal: nothing has to be remembered until it is durable
        self._see(record)
        if self.ending:
            self.end_some(_END_PER_RECORD)
        try:
            handler(self, n, record)
            if type(record) is Begin:
                self._doubt_free_space()
        except Unappliable:
            self.last_n = n - 1  # an operator may say that the chain goes on without it
            self.durable_n = min(self.durable_n, n - 1)
            raise
        finally:
            if self.covered_n is not None:
                self._replayed(n)

    def _emit(self, record: Record) -> int:
        """Primary: this is decided. It goes to the journal, and is applied as on every other node."""
        n = self.last_n = self.last_n + 1
        self.outbox.append((n, record))
        at, kind = record.at_ms + self.offset, type(record)
        if at > self.latest and kind is not Begin:  # as in `_see`
            self.latest = at
        HANDLERS[kind](self, n, record)
        return n

    def _see(self, record: Record) -> None:
        """The leader's clock has reached this. (`begin` is the first of a new clock.)"""
        at = record.at_ms + self.offset
        if at > self.latest and type(record) is not Begin:
            self.latest = at

    # --- epochs ---

    def _apply_begin(self, n: int, record: Begin) -> None:
        if self._covers_keyless(n):
            return
        if record.handover_ms == NEVER_MS:
            # Beyond every end that can have been promised before: then all of it is recognised as older. This node may
            # have heard more of the old epoch than the one that decided `shift_ms`.
            beyond = self.latest + self.max_term_ms + 1
            self.offset += record.shift_ms
            self._move_on(beyond - self.offset - record.at_ms)
            now = self.older_than = self.offset + record.at_ms
            self.floor = now + record.grace_ms
            self._lift_limbo(n, now, record.grace_ms)
        else:
            self.offset += record.handover_ms - record.drift_ms
            now = self.offset + record.at_ms
        self.latest = max(self.latest, now)
        self.begin_n = n
        self.epoch_start = now
        self.epoch = record.epoch
        self.unheard_n = record.unheard_n
        self.max_term_ms = record.max_term_ms
        for entry in self.dirty:
            entry.dirty = False
        self.dirty.clear()
        self.slow_dirty.clear()
        self.hints.clear()  # what was evicted in an older epoch, another leader may have leased since
        self.hinted_bytes = 0
        self.urgent = False
        for client in self.clients.values():
            client.heard = now

    def _move_on(self, by_ms: int) -> None:
        """Begin later on our own axis, with a walk (rare), so that this epoch's ends are later than all older ones.

        What is not lifted by `begin` and is the same on every node moves along.
        """
        if by_ms <= 0:
            return
        self.offset += by_ms
        for tables in self.tables.values():
            for entry in (entry for table in tables for entry in table.values()):
                entry.soft_pin_end += by_ms if entry.soft_pin_end else 0
        for entry in self.pending.values():
            entry.soft_pin_end += by_ms if entry.soft_pin_end else 0
        for segment in self.segments.values():
            segment.drain_end += by_ms if segment.drain_end else 0

    def _apply_handover(self, n: int, record: Handover) -> None:
        """Nothing to do: `begin` of the next epoch says what it means."""

    def _apply_max_term(self, n: int, record: MaxTerm) -> None:
        if not self._covers_keyless(n):
            self.max_term_ms = record.max_term_ms


HANDLERS: dict[type[Any], Callable[[Apply, int, Any], None]] = {
    Begin: Apply._apply_begin,
    Handover: Apply._apply_handover,
    MaxTerm: Apply._apply_max_term,
    MountSegment: Apply._apply_mount,
    UnmountSegment: Apply._apply_unmount,
    DrainSegment: Apply._apply_drain,
    ClientGone: Apply._apply_client_gone,
    PutStart: Apply._apply_put_start,
    PutEnd: Apply._apply_put_end,
    PutRevoke: Apply._apply_put_revoke,
    Remove: Apply._apply_remove,
    RemoveRange: Apply._apply_remove_range,
    ReplicaClear: Apply._apply_replica_clear,
    CopyStart: Apply._apply_copy_start,
    CopyEnd: Apply._apply_copy_end,
    CopyRevoke: Apply._apply_copy_revoke,
    TaskCreate: Apply._apply_task_create,
    TaskDone: Apply._apply_task_done,
}
