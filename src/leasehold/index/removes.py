"""Removing: one key, or everything that matches. A removed key does not come back (P5)."""

from __future__ import annotations

from collections.abc import Sequence
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
from leasehold.index.model import Object
from leasehold.index.patterns import BadPattern, accept_pattern, compile_pattern, work_of
from leasehold.index.puts import Puts
from leasehold.index.records import Cause, Remove, RemoveRange, ReplicaClear
from leasehold.index.state import TABLES


class Removes(Puts):
    """Deciding about removals."""

    def remove(self, now_ms: int, tenant: bytes, key: bytes, force: bool, source: bytes = b"") -> tuple[Code, int]:
        """Remove a key. `source` names the caller, for the bound on absent keys.

        A key that is not here is removed too, by a record: a standby may still have what was evicted here (schedule 4).
        `TRY_AGAIN`: the caller has too many of those under way; wait for `after`, then repeat.
        """
        if not 0 < len(key) <= key_bytes_max or len(tenant) > tenant_bytes_max:
            self.refuse("bad key")
            return (Code.BAD_KEY if key else Code.NOT_FOUND), 0  # there is never an object without a name
        now = now_ms + self.offset
        tables = self.tables.get(tenant)
        entry = None if tables is None else tables[crc32(key) & 16383].get(key)
        if entry is not None and (self.expiry or self.ending):
            entry = self._still_there(now, tenant, key)
        if entry is None:
            return self._remove_absent(now_ms, tenant, key, source)
        left_ms = self.lease_end_of(entry) - now
        if left_ms > 0 and not force:
            return Code.HAS_LEASE, entry.changed_n
        if entry.draft is not None or ((self.copies or self.pending) and self._busy(entry)):
            return Code.NOT_READY, self._after_busy(entry)
        return Code.OK, self._emit(Remove(now_ms, tenant, key, left_ms if left_ms > 0 else 0))

    def _remove_absent(self, now_ms: int, tenant: bytes, key: bytes, source: bytes) -> tuple[Code, int]:
        if self.absent_bytes.get(source, 0) + len(key) > absent_removes_bytes_max:
            return Code.TRY_AGAIN, self.last_n
        if self.refuses_records():
            return Code.NO_SPACE, 0
        n = self._emit(Remove(now_ms, tenant, key, self._grace_left_ms(now_ms)))
        self._count_absent(n, source, len(key))
        return Code.NOT_FOUND, n

    def _grace_left_ms(self, now_ms: int) -> int:
        """How long space rests that this leader knows nothing of.

        What it has evicted, the leader before it may still have had, and have leased: within the grace such a ghost of
        another node goes by name only (schedule 8).
        """
        return max(0, self.floor - now_ms - self.offset)

    def start_removal(self, tenant: bytes, pattern: bytes, force: bool) -> RangeRemoval:
        """Remove everything of a tenant that matches (an empty pattern: all), in steps.

        `BadPattern` if it cannot be read, or would take too long.
        """
        if pattern:
            accept_pattern(pattern)
        return RangeRemoval(self, tenant, pattern, force)

    def remove_all(self, now_ms: int, tenant: bytes, force: bool) -> tuple[Code, int, int]:
        """(code, how many, after), in one go."""
        return self._remove_range(now_ms, tenant, b"", force)

    def remove_by_regex(self, now_ms: int, tenant: bytes, pattern: bytes, force: bool) -> tuple[Code, int, int]:
        """(code, how many, after), in one go. A pattern that cannot be read is `BAD_PARAMS`."""
        if not pattern:
            self.refuse("bad pattern")
            return Code.BAD_PARAMS, 0, 0
        return self._remove_range(now_ms, tenant, pattern, force)

    def _remove_range(self, now_ms: int, tenant: bytes, pattern: bytes, force: bool) -> tuple[Code, int, int]:
        try:
            removal = self.start_removal(tenant, pattern, force)
        except BadPattern:
            self.refuse("bad pattern")
            return Code.BAD_PARAMS, 0, 0
        if self.refuses_records():
            return Code.NO_SPACE, 0, 0
        while not removal.step(now_ms):
            pass
        return Code.OK, removal.count, removal.after

    def replica_clear(
        self, now_ms: int, client: bytes, tenant: bytes, keys: Sequence[bytes], segment_name: str
    ) -> tuple[Code, list[bytes], int]:
        """Clear this client's unleased objects, or their replicas on one segment: which keys were."""
        now = now_ms + self.offset
        cleared: list[bytes] = []
        for key in keys:
            entry = self._still_there(now, tenant, key)  # what is over a standby may have dropped: no record of it
            if entry is None or entry.client != client or not entry.visible or self._busy(entry):
                continue
            if self.lease_end_of(entry) > now:
                continue
            gone = tuple(r.id for r in entry.replicas if not segment_name or r.segment.spec.name == segment_name)
            if gone:
                self._emit(ReplicaClear(now_ms, tenant, key, entry.put_seq, gone, 0))
                cleared.append(key)
        return Code.OK, cleared, self.last_n


class RangeRemoval:
    """`remove_all` or `remove_by_regex` on its way: a span of tables at each step, each one record.

    The record says "everything older that matches, except these": on a standby it also takes what the primary evicted.
    What stays is named by put number, so a record stays small however long the keys are (H12).
    """

    __slots__ = ("_force", "_index", "_pattern", "_tenant", "after", "count", "next_table")

    def __init__(self, index: Removes, tenant: bytes, pattern: bytes, force: bool) -> None:
        self._index = index
        self._tenant = tenant
        self._pattern = pattern
        self._force = force
        self.next_table = 0
        self.count = 0
        self.after = 0

    def step(self, now_ms: int) -> bool:
        """Do the next span of tables; True when all is done. `after` is then the number to wait for."""
        index = self._index
        now = now_ms + index.offset
        tables = index.tables.get(self._tenant)
        pattern = compile_pattern(self._pattern) if self._pattern else None
        search = pattern.search if pattern is not None else None
        first = self.next_table
        stays: list[int] = []
        looked_at = going = 0
        quarantine_ms = index._grace_left_ms(now_ms)
        for number, table in enumerate(tables[first:], first) if tables is not None else ():
            if not table:
                continue
            looked_at += len(table) if pattern is None else work_of(pattern, table)
            for key, entry in list(table.items()) if index.ending else table.items():
                if (search is not None and not search(key)) or (index.ending and not index.settle(entry)):
                    continue
                left_ms = self._may_go(entry, now)
                if left_ms < 0:
                    stays.append(entry.put_seq)
                else:
                    going += 1
                    self.count += not (index.expiry and index.is_over(entry, now))
                    quarantine_ms = max(quarantine_ms, left_ms)
            if looked_at >= range_step_objects or going >= range_step_hits or len(stays) >= range_record_stays_max:
                self.next_table = number + 1
                break
        else:
            self.next_table = TABLES
        cause = Cause.REMOVE_BY_REGEX if self._pattern else Cause.REMOVE_ALL
        span = (first, self.next_table - 1)
        self.after = index._emit(
            RemoveRange(now_ms, self._tenant, self._pattern, *span, tuple(stays), quarantine_ms, cause)
        )
        return self.next_table == TABLES

    def _may_go(self, entry: Object, now: int) -> int:
        """-1: it stays (leased, unfinished). Else how long its space must rest."""
        left_ms = self._index.lease_end_of(entry) - now
        if entry.draft is not None or self._index._busy(entry) or (left_ms > 0 and not self._force):
            return -1
        return max(0, left_ms)
