"""The content of the durable journal, by the simplest possible model: which version of a key is readable, and where.

It does not use the index: the index under test is compared with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any
from zlib import crc32

from msgspec import Struct

from leasehold.base.codes import SoftPin, TaskStatus
from leasehold.index.records import (
    AdoptSegment,
    ClientGone,
    CopyEnd,
    CopyRevoke,
    CopyStart,
    DiskEvict,
    DiskGone,
    DiskMount,
    DiskStored,
    DiskUnmount,
    DrainEnd,
    DrainStart,
    Extent,
    MountSegment,
    PromoteEnd,
    PromoteStart,
    PutEnd,
    PutEnds,
    PutRevoke,
    PutStart,
    Record,
    Remove,
    RemoveRange,
    ReplicaClear,
    SetQuota,
    TaskCreate,
    TaskDone,
    UnmountSegment,
)
from leasehold.index.tables import TABLES
from leasehold.index.tasks import task_id

Places = dict[int, int]
"""Replica id -> the incarnation of its segment."""


class Copy(Struct):
    """A copy or move under way."""

    key: bytes
    put_seq: int
    places: Places
    moves: int


class Truth:
    """One method per kind of record; other records change nothing that a client can see."""

    def __init__(self) -> None:
        self.epochs: list[int] = [0]  # by record number
        self.log: list[tuple[int, Record]] = []
        self.visible: dict[bytes, int] = {}
        self.changed: dict[bytes, int] = {}  # number of the last record that changed the visible version of a key
        self.started: dict[int, PutStart] = {}
        self.ended: set[int] = set()  # versions that were readable once
        self.pinned: set[int] = set()  # versions with a soft pin
        self.where: dict[int, Places] = {}
        self.copies: dict[int, Copy] = {}  # by the number of their start
        self.tasks: dict[bytes, int] = {}  # their status
        self.quotas: dict[bytes, int] = {}
        self.drains: dict[int, int] = {}  # by the number of their start: their status
        self.on_disk: dict[int, dict[bytes, int]] = {}  # version -> owner -> the number of its file
        self.owners: dict[bytes, bool] = {}  # of disks: whether they are connected
        self.disk_n = 0  # the last record after which fewer or other disks can be read
        self.dormant: dict[bytes, int] = {}  # key -> a version that only silent owners have
        self.content: dict[int, int] = {}  # promotion -> the put whose bytes it has
        self.segments = 0  # mounts so far
        self.disturbed = False  # a host was lost: its space is in quarantine, and even a roomy pool may have to evict
        self.dropped: dict[int, dict[bytes, int]] = {}  # record -> the versions that it removed, by key

    @property
    def tail_n(self) -> int:
        return len(self.epochs) - 1

    def apply(self, epoch: int, record: Record) -> None:
        self.epochs.append(epoch)
        self.log.append((epoch, record))
        handler = _HANDLERS.get(type(record))
        if handler is not None:
            handler(self, self.tail_n, record)

    def is_pinned(self, put_seq: int) -> bool:
        """Whether this version has a soft pin."""
        return put_seq in self.pinned

    def is_hard_pinned(self, put_seq: int) -> bool:
        started = self.started.get(put_seq)
        return started is not None and started.hard_pin

    def group_of(self, put_seq: int) -> bytes:
        started = self.started.get(put_seq)
        return started.group if started is not None else b""

    def _set_quota(self, n: int, record: SetQuota) -> None:
        if record.requested_bytes:
            self.quotas[record.tenant] = record.requested_bytes
        else:
            self.quotas.pop(record.tenant, None)

    def _drain_start(self, n: int, record: DrainStart) -> None:
        self.drains[n] = 2

    def _drain_end(self, n: int, record: DrainEnd) -> None:
        self.drains[int.from_bytes(record.job[8:], "little")] = record.status

    # --- puts ---

    def _put_start(self, n: int, record: PutStart) -> None:
        self.started[n] = record
        self.where[n] = _places(n, record.extents)
        if not record.upsert or record.in_place:
            if record.in_place and record.soft_pin == SoftPin.PRESERVE and self.visible.get(record.key) in self.pinned:
                self.pinned.add(n)
            if record.in_place:
                self.where[self.visible.get(record.key, 0)] = {}
                self._lost_memory(record.key, n)
            else:
                self._drop(record.key, n)

    def _put_end(self, n: int, record: PutEnd) -> None:
        self._end(n, record.put_seq)

    def _put_ends(self, n: int, record: PutEnds) -> None:
        for put_seq in record.put_seqs:
            self._end(n, put_seq)

    def _end(self, n: int, put_seq: int) -> None:
        started = self.started[put_seq]
        wanted, key = started.soft_pin, started.key
        old = self.visible.get(key)
        if wanted == SoftPin.ENABLE or (wanted == SoftPin.PRESERVE and old in self.pinned):
            self.pinned.add(put_seq)
        if old is not None:
            self.on_disk.pop(old, None)
        self.on_disk.pop(self.dormant.pop(key, 0), None)
        self.visible[key] = put_seq
        self.ended.add(put_seq)
        self.changed[key] = n

    def _put_revoke(self, n: int, record: PutRevoke) -> None:
        if self.visible.get(record.key) == record.put_seq:
            self._drop(record.key, n)

    # --- removes ---

    def _remove(self, n: int, record: Remove) -> None:
        self._drop(record.key, n)

    def _remove_range(self, n: int, record: RemoveRange) -> None:
        matches = re.compile(record.pattern).search
        for key, put_seq in list(self.visible.items()):
            in_span = record.first_table <= crc32(key) % TABLES <= record.last_table
            if in_span and put_seq not in record.stays and matches(key):
                self._drop(key, n)
        for key, put_seq in list(self.dormant.items()):
            in_span = record.first_table <= crc32(key) % TABLES <= record.last_table
            if in_span and put_seq not in record.stays and matches(key):
                self._drop(key, n)

    def _replica_clear(self, n: int, record: ReplicaClear) -> None:
        if self.visible.get(record.key) == record.put_seq:
            self._lose(record.put_seq, record.replicas)
            self._lost_memory(record.key, n)

    def _lose(self, put_seq: int, replicas: Iterable[int]) -> None:
        for replica in replicas:
            self.where[put_seq].pop(replica, None)

    # --- copies and moves ---

    def _copy_start(self, n: int, record: CopyStart) -> None:
        self.copies[n] = Copy(record.key, record.put_seq, _places(n, record.extents), record.moves)

    def _copy_end(self, n: int, record: CopyEnd) -> None:
        copy = self.copies.pop(record.started, None)
        if copy is not None and self.visible.get(copy.key) == copy.put_seq:
            self._lose(copy.put_seq, (copy.moves,))
            self.where[copy.put_seq].update(copy.places)

    def _copy_revoke(self, n: int, record: CopyRevoke) -> None:
        self.copies.pop(record.started, None)

    def _task_create(self, n: int, record: TaskCreate) -> None:
        self.tasks[task_id(self.epochs[n], n)] = TaskStatus.PENDING

    def _task_done(self, n: int, record: TaskDone) -> None:
        if record.task in self.tasks:
            self.tasks[record.task] = record.status

    # --- segments ---

    def _mount(self, n: int, record: MountSegment) -> None:
        self.segments += 1
        if record.supersedes:
            self._end_segments(n, record.supersedes)

    def _adopt(self, n: int, record: AdoptSegment) -> None:
        self.segments += 1

    def disturb(self) -> None:
        """Even a roomy pool may have to evict from now on."""
        self.disturbed = True

    def _unmount(self, n: int, record: UnmountSegment | ClientGone) -> None:
        self._end_segments(n, record.incarnations)

    def _end_segments(self, n: int, incarnations: tuple[int, ...]) -> None:
        self.disturbed = True
        gone = set(incarnations)
        for places in [*self.where.values(), *(copy.places for copy in self.copies.values())]:
            for replica in [replica for replica, incarnation in places.items() if incarnation in gone]:
                del places[replica]
        for key in list(self.visible):
            self._lost_memory(key, n)

    # --- disks ---

    def content_of(self, put_seq: int) -> int:
        """The put that wrote the bytes of this version."""
        return self.content.get(put_seq, put_seq)

    def is_on_disk(self, put_seq: int | None) -> bool:
        """Whether a connected owner has this version."""
        return any(self.owners.get(owner) for owner in self.on_disk.get(put_seq or 0, ()))

    def _lost_memory(self, key: bytes, n: int) -> None:
        """A version may have lost its memory or its disks: it stays, sleeps or ends."""
        put_seq = self.visible.get(key)
        if put_seq is None or self.where.get(put_seq) or self.is_on_disk(put_seq):
            return
        if self.on_disk.get(put_seq):
            del self.visible[key]
            self.dormant[key] = put_seq
            self.changed[key] = n
        else:
            self._drop(key, n)

    def _disk_mount(self, n: int, record: DiskMount) -> None:
        self.owners[record.client] = True
        self.disk_n = n
        for key, put_seq in list(self.dormant.items()):
            if self.is_on_disk(put_seq):
                self.visible[key] = self.dormant.pop(key)
                self.changed[key] = n

    def _disk_gone(self, n: int, record: DiskGone) -> None:
        self.owners[record.client] = False
        self.disk_n = n
        self._recheck(n)

    def _disk_unmount(self, n: int, record: DiskUnmount) -> None:
        self.owners.pop(record.client, None)
        self.disk_n = n
        for places in self.on_disk.values():
            places.pop(record.client, None)
        self._recheck(n)

    def _recheck(self, n: int) -> None:
        for key in list(self.visible):
            self._lost_memory(key, n)
        for key, put_seq in list(self.dormant.items()):
            if not self.on_disk.get(put_seq):
                del self.dormant[key]

    def _disk_stored(self, n: int, record: DiskStored) -> None:
        for item in record.items:
            places = self.on_disk.setdefault(item.put_seq, {})
            places.pop(item.previous, None)
            places[record.client] = item.bucket
            if self.dormant.get(item.key) == item.put_seq:
                self.visible[item.key] = self.dormant.pop(item.key)
                self.changed[item.key] = n

    def _disk_evict(self, n: int, record: DiskEvict) -> None:
        self.disk_n = n
        places = self.on_disk.get(record.put_seq, {})
        bucket = places.pop(record.client, 0)
        for owner in [owner for owner, other in places.items() if other == bucket]:
            del places[owner]  # the same file, in a folder that two processes have used
        self._lost_memory(record.key, n)
        if self.dormant.get(record.key) == record.put_seq and not places:
            del self.dormant[record.key]

    def _promote_start(self, n: int, record: PromoteStart) -> None:
        self.started[n] = PutStart(
            record.at_ms, record.client, record.tenant, record.key, record.size, record.extents, SoftPin.DISABLE
        )
        self.where[n] = _places(n, record.extents)
        self.content[n] = self.content_of(record.source)
        self.where[record.source] = {}  # the leader has evicted it
        self._lost_memory(record.key, n)

    def _promote_end(self, n: int, record: PromoteEnd) -> None:
        places = self.on_disk.pop(record.source, {})
        self._end(n, record.put_seq)
        self.on_disk[record.put_seq] = places

    def _drop(self, key: bytes, n: int) -> None:
        self.on_disk.pop(self.dormant.pop(key, 0), None)
        put_seq = self.visible.pop(key, None)
        self.on_disk.pop(put_seq or 0, None)
        if put_seq is not None:
            self.changed[key] = n
            self.dropped.setdefault(n, {})[key] = put_seq


def _places(n: int, extents: tuple[Extent, ...]) -> Places:
    return {n << 4 | place: extent.incarnation for place, extent in enumerate(extents)}


_HANDLERS: dict[type[Any], Callable[[Truth, int, Any], None]] = {
    PutStart: Truth._put_start,
    PutEnd: Truth._put_end,
    PutEnds: Truth._put_ends,
    PutRevoke: Truth._put_revoke,
    Remove: Truth._remove,
    RemoveRange: Truth._remove_range,
    ReplicaClear: Truth._replica_clear,
    CopyStart: Truth._copy_start,
    CopyEnd: Truth._copy_end,
    CopyRevoke: Truth._copy_revoke,
    TaskCreate: Truth._task_create,
    TaskDone: Truth._task_done,
    SetQuota: Truth._set_quota,
    DrainStart: Truth._drain_start,
    DrainEnd: Truth._drain_end,
    MountSegment: Truth._mount,
    AdoptSegment: Truth._adopt,
    UnmountSegment: Truth._unmount,
    ClientGone: Truth._unmount,
    DiskMount: Truth._disk_mount,
    DiskGone: Truth._disk_gone,
    DiskUnmount: Truth._disk_unmount,
    DiskStored: Truth._disk_stored,
    DiskEvict: Truth._disk_evict,
    PromoteStart: Truth._promote_start,
    PromoteEnd: Truth._promote_end,
}
