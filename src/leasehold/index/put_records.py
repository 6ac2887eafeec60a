"""Applying records about objects: puts, removes, cleared replicas."""

from __future__ import annotations

from zlib import crc32

from leasehold.index.catalog import Catalog
from leasehold.index.clock import LeaderClock
from leasehold.index.coverage import Coverage
from leasehold.index.decisions import Handlers
from leasehold.index.disk import DiskTier
from leasehold.index.log import Log
from leasehold.index.model import Object
from leasehold.index.patterns import compile_pattern
from leasehold.index.records import PutEnd, PutEnds, PutRevoke, PutStart, Remove, RemoveRange, ReplicaClear
from leasehold.index.space.space import Space


class PutRecords:
    """One method for each kind of record."""

    __slots__ = ("_catalog", "_clock", "_coverage", "_disk", "_log", "_put_release_ms", "_space")

    def __init__(
        self,
        clock: LeaderClock,
        log: Log,
        coverage: Coverage,
        space: Space,
        catalog: Catalog,
        disk: DiskTier,
        put_release_ms: int,
    ) -> None:
        self._disk = disk
        self._put_release_ms = put_release_ms
        self._clock = clock
        self._log = log
        self._coverage = coverage
        self._space = space
        self._catalog = catalog

    def handlers(self) -> Handlers:
        return {
            PutStart: self._put_start,
            PutEnd: self._put_end,
            PutEnds: self._put_ends,
            PutRevoke: self._put_revoke,
            Remove: self._remove,
            RemoveRange: self._remove_range,
            ReplicaClear: self._replica_clear,
        }

    # --- puts ---

    def _put_start(self, n: int, record: PutStart) -> None:
        tenant, key, catalog = record.tenant, record.key, self._catalog
        if catalog.ending:
            catalog.lookup(tenant, key)  # settles an object whose segment was unmounted
        tables = catalog.tables.get(tenant)
        if (
            tables is None
            or key in (table := tables[crc32(key) & 16383])
            or record.group
            or record.discards
            or self._disk.count
            or self._coverage.tables_n is not None
        ):
            self._put_start_over(n, record)
        else:
            catalog.start(n, record, record.at_ms + self._clock.offset, tables, table)

    def _put_start_over(self, n: int, record: PutStart) -> None:
        """A put of a name that may have an object, or in replay."""
        if self._coverage.covers(n, record.key):
            self._space.displace_older(n, record.extents, record.size, self._catalog.lose_replica)
            return
        now = record.at_ms + self._clock.offset
        if self._disk.count:
            self._disk.end_promotion(record.tenant, record.key, record.discards, now + self._put_release_ms)
            if not record.upsert:  # the leader found nothing that can be read
                self._disk.drop(record.tenant, record.key, n, n)
        if record.discards:
            name = (record.tenant, record.key)
            self._catalog.discard_put(record.discards, name, n, now, record.quarantine_ms)
        self._catalog.start_over(n, record, now)

    def _put_end(self, n: int, record: PutEnd) -> None:
        if self._coverage.tables_n is not None and self._coverage.covers(n, record.key):
            return
        if self._disk.count:  # first: in replay the put itself may have lost its place
            self._disk.drop(record.tenant, record.key, record.put_seq, n)
        entry = self._catalog.unfinished.get(record.put_seq)
        if entry is None:
            self._coverage.missing(n, "put_end")
            return
        now = record.at_ms + self._clock.offset
        self._catalog.finish(entry, n, now, record.lease_ms, record.quarantine_ms, record.checksum)

    def _put_ends(self, n: int, record: PutEnds) -> None:
        catalog, coverage, lease_ms = self._catalog, self._coverage, record.lease_ms
        unfinished, now = catalog.unfinished, record.at_ms + self._clock.offset
        for put_seq in record.put_seqs:
            entry = unfinished.get(put_seq)
            if entry is None:
                coverage.missing(n, "put_ends")
            elif coverage.tables_n is None or not coverage.covers(n, entry.key):
                catalog.finish(entry, n, now, lease_ms, 0, None)

    def _put_revoke(self, n: int, record: PutRevoke) -> None:
        if self._coverage.covers(n, record.key):
            return
        if self._disk.promotions:
            until = record.at_ms + self._clock.offset + self._put_release_ms
            self._disk.end_promotion(record.tenant, record.key, record.put_seq, until)
        entry = self._catalog.unfinished.get(record.put_seq)
        if entry is None:
            self._coverage.missing(n, "put_revoke")
            return
        self._catalog.drop(entry, n, record.at_ms + self._clock.offset, record.quarantine_ms)
        self._log.remember_removed((record.tenant, record.key), n)

    # --- removes ---

    def _remove(self, n: int, record: Remove) -> None:
        tenant, key = record.tenant, record.key
        if self._coverage.tables_n is not None and self._coverage.covers(n, key):
            return
        tables = self._catalog.tables.get(tenant)
        entry = None if tables is None else tables[crc32(key) & 16383].get(key)
        if self._disk.count:
            self._disk.drop(tenant, key, n, n)
        if entry is not None:
            self._catalog.drop(entry, n, record.at_ms + self._clock.offset, record.quarantine_ms)
        if n > self._log.durable_n:
            self._log.remember_removed((tenant, key), n)

    def _remove_range(self, n: int, record: RemoveRange) -> None:
        catalog = self._catalog
        tables = catalog.tables.get(record.tenant)
        self._log.removed_range(n)
        now = record.at_ms + self._clock.offset
        stays = frozenset(record.stays)
        search = compile_pattern(record.pattern).search if record.pattern else None
        if self._disk.count:
            for version in list(self._disk.on_shelves(record.first_table, record.last_table + 1)):
                row = version.row
                if row.tenant != record.tenant or row.put_seq in stays or self._coverage.covers(n, row.key):
                    continue
                if search is None or search(row.key):
                    self._disk.drop(row.tenant, row.key, n, n)
        if tables is None:
            return
        first, tables_n = record.first_table, self._coverage.tables_n
        for number, table in enumerate(tables[first : record.last_table + 1], first):
            if not table or (tables_n is not None and n <= tables_n[number]):
                continue
            for key, entry in list(table.items()):
                # Only older objects: in replay a slice may hold an object that was put after this record. Unfinished
                # puts always stay, also one that in replay stands alone because its old version was void (H12).
                if entry.put_seq >= n or entry.draft is not None or entry.put_seq in stays:
                    continue
                if search is None or search(key):
                    catalog.drop(entry, n, now, record.quarantine_ms)
            if not table:
                catalog.forget_empty_table(record.tenant, number)

    def _replica_clear(self, n: int, record: ReplicaClear) -> None:
        entry = self._version(n, record, "replica_clear")
        if entry is None:
            return
        now = record.at_ms + self._clock.offset
        cleared = [replica for replica in entry.replicas if replica.id in record.replicas]
        if len(cleared) == len(entry.replicas):
            self._catalog.drop(entry, n, now, record.quarantine_ms)
            self._log.remember_removed((record.tenant, record.key), n)
        else:
            self._catalog.clear_replicas(entry, cleared, n, now, record.quarantine_ms)

    def _version(self, n: int, record: ReplicaClear, what: str) -> Object | None:
        if self._coverage.covers(n, record.key):
            return None
        entry = self._catalog.lookup(record.tenant, record.key)
        if entry is None or entry.put_seq != record.put_seq:
            self._coverage.missing(n, what)
            return None
        return entry
