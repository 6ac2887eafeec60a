"""Applying records about copies and moves."""

from __future__ import annotations

from leasehold.index.catalog import Catalog
from leasehold.index.clock import LeaderClock
from leasehold.index.coverage import Coverage
from leasehold.index.decisions import Handlers
from leasehold.index.model import CopyJob
from leasehold.index.records import CopyEnd, CopyRevoke, CopyStart
from leasehold.index.space.space import Space


class CopyRecords:
    """One method for each kind of record."""

    __slots__ = ("_catalog", "_clock", "_coverage", "_space")

    def __init__(self, clock: LeaderClock, coverage: Coverage, space: Space, catalog: Catalog) -> None:
        self._clock = clock
        self._coverage = coverage
        self._space = space
        self._catalog = catalog

    def handlers(self) -> Handlers:
        return {CopyStart: self._copy_start, CopyEnd: self._copy_end, CopyRevoke: self._copy_revoke}

    def _copy_start(self, n: int, record: CopyStart) -> None:
        entry = self._catalog.lookup(record.tenant, record.key)
        if self._coverage.covers(n, record.key):
            size = record.size or (entry.size if entry is not None else 1)
            self._space.displace_older(n, record.extents, size, self._catalog.lose_replica)
            return
        if entry is None or entry.put_seq != record.put_seq:
            self._coverage.missing(n, "copy_start")
            return
        self._catalog.start_copy(n, record, entry, record.at_ms + self._clock.offset)

    def _copy_end(self, n: int, record: CopyEnd) -> None:
        job = self._take_job(n, record, "copy_end")
        entry = self._catalog.lookup(record.tenant, record.key)
        if job is None or entry is None or entry.put_seq != job.put_seq:
            return
        self._catalog.finish_copy(job, entry, n, record, record.at_ms + self._clock.offset)
        if not entry.replica_count:
            self._coverage.add_placeless(entry)  # a newer owner in a later slice has the new place already

    def _copy_revoke(self, n: int, record: CopyRevoke) -> None:
        job = self._take_job(n, record, "copy_revoke")
        if job is not None:
            self._catalog.revoke_copy(job, n, record.at_ms + self._clock.offset, record.quarantine_ms)

    def _take_job(self, n: int, record: CopyEnd | CopyRevoke, what: str) -> CopyJob | None:
        if self._coverage.covers(n, record.key):
            return None
        job = self._catalog.take_copy(record.tenant, record.key, record.started)
        if job is None:
            self._coverage.missing(n, what)
        return job
