"""Applying records: the same code for the primary that decides them, for a standby, and for replay.

Replay over a fuzzy snapshot: a record touches a key only if it is newer than that key's slice, and what has no key
only if it is newer than the last slice. While replaying, a record may speak of an object that a slice no longer had:
it is passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zlib import crc32

from leasehold.base.codes import SoftPin, TaskStatus
from leasehold.base.limits import tasks_max
from leasehold.index.doubt import Doubt
from leasehold.index.model import COMPLETE, PROCESSING, CopyJob, Draft, Object, Replica, Task
from leasehold.index.patterns import compile_pattern
from leasehold.index.records import (
    NEVER_MS,
    Begin,
    ClientGone,
    CopyEnd,
    CopyRevoke,
    CopyStart,
    DrainSegment,
    Extent,
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
from leasehold.index.state import NO_OBJECTS, NotHere, Unappliable

_END_PER_RECORD = 16  # objects of a segment that has ended, gone through with every record that is applied


def task_id(epoch: int, n: int) -> bytes:
    """A task is named by the record that made it."""
    return epoch.to_bytes(8, "little") + n.to_bytes(8, "little")


class Apply(Doubt):
    """One method a record."""

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
            if self.covered_n is not None and n >= self.keyless_n:
                self.covered_n = None
                self._end_homeless()
                self._place_limbo()

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

    # --- puts ---

    def _apply_put_start(self, n: int, record: PutStart) -> None:
        tenant, key = record.tenant, record.key
        if self.ending:
            self.lookup(tenant, key)  # what stands there may have ended with its segment
        tables = self.tables.get(tenant)
        if (
            tables is None
            or key in (table := tables[crc32(key) & 16383])
            or record.group
            or record.discards
            or self.covered_n is not None
        ):
            self._apply_put_start_over(n, record)
            return
        # Nothing of this name is there, and nothing else is asked for: nearly every put.
        now = record.at_ms + self.offset
        entry = Object(
            key, tenant, n, n, record.size, (), record.client, now, 0, record.hard_pin, False, False, b"",
            Draft(now, record.soft_pin, record.soft_pin_ttl_ms, record.request, record.in_place),
            None, record.data_type,
        )  # fmt: skip
        entry.replicas = self._take(n, entry, record.extents)
        if entry.replicas:
            if not table:
                table = self._table_of(tables, key)
            self.unfinished[n] = table[key] = entry
            self.object_count += 1

    def _apply_put_start_over(self, n: int, record: PutStart) -> None:
        """Over what is there, or over a snapshot that may know it already."""
        tenant, key = record.tenant, record.key
        if self._covers(n, key):
            self._displaced_since(n, record.extents, record.size)
            return
        now = record.at_ms + self.offset
        if record.discards:
            self._discard(n, (tenant, key), record.discards, now, record.limbo_ms)
        old = self.lookup(tenant, key)
        draft = Draft(now, record.soft_pin, record.soft_pin_ttl_ms, record.request, record.in_place)
        entry = Object(
            key, tenant, n, n, record.size, (), record.client, now, 0, record.hard_pin, False, False, record.group,
            draft, None, record.data_type,
        )  # fmt: skip
        beside = record.upsert and not record.in_place and old is not None and old.visible
        if old is not None:
            if record.soft_pin == SoftPin.PRESERVE and record.upsert:
                entry.soft_pin_end = old.soft_pin_end
            if not beside:
                # In place no lease was live; otherwise it is a ghost: the primary had evicted it.
                self._drop(old, n, now, 0)
        entry.replicas = self._take(n, entry, record.extents)
        if not entry.replicas:
            return
        self.unfinished[n] = entry
        if beside:
            self.pending[(tenant, key)] = entry
        else:
            self._insert(entry)

    def _take(self, n: int, owner: Object | CopyJob, extents: tuple[Extent, ...]) -> tuple[Replica, ...]:
        segments = self.segments
        if len(extents) == 1:  # and nothing in its way: nearly always
            extent = extents[0]
            segment = segments.get(extent.incarnation)
            if segment is not None:
                taken_bytes = segment.space.take(extent.offset, owner)
                if taken_bytes:
                    self.used_bytes += taken_bytes
                    return (Replica(n << 4, segment, extent.offset, PROCESSING),)
        taken = []
        for place, extent in enumerate(extents):
            segment = segments.get(extent.incarnation)
            if segment is None:
                if self.covered_n is None:
                    raise Unappliable(f"record {n} names a mount, {extent.incarnation}, that is not there")
                continue
            if self._claim(segment, extent.offset, owner, n):
                taken.append(Replica(n << 4 | place, segment, extent.offset, PROCESSING))
        return tuple(taken)

    def _displaced_since(self, n: int, extents: tuple[Extent, ...], size: int) -> None:
        """The key's slice is newer than this claim. A slice that is older may still have what it displaced (P3)."""
        for extent in extents:
            segment = self.segments.get(extent.incarnation)
            if segment is not None:
                self._displace_older(segment, extent.offset, size, n)

    def _discard(self, n: int, name: tuple[bytes, bytes], put_seq: int, now: int, limbo_ms: int) -> None:
        entry = self.unfinished.get(put_seq)
        if entry is not None and (entry.tenant, entry.key) == name:
            self._drop(entry, n, now, limbo_ms)

    def _apply_put_end(self, n: int, record: PutEnd) -> None:
        if self.covered_n is not None and self._covers(n, record.key):
            return
        entry = self.unfinished.get(record.put_seq)
        if entry is None or entry.draft is None:
            self._missing(n, "put_end")
            return
        now = record.at_ms + self.offset
        draft = entry.draft
        if self.pending and self.pending.get(name := (record.tenant, record.key)) is entry:
            del self.pending[name]
            old = self.lookup(*name)
            if old is not None:
                if draft.soft_pin == SoftPin.PRESERVE:
                    entry.soft_pin_end = old.soft_pin_end
                self._drop(old, n, now, record.limbo_ms)
            self._insert(entry)
        if draft.soft_pin:
            entry.soft_pin_end = now + draft.soft_pin_ttl_ms if draft.soft_pin == SoftPin.ENABLE else 0
        for replica in entry.replicas:
            replica.status = COMPLETE
        entry.checksum = record.checksum
        entry.draft = None
        entry.visible = True
        entry.changed_n = n
        entry.lease_end = now + record.lease_ms
        del self.unfinished[record.put_seq]
        if not entry.hard_pin:
            self.wheel.add(entry, entry.lease_end)

    def _apply_put_revoke(self, n: int, record: PutRevoke) -> None:
        if self._covers(n, record.key):
            return
        entry = self.unfinished.get(record.put_seq)
        if entry is None:
            self._missing(n, "put_revoke")
            return
        self._drop(entry, n, record.at_ms + self.offset, record.limbo_ms)
        self._remember_removed((record.tenant, record.key), n)

    # --- removes ---

    def _apply_remove(self, n: int, record: Remove) -> None:
        tenant, key = record.tenant, record.key
        if self.covered_n is not None and self._covers(n, key):
            return
        tables = self.tables.get(tenant)
        entry = None if tables is None else tables[crc32(key) & 16383].get(key)
        if entry is not None:
            self._drop(entry, n, record.at_ms + self.offset, record.limbo_ms)
        if n > self.durable_n:
            self._remember_removed((tenant, key), n)

    def _apply_remove_range(self, n: int, record: RemoveRange) -> None:
        tables = self.tables.get(record.tenant)
        self.range_n = n
        if tables is None:
            return
        now = record.at_ms + self.offset
        stays = frozenset(record.stays)
        search = compile_pattern(record.pattern).search if record.pattern else None
        first = record.first_table
        for number, table in enumerate(tables[first : record.last_table + 1], first):
            if not table or (self.covered_n is not None and n <= self.covered_n[number]):
                continue
            for key, entry in list(table.items()):
                # Only what is older: in replay a slice may hold what was put after this record. The unfinished always
                # stay, also one that in replay stands alone because its old version was void (H12).
                if entry.put_seq >= n or entry.draft is not None or entry.put_seq in stays:
                    continue
                if search is None or search(key):
                    self._drop(entry, n, now, record.limbo_ms)
            if not table:
                tables[number] = NO_OBJECTS  # a dict does not shrink by itself

    def _apply_replica_clear(self, n: int, record: ReplicaClear) -> None:
        entry = self._version(n, record.tenant, record.key, record.put_seq, "replica_clear")
        if entry is None:
            return
        now = record.at_ms + self.offset
        gone = [replica for replica in entry.replicas if replica.id in record.replicas]
        if len(gone) == len(entry.replicas):
            self._drop(entry, n, now, record.limbo_ms)
            self._remember_removed((record.tenant, record.key), n)
            return
        entry.replicas = tuple(replica for replica in entry.replicas if replica not in gone)
        entry.changed_n = n
        self._let_go(gone, entry.size, n, now, record.limbo_ms)

    # --- copies and moves ---

    def _apply_copy_start(self, n: int, record: CopyStart) -> None:
        if self._covers(n, record.key):
            entry = self.lookup(record.tenant, record.key)
            self._displaced_since(n, record.extents, entry.size if entry is not None else 1)
            return
        entry = self._version(n, record.tenant, record.key, record.put_seq, "copy_start")
        if entry is None:
            return
        now = record.at_ms + self.offset
        job = CopyJob(
            record.tenant, record.key, record.put_seq, entry.size, record.client, n, now, record.source,
        record.moves, () )  # fmt: skip
        job.replicas = self._take(n, job, record.extents)
        self.copies[(record.tenant, record.key)] = job

    def _job(self, n: int, record: CopyEnd | CopyRevoke, what: str) -> CopyJob | None:
        if self._covers(n, record.key):
            return None
        job = self.copies.get((record.tenant, record.key))
        if job is None or job.started_n != record.started:
            self._missing(n, what)
            return None
        del self.copies[(record.tenant, record.key)]
        return job

    def _apply_copy_end(self, n: int, record: CopyEnd) -> None:
        job = self._job(n, record, "copy_end")
        entry = self.lookup(record.tenant, record.key)
        if job is None or entry is None or entry.put_seq != job.put_seq:
            return
        for replica in job.replicas:
            replica.status = COMPLETE
            replica.segment.space.owners[replica.offset] = entry
        moved = [replica for replica in entry.replicas if replica.id == job.moves]
        entry.replicas = tuple(replica for replica in entry.replicas if replica.id != job.moves) + job.replicas
        entry.changed_n = n
        if not entry.replicas and self.homeless is not None:
            self.homeless.append(entry)  # somebody in a later slice has the new place already
        self._let_go(moved, entry.size, n, record.at_ms + self.offset, record.limbo_ms)

    def _apply_copy_revoke(self, n: int, record: CopyRevoke) -> None:
        job = self._job(n, record, "copy_revoke")
        if job is not None:
            self._let_go(job.replicas, job.size, n, record.at_ms + self.offset, record.limbo_ms)

    def _apply_task_create(self, n: int, record: TaskCreate) -> None:
        if self._covers_keyless(n):
            return
        name = task_id(self.epoch, n)
        if len(self.tasks) >= tasks_max:  # here, so that every node forgets the same (P6)
            self.tasks = {each: task for each, task in self.tasks.items() if task.status < TaskStatus.FAILED}
        self._add_task(Task(
            name, record.kind, record.tenant, record.key, record.source, record.targets, record.client,
            record.created_ms, record.created_ms, TaskStatus.PENDING, "",
        ))  # fmt: skip

    def _add_task(self, task: Task) -> None:
        self.tasks[task.id] = task
        if task.status < TaskStatus.FAILED:
            self.open_tasks.setdefault(task.client, {})[task.id] = task

    def _apply_task_done(self, n: int, record: TaskDone) -> None:
        if self._covers_keyless(n):
            return
        task = self.tasks.get(record.task)
        if task is not None:
            task.status, task.message, task.updated_ms = record.status, record.message, record.at_ms
            still_open = self.open_tasks.get(task.client, {})
            still_open.pop(task.id, None)
            if not still_open:
                self.open_tasks.pop(task.client, None)

    # --- what a snapshot already covers ---

    def _covers(self, n: int, key: bytes) -> bool:
        return self.covered_n is not None and n <= self.covered_n[crc32(key) & 16383]

    def _missing(self, n: int, what: str) -> None:
        if self.covered_n is None:
            raise NotHere(f"record {n} ({what}) names an object that is not there: this node has diverged")

    def _version(self, n: int, tenant: bytes, key: bytes, put_seq: int, what: str) -> Object | None:
        if self._covers(n, key):
            return None
        entry = self.lookup(tenant, key)
        if entry is None or entry.put_seq != put_seq:
            self._missing(n, what)
            return None
        return entry


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
