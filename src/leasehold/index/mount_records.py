"""Applying records about segments and their owners. A segment is a mount: memory mounted again is a new segment."""

from __future__ import annotations

from msgspec.structs import replace

from leasehold.index.catalog import Catalog
from leasehold.index.clock import LeaderClock
from leasehold.index.coverage import Coverage
from leasehold.index.decisions import Handlers
from leasehold.index.log import Log
from leasehold.index.model import SegmentSpec
from leasehold.index.owners import Owners
from leasehold.index.records import (
    AdoptEnd,
    AdoptSegment,
    BindSegment,
    Cause,
    ClientGone,
    DrainSegment,
    MountSegment,
    UnmountSegment,
)
from leasehold.index.space.space import Space


class MountRecords:
    """One method for each kind of record."""

    __slots__ = ("_catalog", "_clock", "_coverage", "_log", "_owners", "_space")

    def __init__(
        self, clock: LeaderClock, log: Log, coverage: Coverage, space: Space, catalog: Catalog, owners: Owners
    ) -> None:
        self._clock = clock
        self._log = log
        self._coverage = coverage
        self._space = space
        self._catalog = catalog
        self._owners = owners

    def handlers(self) -> Handlers:
        return {
            MountSegment: self._mount,
            UnmountSegment: self._unmount,
            DrainSegment: self._drain,
            ClientGone: self._client_gone,
            AdoptSegment: self._adopt,
            AdoptEnd: self._adopt_end,
            BindSegment: self._bind,
        }

    def _mount(self, n: int, record: MountSegment) -> None:
        if self._coverage.covers_keyless(n):
            return
        now = record.at_ms + self._clock.offset
        for incarnation in record.supersedes:
            self._end_segment(n, incarnation, now, Cause.SUPERSEDED)
        spec = SegmentSpec(
            record.segment, record.name, record.base, record.size, record.endpoint, record.protocol, record.host_id
        )  # fmt: skip
        self._space.mount(spec, record.client, n, now)
        self._owners.seen(record.client, now)

    def _adopt(self, n: int, record: AdoptSegment) -> None:
        if self._coverage.covers_keyless(n):
            return
        spec = SegmentSpec(
            record.segment, record.name, record.base, record.size, record.endpoint, record.protocol
        )  # fmt: skip
        self._space.adopt_segment(spec, record.client, n, record.unit)
        self._owners.seen(record.client, record.at_ms + self._clock.offset)

    def _adopt_end(self, n: int, record: AdoptEnd) -> None:
        if self._coverage.covers_keyless(n):
            return
        for incarnation, quarantine_ms in record.quarantine:
            segment = self._space.segments.get(incarnation)
            if segment is not None:
                self._space.quarantine_unlisted(segment, n, record.at_ms + self._clock.offset, quarantine_ms)

    def _bind(self, n: int, record: BindSegment) -> None:
        segment = self._space.segments.get(record.incarnation)
        if segment is None or self._coverage.covers_keyless(n):
            return
        spec = replace(
            segment.spec, id=record.segment, name=record.name, protocol=record.protocol, host_id=record.host_id
        )
        self._space.bind(segment, spec, record.client)
        self._owners.seen(record.client, record.at_ms + self._clock.offset)

    def _unmount(self, n: int, record: UnmountSegment) -> None:
        if self._coverage.covers_keyless(n):
            return
        for incarnation in record.incarnations:
            self._end_segment(n, incarnation, record.at_ms + self._clock.offset, record.cause)

    def _client_gone(self, n: int, record: ClientGone) -> None:
        if self._coverage.covers_keyless(n):
            return
        for incarnation in record.incarnations:
            self._end_segment(n, incarnation, record.at_ms + self._clock.offset, Cause.CLIENT_GONE)
        self._owners.forget(record.client)

    def _drain(self, n: int, record: DrainSegment) -> None:
        segment = self._space.segments.get(record.incarnation)
        if segment is not None and not self._coverage.covers_keyless(n):
            self._space.drain(segment, max(1, record.at_ms + self._clock.offset + record.grace_ms))

    def _end_segment(self, n: int, incarnation: int, now: int, cause: Cause) -> None:
        segment = self._space.segments.get(incarnation)
        if segment is None:
            return
        written = self._catalog.written_on(segment)
        self._space.end_segment(segment, n, now, cause, written)
        self._owners.segment_ended(incarnation)
        self._log.removed_range(n)  # a miss from now on shows this record
        self._catalog.segment_ended(segment, written)
