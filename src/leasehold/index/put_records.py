"""Applying what was decided about objects: puts, removes, replicas cleared."""

from __future__ import annotations

from zlib import crc32

from leasehold.base.codes import SoftPin
from leasehold.index.doubt import Doubt
from leasehold.index.model import COMPLETE, PROCESSING, CopyJob, Draft, Object, Replica
from leasehold.index.patterns import compile_pattern
from leasehold.index.records import Extent, PutEnd, PutRevoke, PutStart, Remove, RemoveRange, ReplicaClear
from leasehold.index.state import NO_OBJECTS, Unappliable


class PutRecords(Doubt):
    """One method a record."""

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
            self._discard(n, (tenant, key), record.discards, now, record.quarantine_ms)
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
                # In place no lease was live. Otherwise it is a ghost: the primary had evicted it; but within the grace
                # somebody may read it whom the leader before has sent there (schedule 8).
                self._drop(old, n, now, 0 if record.in_place else max(0, self.floor - now))
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

    def _discard(self, n: int, name: tuple[bytes, bytes], put_seq: int, now: int, quarantine_ms: int) -> None:
        entry = self.unfinished.get(put_seq)
        if entry is not None and (entry.tenant, entry.key) == name:
            self._drop(entry, n, now, quarantine_ms)

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
                self._drop(old, n, now, record.quarantine_ms)
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
        self._drop(entry, n, record.at_ms + self.offset, record.quarantine_ms)
        self._remember_removed((record.tenant, record.key), n)

    # --- removes ---

    def _apply_remove(self, n: int, record: Remove) -> None:
        tenant, key = record.tenant, record.key
        if self.covered_n is not None and self._covers(n, key):
            return
        tables = self.tables.get(tenant)
        entry = None if tables is None else tables[crc32(key) & 16383].get(key)
        if entry is not None:
            self._drop(entry, n, record.at_ms + self.offset, record.quarantine_ms)
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
                    self._drop(entry, n, now, record.quarantine_ms)
            if not table:
                tables[number] = NO_OBJECTS  # a dict does not shrink by itself

    def _apply_replica_clear(self, n: int, record: ReplicaClear) -> None:
        entry = self._version(n, record.tenant, record.key, record.put_seq, "replica_clear")
        if entry is None:
            return
        now = record.at_ms + self.offset
        gone = [replica for replica in entry.replicas if replica.id in record.replicas]
        if len(gone) == len(entry.replicas):
            self._drop(entry, n, now, record.quarantine_ms)
            self._remember_removed((record.tenant, record.key), n)
            return
        entry.replicas = tuple(replica for replica in entry.replicas if replica not in gone)
        entry.changed_n = n
        self._let_go(gone, entry.size, n, now, record.quarantine_ms)
