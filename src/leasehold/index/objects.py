"""Objects under their names, in groups, for as long as their leases; and how one leaves."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from leasehold.base.limits import tenants_step
from leasehold.index.model import CopyJob, Group, Object, Segment
from leasehold.index.resting import RestingSpace
from leasehold.index.settings import IndexSettings
from leasehold.index.state import NO_OBJECTS, TABLES, Name, Tables


class Objects(RestingSpace):
    """Tables of objects, and what is beside them: unfinished puts, copies in the making, groups."""

    def __init__(self, settings: IndexSettings, choose: Callable[[int], int]) -> None:
        super().__init__(settings, choose)
        self.tables: dict[bytes, Tables] = {}
        self.pending: dict[Name, Object] = {}  # unfinished upserts beside a readable version
        self.unfinished: dict[int, Object] = {}  # by put number, the oldest first
        self.copies: dict[Name, CopyJob] = {}
        self.groups: dict[Name, Group] = {}
        self.object_count = 0
        self._tenants_ahead: list[bytes] = []  # see `forget_some_tenants`
        self.ending: list[Segment] = []  # ended, but not all of their objects have been looked at since: see `settle`

    def lookup(self, tenant: bytes, key: bytes) -> Object | None:
        """The object in the table under this name, readable or not. Changes nothing."""
        tables = self.tables.get(tenant)
        entry = None if tables is None else tables[crc32(key) & 16383].get(key)
        return entry if entry is None or not self.ending or self.settle(entry) else None

    def settle(self, entry: Object) -> bool:
        """Take away what an object had on segments that have ended; whether anything is left of it.

        Only while `ending` is not empty. A segment ends with its record, at once and for everybody; but it may have had
        a million objects, and they are gone through piece by piece. Whoever meets one of them before has to ask here.
        """
        for replica in entry.replicas:
            if replica.segment.unmounted:
                entry.changed_n = max(entry.changed_n, replica.segment.ended_n)
                self._lose_replica(entry, replica.segment, replica.offset, replica.segment.ended_n)
        return bool(entry.replicas)

    def _insert(self, entry: Object) -> None:
        tables = self.tables.get(entry.tenant)
        if tables is None:
            tables = self.tables[entry.tenant] = [NO_OBJECTS] * TABLES
        table = self._table_of(tables, entry.key)
        if entry.key not in table:
            self.object_count += 1
        table[entry.key] = entry
        if entry.group:
            # Its lease is at least its members': also after a snapshot, which has no leases of groups.
            group = self.groups.setdefault((entry.tenant, entry.group), Group(entry.lease_end, {}))
            group.lease_end = max(self._shared_end(group), entry.lease_end)
            group.members[entry.key] = None

    @staticmethod
    def _table_of(tables: Tables, key: bytes) -> dict[bytes, Object]:
        """The table of this key, to put something into it. A tenant with few objects does not cost all of them."""
        number = crc32(key) & 16383
        table = tables[number]
        if table is NO_OBJECTS:
            table = tables[number] = {}
        return table

    def forget_some_tenants(self) -> None:
        """The tables of tenants that have no object any more; a few in their turn, since looking into them is work."""
        if not self._tenants_ahead:
            self._tenants_ahead = list(self.tables)
        for tenant in self._tenants_ahead[-tenants_step:]:
            if (tables := self.tables.get(tenant)) is not None and not any(tables):
                del self.tables[tenant]
        del self._tenants_ahead[-tenants_step:]

    def _delete(self, entry: Object) -> None:
        """Take an object out of its table (not its space)."""
        del self.tables[entry.tenant][crc32(entry.key) & 16383][entry.key]
        self.object_count -= 1
        entry.visible = False
        if entry.group:
            self._leave_group(entry)

    def _leave_group(self, entry: Object) -> None:
        name = (entry.tenant, entry.group)
        group = self.groups.get(name)
        if group is not None:
            group.members.pop(entry.key, None)
            if not group.members:
                del self.groups[name]

    @property
    def readable_count(self) -> int:
        """Objects that a reader can be given: not those whose only version is still being written."""
        return self.object_count - (len(self.unfinished) - len(self.pending))

    # --- leases ---

    def lease_end_of(self, entry: Object) -> int:
        """When the object's lease has surely ended, in internal time: with grace, and with its group's."""
        end = entry.lease_end
        if end < self.older_than and end < self.floor:
            end = self.floor
        if entry.group:
            group = self.groups.get((entry.tenant, entry.group))
            if group is not None:
                shared = self._shared_end(group)
                if shared > end and not (self.expiry and self._was_over(entry, end, group)):
                    end = shared
        return end

    @staticmethod
    def _was_over(entry: Object, end: int, group: Group) -> bool:
        """Policy `expiry`: it was over when a companion, which a pin has kept, was read. Standbys have dropped it."""
        return max(end, entry.soft_pin_end) <= group.revived and not entry.hard_pin and entry.visible

    def _shared_end(self, group: Group) -> int:
        """A group's lease with grace, which also covers what has joined it since: the others are under it."""
        end = group.lease_end
        return self.floor if end < self.older_than and end < self.floor else end

    def end_of_life(self, entry: Object) -> int:
        """Policy `expiry`: when the object is over for readers."""
        return max(self.lease_end_of(entry), entry.soft_pin_end)

    def is_over(self, entry: Object, now: int) -> bool:
        """Policy `expiry`: past its end, and so absent."""
        return not entry.hard_pin and entry.visible and self.end_of_life(entry) <= now

    # --- leaving ---

    def _lose_replica(self, owner: Object | CopyJob, segment: Segment, start: int, n: int) -> None:
        owner.replicas = tuple(r for r in owner.replicas if r.segment is not segment or r.offset != start)
        if owner.replicas:
            return
        if isinstance(owner, CopyJob):
            self.copies.pop((owner.tenant, owner.key), None)
        elif self.last_n:  # else a snapshot is being loaded
            self._drop(owner, n, self.latest, 0)

    def _forget(self, entry: Object) -> None:
        """An object without any replica is no object: out of the table, or of the unfinished."""
        if entry.draft is not None:
            self.unfinished.pop(entry.put_seq, None)
        pending = self.pending
        name = (entry.tenant, entry.key) if pending else None
        if name is not None and pending.get(name) is entry:
            del pending[name]
        elif (tables := self.tables.get(entry.tenant)) is not None:  # none yet while a snapshot is loaded
            table, key = tables[crc32(entry.key) & 16383], entry.key
            if table.get(key) is entry:
                del table[key]
                self.object_count -= 1
                if entry.group:
                    self._leave_group(entry)
                if name is not None and (beside := pending.pop(name, None)) is not None:
                    self._insert(beside)  # an upsert whose old version is gone stands alone
        entry.visible = False

    def _drop(self, entry: Object, n: int, now: int, quarantine_ms: int) -> None:
        """An object leaves, with its copies in the making; its space rests for `limbo_ms`."""
        job = self.copies.get((entry.tenant, entry.key)) if self.copies else None
        if job is not None and job.put_seq == entry.put_seq:
            del self.copies[(entry.tenant, entry.key)]
            self._let_go(job.replicas, job.size, n, now, max(quarantine_ms, self.settings.put_release_ms))
        self._let_go(entry.replicas, entry.size, n, now, quarantine_ms)
        entry.replicas = ()
        self._forget(entry)
