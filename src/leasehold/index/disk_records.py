"""Applying records about versions on disk and their owners."""

from __future__ import annotations

from leasehold.index.catalog import Catalog
from leasehold.index.clock import LeaderClock
from leasehold.index.coverage import Coverage
from leasehold.index.decisions import Handlers
from leasehold.index.disk import DiskTier
from leasehold.index.log import Log
from leasehold.index.owners import Owners
from leasehold.index.records import (
    DiskEvict,
    DiskGone,
    DiskMount,
    DiskStored,
    DiskUnmount,
    PromoteEnd,
    PromoteStart,
    PutStart,
)
from leasehold.index.space.space import Space


class DiskRecords:
    """One method for each kind of record."""

    __slots__ = ("_catalog", "_clock", "_coverage", "_disk", "_log", "_owners", "_space")

    def __init__(
        self,
        clock: LeaderClock,
        log: Log,
        coverage: Coverage,
        space: Space,
        catalog: Catalog,
        owners: Owners,
        disk: DiskTier,
    ) -> None:
        self._clock = clock
        self._log = log
        self._coverage = coverage
        self._space = space
        self._catalog = catalog
        self._owners = owners
        self._disk = disk

    def handlers(self) -> Handlers:
        return {
            DiskMount: self._mount,
            DiskGone: self._gone,
            DiskUnmount: self._unmount,
            DiskStored: self._stored,
            DiskEvict: self._evict,
            PromoteStart: self._promote_start,
            PromoteEnd: self._promote_end,
        }

    # --- owners ---

    def _mount(self, n: int, record: DiskMount) -> None:
        if not self._coverage.covers_keyless(n):
            self._disk.connect(record.client, n)
            self._owners.seen(record.client, record.at_ms + self._clock.offset)
            self._log.removed_range(n)  # an absent version may be readable again

    def _gone(self, n: int, record: DiskGone) -> None:
        if not self._coverage.covers_keyless(n):
            self._disk.disconnect(record.client, n)
            self._log.removed_range(n)

    def _unmount(self, n: int, record: DiskUnmount) -> None:
        if not self._coverage.covers_keyless(n):
            self._disk.forget_owner(record.client, n)
            self._log.removed_range(n)

    # --- versions ---

    def _stored(self, n: int, record: DiskStored) -> None:
        now = record.at_ms + self._clock.offset
        for place, item in enumerate(record.items):
            if not self._coverage.covers(n, item.key):
                self._disk.store(n, place, now, record.client, record.endpoint, item)

    def _evict(self, n: int, record: DiskEvict) -> None:
        if self._coverage.covers(n, record.key):
            return
        version = self._disk.find(record.tenant, record.key)
        if version is not None and version.row.put_seq == record.put_seq:
            self._disk.evict(version, record.client, n)
            self._log.remember_removed((record.tenant, record.key), n)

    # --- promotions ---

    def _promote_start(self, n: int, record: PromoteStart) -> None:
        if self._coverage.covers(n, record.key):
            self._space.displace_older(n, record.extents, record.size, self._catalog.lose_replica)
            return
        now = record.at_ms + self._clock.offset
        start = PutStart(record.at_ms, record.client, record.tenant, record.key, record.size, record.extents)
        self._catalog.start_over(n, start, now)
        version = self._disk.find(record.tenant, record.key)
        if version is not None and version.row.put_seq == record.source:
            self._disk.start_promotion(version, n, record.client)

    def _promote_end(self, n: int, record: PromoteEnd) -> None:
        if self._coverage.covers(n, record.key):
            return
        entry = self._catalog.unfinished.get(record.put_seq)
        version = self._disk.find(record.tenant, record.key)
        if version is not None and version.row.put_seq != record.source:
            version = None
        if entry is None:
            self._coverage.missing(n, "promote_end")
        else:
            self._catalog.finish_promotion(
                entry, n, record.at_ms + self._clock.offset, record.lease_ms, version.row if version else None
            )
        if version is not None:
            self._disk.promoted(version, record.put_seq, n)
