"""Removing one key, or every key that matches. A removed key does not come back (P5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from zlib import crc32

from leasehold.base.codes import Code
from leasehold.base.limits import (
    absent_removes_bytes_max,
    key_bytes_max,
    range_record_stays_max,
    range_step_hits,
    range_step_objects,
    tenant_bytes_max,
)
from leasehold.index.catalog import Catalog
from leasehold.index.clock import LeaderClock
from leasehold.index.decisions import Decisions
from leasehold.index.disk import DiskTier
from leasehold.index.eviction import Eviction
from leasehold.index.leases import Leases
from leasehold.index.log import Log
from leasehold.index.model import Object
from leasehold.index.patterns import BadPattern, accept_pattern, compile_pattern, work_of
from leasehold.index.records import Cause, Remove, RemoveRange, ReplicaClear
from leasehold.index.replies import Acknowledged, Answered
from leasehold.index.tables import TABLES


class Removes:
    """Commands that remove objects or replicas."""

    __slots__ = ("_catalog", "_clock", "_decisions", "_disk", "_eviction", "_leases", "_log")

    def __init__(
        self,
        clock: LeaderClock,
        log: Log,
        decisions: Decisions,
        leases: Leases,
        catalog: Catalog,
        eviction: Eviction,
        disk: DiskTier,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._log = log
        self._decisions = decisions
        self._leases = leases
        self._catalog = catalog
        self._eviction = eviction

    def remove(self, now_ms: int, tenant: bytes, key: bytes, force: bool, source: bytes = b"") -> Acknowledged:
        """Remove a key. `source` names the caller, for the bound on absent keys.

        An absent key is removed too, by a record: a standby may still have an object that was evicted here
        (schedule 4). `TRY_AGAIN`: the caller has too many of those under way; wait for `after`, then repeat.
        """
        if not 0 < len(key) <= key_bytes_max or len(tenant) > tenant_bytes_max:
            self._log.refuse("bad key")
            return Acknowledged(Code.BAD_KEY if key else Code.NOT_FOUND, 0)  # no object has an empty key
        catalog = self._catalog
        now = now_ms + self._clock.offset
        tables = catalog.tables.get(tenant)
        entry = None if tables is None else tables[crc32(key) & 16383].get(key)
        if entry is not None and (self._leases.expiry or catalog.ending):
            entry = self._eviction.lookup_live(now, tenant, key)
        if entry is None and self._disk.count:
            entry = self._disk.read(tenant, key)
        if entry is None:
            return self._remove_absent(now_ms, tenant, key, source)
        left_ms = self._leases.end_of(entry) - now
        if left_ms > 0 and not force:
            return Acknowledged(Code.HAS_LEASE, entry.changed_n)
        if entry.draft is not None or ((catalog.copies or catalog.pending) and catalog.is_busy(entry)):
            return Acknowledged(Code.NOT_READY, catalog.busy_n(entry))
        return Acknowledged(Code.OK, self._decisions.emit(Remove(now_ms, tenant, key, left_ms if left_ms > 0 else 0)))

    def _remove_absent(self, now_ms: int, tenant: bytes, key: bytes, source: bytes) -> Acknowledged:
        log = self._log
        if log.absent_bytes.get(source, 0) + len(key) > absent_removes_bytes_max:
            return Acknowledged(Code.TRY_AGAIN, log.last_n)
        if log.refuses_records():
            return Acknowledged(Code.NO_SPACE, 0)
        # This leader may have evicted an object that the leader before still had, and leased. Another node that still
        # has it must not free its space within the grace (schedule 8).
        n = self._decisions.emit(Remove(now_ms, tenant, key, self._clock.grace_left(now_ms + self._clock.offset)))
        log.count_absent(n, source, len(key))
        return Acknowledged(Code.NOT_FOUND, n)

    def start_range(self, tenant: bytes, pattern: bytes, force: bool) -> RangeRemoval:
        """Remove every object of a tenant that matches (an empty pattern: all), in steps.

        `BadPattern` if the pattern is malformed, or would take too long.
        """
        if pattern:
            accept_pattern(pattern)
        return RangeRemoval(
            self._clock, self._decisions, self._leases, self._catalog, self._disk, tenant, pattern, force
        )

    def remove_all(self, now_ms: int, tenant: bytes, force: bool) -> Answered[int]:
        """Remove all objects of a tenant, in one call. The value is their number."""
        return self._remove_range(now_ms, tenant, b"", force)

    def remove_by_regex(self, now_ms: int, tenant: bytes, pattern: bytes, force: bool) -> Answered[int]:
        """Remove all objects that match, in one call. A malformed pattern is `BAD_PARAMS`."""
        if not pattern:
            self._log.refuse("bad pattern")
            return Answered(Code.BAD_PARAMS, 0, 0)
        return self._remove_range(now_ms, tenant, pattern, force)

    def _remove_range(self, now_ms: int, tenant: bytes, pattern: bytes, force: bool) -> Answered[int]:
        try:
            removal = self.start_range(tenant, pattern, force)
        except BadPattern:
            self._log.refuse("bad pattern")
            return Answered(Code.BAD_PARAMS, 0, 0)
        if self._log.refuses_records():
            return Answered(Code.NO_SPACE, 0, 0)
        while not removal.step(now_ms):
            pass
        return Answered(Code.OK, removal.count, removal.after)

    def clear_replicas(
        self, now_ms: int, client: bytes, tenant: bytes, keys: Sequence[bytes], segment_name: str
    ) -> Answered[list[bytes]]:
        """Clear this client's unleased objects, or their replicas on one segment. The value is the cleared keys."""
        now = now_ms + self._clock.offset
        cleared: list[bytes] = []
        for key in keys:
            # An expired object is not found: a standby may have dropped it, so there must be no record of it.
            entry = self._eviction.lookup_live(now, tenant, key)
            if entry is None or entry.client != client or not entry.visible or self._catalog.is_busy(entry):
                continue
            if self._leases.end_of(entry) > now:
                continue
            if not segment_name and self._disk.count and self._disk.find(tenant, key) is not None:
                self._decisions.emit(Remove(now_ms, tenant, key, 0))  # the copies on disk, too
                cleared.append(key)
                continue
            ids = tuple(r.id for r in entry.replicas if not segment_name or r.segment.spec.name == segment_name)
            if ids:
                self._decisions.emit(ReplicaClear(now_ms, tenant, key, entry.put_seq, ids, 0))
                cleared.append(key)
        return Answered(Code.OK, cleared, self._log.last_n)


class RangeRemoval:
    """`remove_all` or `remove_by_regex` under way: one span of tables, and one record, for each step.

    The record means "every older object that matches, except these": on a standby it also removes objects that the
    primary has evicted. Objects that stay are named by put number, so a record is small however long the keys are
    (H12).
    """

    __slots__ = (
        "_catalog", "_clock", "_decisions", "_disk", "_force", "_leases", "_pattern", "_tenant", "after",
        "count", "next_table",
    )  # fmt: skip

    def __init__(
        self,
        clock: LeaderClock,
        decisions: Decisions,
        leases: Leases,
        catalog: Catalog,
        disk: DiskTier,
        tenant: bytes,
        pattern: bytes,
        force: bool,
    ) -> None:
        self._clock = clock
        self._decisions = decisions
        self._leases = leases
        self._catalog = catalog
        self._disk = disk
        self._tenant = tenant
        self._pattern = pattern
        self._force = force
        self.next_table = 0
        self.count = 0
        self.after = 0

    @property
    def of_all_keys(self) -> bool:
        """Whether it removes all objects of a tenant."""
        return not self._pattern

    def step(self, now_ms: int) -> bool:
        """Remove from the next span of tables; returns True when all tables are done.

        `after` is then the record to wait for, and `count` the number of removed objects.
        """
        catalog, leases = self._catalog, self._leases
        now = now_ms + self._clock.offset
        tables = catalog.tables.get(self._tenant)
        pattern = compile_pattern(self._pattern) if self._pattern else None
        search = pattern.search if pattern is not None else None
        first = self.next_table
        stays: list[int] = []
        looked_at = going = 0
        quarantine_ms = self._clock.grace_left(now)  # for objects that only other nodes have: see `_remove_absent`
        for number, table in enumerate(tables[first:], first) if tables is not None else ():
            if not table:
                continue
            looked_at += len(table) if pattern is None else work_of(pattern, table)
            for key, entry in list(table.items()) if catalog.ending else table.items():
                if (search is not None and not search(key)) or (catalog.ending and not catalog.settle(entry)):
                    continue
                left_ms = self._quarantine_ms(entry, now)
                if left_ms < 0:
                    stays.append(entry.put_seq)
                else:
                    going += 1
                    self.count += not (leases.expiry and leases.has_expired(entry, now))
                    quarantine_ms = max(quarantine_ms, left_ms)
            if looked_at >= range_step_objects or going >= range_step_hits or len(stays) >= range_record_stays_max:
                self.next_table = number + 1
                break
        else:
            self.next_table = TABLES
        if self._disk.count:
            stays = list(dict.fromkeys(stays + self._staying_on_disk(now, first, search)))
        cause = Cause.REMOVE_BY_REGEX if self._pattern else Cause.REMOVE_ALL
        span = (first, self.next_table - 1)
        self.after = self._decisions.emit(
            RemoveRange(now_ms, self._tenant, self._pattern, *span, tuple(stays), quarantine_ms, cause)
        )
        return self.next_table == TABLES

    def _staying_on_disk(self, now: int, first: int, search: Callable[[bytes], object] | None) -> list[int]:
        """The versions that are only on disk and stay, by put number. The others are counted."""
        stays: list[int] = []
        for version in self._disk.on_shelves(first, self.next_table):
            row = version.row
            if row.tenant != self._tenant or (search is not None and not search(row.key)):
                continue
            entry = self._catalog.lookup(row.tenant, row.key)
            leased = self._leases.end_of(row) > now and not self._force
            if leased or (entry is not None and not entry.visible):
                stays.append(row.put_seq)  # the object of the same version stays with it
            elif entry is not None:
                continue  # of the same version, and decided with it
            elif self._disk.is_readable(version):
                self.count += 1
        return stays

    def _quarantine_ms(self, entry: Object, now: int) -> int:
        """How long the object's space must stay in quarantine. -1: the object stays (leased or unfinished)."""
        left_ms = self._leases.end_of(entry) - now
        if entry.draft is not None or self._catalog.is_busy(entry) or (left_ms > 0 and not self._force):
            return -1
        return max(0, left_ms)
