"""Objects by tenant and key, and what is being written beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zlib import crc32

from leasehold.base.codes import SoftPin
from leasehold.base.invariants import ensure
from leasehold.base.limits import segment_end_step_objects, tenants_step
from leasehold.index.changes import Changes
from leasehold.index.clock import LeaderClock
from leasehold.index.disk import DiskTier
from leasehold.index.leases import Leases
from leasehold.index.log import Log
from leasehold.index.model import COMPLETE, PROCESSING, CopyJob, Draft, Extra, Object, Replica, Segment
from leasehold.index.quotas import Quotas
from leasehold.index.records import CopyEnd, CopyStart, PutStart
from leasehold.index.shared import Shared
from leasehold.index.space.space import Space
from leasehold.index.tables import NO_OBJECTS, TABLES, Name, Tables
from leasehold.index.wheel import Wheel


class Catalog:
    """The objects of all tenants; unfinished puts, upserts and copies; and how each of them starts, ends and leaves.

    A segment is unmounted by one record, immediately and for every client. But it may have had a million objects, and
    these are settled step by step (`settle_some`). Until then (`ending` is not empty) every access to an object must
    `settle` it first.

    `tables` and `ending` keep their identity: the hot paths hold them as local names.

    Invariants: an object stands in the table of its key's hash; it has a replica, and each replica owns its place;
    it is visible when finished, with complete replicas; unfinished puts are in `unfinished`; an upsert beside a
    readable version is in `pending` and unfinished; a copy has its object; `object_count` counts the tables' objects.
    """

    __slots__ = (
        "_changes", "_clock", "_disk", "_leases", "_log", "_put_release_ms", "_quotas", "_shared", "_space",
        "_tenants_ahead",
        "copies", "ending", "object_count", "pending", "settle_step_objects", "tables", "unfinished", "wheel",
    )  # fmt: skip

    def __init__(
        self,
        clock: LeaderClock,
        log: Log,
        space: Space,
        leases: Leases,
        put_release_ms: int,
        changes: Changes | None = None,
        quotas: Quotas | None = None,
        disk: DiskTier | None = None,
        tables: dict[bytes, Tables] | None = None,
    ) -> None:
        """`changes` receives every object that becomes readable, or is no longer; None: no events are published.

        `disk` has the versions that stay readable when they leave memory, and `tables` are shared with it.
        `quotas` is charged for every replica; None: quotas are not enforced.
        """
        self._quotas = quotas
        self._changes = changes
        self._clock = clock
        self._log = log
        self._space = space
        self._leases = leases
        self._put_release_ms = put_release_ms
        self._shared = Shared()
        self.tables: dict[bytes, Tables] = {} if tables is None else tables
        self._disk = DiskTier(changes, self.tables) if disk is None else disk
        self.pending: dict[Name, Object] = {}  # unfinished upserts beside a readable version
        self.unfinished: dict[int, Object] = {}  # by put number, the oldest first
        self.copies: dict[Name, CopyJob] = {}
        self.object_count = 0
        self.wheel = Wheel()  # finished objects without hard pin, by lease end
        self.ending: list[Segment] = []  # unmounted; some of their objects are not settled yet
        self.settle_step_objects = segment_end_step_objects
        self._tenants_ahead: list[bytes] = []  # see `forget_some_tenants`

    # --- looking up ---

    def lookup(self, tenant: bytes, key: bytes) -> Object | None:
        """The object in the table under this name, readable or not."""
        tables = self.tables.get(tenant)
        entry = None if tables is None else tables[crc32(key) & 16383].get(key)
        return entry if entry is None or not self.ending or self.settle(entry) else None

    def being_written(self, tenant: bytes, key: bytes) -> Object | None:
        """The unfinished upsert of this name if there is one, else the object."""
        if self.pending:
            beside = self.pending.get((tenant, key))
            if beside is not None:
                return beside
        return self.lookup(tenant, key)

    def objects(self) -> Iterator[Object]:
        """Every object in the tables."""
        for tables in self.tables.values():
            for table in filter(None, tables):
                yield from table.values()

    def is_busy(self, entry: Object) -> bool:
        """Whether a copy or an upsert of this object is being written."""
        if not self.copies and not self.pending:
            return False
        name = (entry.tenant, entry.key)
        return name in self.copies or name in self.pending

    def busy_n(self, entry: Object) -> int:
        """The record that "not now" shows: of the object, or of the copy or upsert of it that is being written."""
        name = (entry.tenant, entry.key)
        beside, job = self.pending.get(name), self.copies.get(name)
        return max(entry.changed_n, beside.changed_n if beside is not None else 0, job.started_n if job else 0)

    @property
    def readable_count(self) -> int:
        """Objects that have a finished version."""
        return self.object_count - (len(self.unfinished) - len(self.pending))

    # --- puts ---

    def start(self, n: int, record: PutStart, now: int, tables: Tables, table: dict[bytes, Object]) -> None:
        """Record `n` starts a put of a name without object, group or discarded put: nearly every put."""
        key, extents = record.key, record.extents
        entry = self._started(n, record, now)
        if len(extents) == 1 and (segment := self._space.take_one(entry, extents[0])) is not None:
            entry.segment, entry.offset = segment, extents[0].offset
        else:
            entry.set_replicas(self._space.take(n, entry, extents, self.lose_replica))
        if entry.segment is not None or entry.replica_count:
            if self._quotas is not None:
                self._quotas.charge(entry.tenant, entry.size * entry.replica_count)
            if not table:
                table = _table_of(tables, key)
            self.unfinished[n] = table[key] = entry
            self.object_count += 1

    def start_over(self, n: int, record: PutStart, now: int) -> None:
        """Record `n` starts a put of a name that may have an object."""
        tenant, key = record.tenant, record.key
        old = self.lookup(tenant, key)
        entry = self._started(n, record, now)
        beside = record.upsert and not record.in_place and old is not None and old.visible
        if old is not None:
            if record.soft_pin == SoftPin.PRESERVE and record.upsert:
                entry.set_soft_pin_end(old.soft_pin_end)
            if not beside:
                # In place no lease was live. Otherwise the primary had evicted the old version; but within the grace
                # a client may read it that was sent there by the leader before (schedule 8).
                self.drop(old, n, now, 0 if record.in_place else self._clock.grace_left(now))
        entry.set_replicas(self._space.take(n, entry, record.extents, self.lose_replica))
        if not entry.replica_count:
            return
        if self._quotas is not None:
            self._quotas.charge(tenant, entry.size * entry.replica_count)
        self.unfinished[n] = entry
        if beside:
            self.pending[(tenant, key)] = entry
        else:
            self.insert(entry)

    def _started(self, n: int, record: PutStart, now: int) -> Object:
        """The object that record `n` starts. Its place follows."""
        tenant, client, size = self._shared.values(record.tenant, record.client, record.size)
        draft = Draft(now, record.soft_pin, record.soft_pin_ttl_ms, record.request, record.in_place)
        return Object(
            record.key, tenant, n, n, size, client, now, False, False, None, 0,
            Extra(draft, record.group, 0, record.hard_pin, None, record.data_type),
        )  # fmt: skip

    def finish(self, entry: Object, n: int, now: int, lease_ms: int, quarantine_ms: int, checksum: int | None) -> None:
        """Record `n` ends a put: the object is readable. `quarantine_ms`: for the version that it replaces."""
        extra = entry.extra
        draft = None if extra is None else extra.draft
        if extra is None or draft is None:
            return
        if self.pending and self.pending.get(name := (entry.tenant, entry.key)) is entry:
            del self.pending[name]
            old = self.lookup(*name)
            if old is not None:
                if draft.soft_pin == SoftPin.PRESERVE:
                    extra.soft_pin_end = old.soft_pin_end
                self.drop(old, n, now, quarantine_ms)
            self.insert(entry)
        if draft.soft_pin:
            extra.soft_pin_end = now + draft.soft_pin_ttl_ms if draft.soft_pin == SoftPin.ENABLE else 0
        for replica in extra.replicas:
            replica.status = COMPLETE
        extra.checksum = checksum
        extra.draft = None
        if extra.is_empty:
            entry.extra = None
        entry.visible = True
        entry.changed_n = n
        entry.lease_end = now + lease_ms
        if self._changes is not None:
            self._changes.stored(entry, n)
        del self.unfinished[entry.put_seq]
        if not extra.hard_pin:
            self.wheel.add(entry, entry.lease_end)

    def finish_promotion(self, entry: Object, n: int, now: int, lease_ms: int, row: Object | None) -> None:
        """Record `n` ends a promotion: the version of `row` is in memory again."""
        if row is not None:
            entry.client = row.client
            if entry.extra is not None:  # it is unfinished, so there is one
                entry.extra.data_type = row.data_type
        self.finish(entry, n, now, lease_ms, 0, None if row is None else row.checksum)
        if row is not None:
            entry.lease_end = max(entry.lease_end, row.lease_end)

    # --- copies ---

    def start_copy(self, n: int, record: CopyStart, entry: Object, now: int) -> None:
        """Record `n` starts a copy or move of an object."""
        job = CopyJob(
            record.tenant, record.key, record.put_seq, entry.size, record.client, n, now, record.source, record.moves,
            (),
        )  # fmt: skip
        job.replicas = self._space.take(n, job, record.extents, self.lose_replica)
        if self._quotas is not None:
            self._quotas.charge(job.tenant, job.size * len(job.replicas))
        self.copies[(record.tenant, record.key)] = job

    def take_copy(self, tenant: bytes, key: bytes, started_n: int) -> CopyJob | None:
        """Take out the copy that record `started_n` started. Returns None if it is not there."""
        job = self.copies.get((tenant, key))
        if job is None or job.started_n != started_n:
            return None
        del self.copies[(tenant, key)]
        return job

    def finish_copy(self, job: CopyJob, entry: Object, n: int, record: CopyEnd, now: int) -> None:
        """Record `n` ends a copy: its replicas are the object's. A moved replica leaves."""
        for replica in job.replicas:
            replica.status = COMPLETE
            self._space.pass_on(replica, entry)
        before = entry.replicas
        moved = [replica for replica in before if replica.id == job.moves]
        entry.set_replicas(tuple(replica for replica in before if replica.id != job.moves) + job.replicas)
        entry.changed_n = n
        self._release(entry, moved, n, now, record.quarantine_ms)

    def revoke_copy(self, job: CopyJob, n: int, now: int, quarantine_ms: int) -> None:
        """Record `n` gives back a copy that was taken out."""
        self._release(job, job.replicas, n, now, quarantine_ms)

    # --- leaving ---

    def drop(self, entry: Object, n: int, now: int, quarantine_ms: int) -> None:
        """An object leaves with record `n`, and its unfinished copies; its space is quarantined for `quarantine_ms`."""
        job = self.copies.get((entry.tenant, entry.key)) if self.copies else None
        if job is not None and job.put_seq == entry.put_seq:
            del self.copies[(entry.tenant, entry.key)]
            self._release(job, job.replicas, n, now, max(quarantine_ms, self._put_release_ms))
        if self._disk.count:
            self._disk.inherit(entry)
        if self._changes is not None and entry.visible and not self._disk.keeps(entry):
            self._changes.removed(entry, n)
        if (segment := entry.segment) is not None:
            if self._quotas is not None:
                self._quotas.charge(entry.tenant, -entry.size)
            self._space.let_go(segment, entry.offset, entry.size, n, now, quarantine_ms)
            entry.segment = None
        else:
            self._release(entry, entry.replicas, n, now, quarantine_ms)
            entry.set_replicas(())
        self._forget(entry)

    def discard_put(self, put_seq: int, name: Name, n: int, now: int, quarantine_ms: int) -> None:
        """Drop the unfinished put of this number and name, if it is still there."""
        entry = self.unfinished.get(put_seq)
        if entry is not None and (entry.tenant, entry.key) == name:
            self.drop(entry, n, now, quarantine_ms)

    def clear_replicas(self, entry: Object, cleared: list[Replica], n: int, now: int, quarantine_ms: int) -> None:
        """Some replicas, but not all, leave with record `n`."""
        ids = [replica.id for replica in cleared]
        entry.set_replicas(tuple(replica for replica in entry.replicas if replica.id not in ids))
        entry.changed_n = n
        self._release(entry, cleared, n, now, quarantine_ms)

    def _release(
        self, owner: Object | CopyJob, replicas: Sequence[Replica], n: int, now: int, quarantine_ms: int
    ) -> None:
        """Extents leave their owner with record `n`."""
        if self._quotas is not None:
            self._quotas.charge(owner.tenant, -owner.size * len(replicas))
        for replica in replicas:
            self._space.let_go(replica.segment, replica.offset, owner.size, n, now, quarantine_ms)

    def evict(self, entry: Object) -> None:
        """An object leaves its table without a record. Its space must be free already."""
        if self._disk.count:
            self._disk.inherit(entry)  # on a standby: the leader may have leased the copy on disk meanwhile
        if self._changes is not None and entry.visible and not self._disk.keeps(entry):
            self._changes.removed(entry, entry.changed_n)  # there is no record of the eviction itself
        if self._quotas is not None:
            self._quotas.charge(entry.tenant, -entry.size * entry.replica_count)
        group = entry.group
        entry.segment = entry.extra = None
        del self.tables[entry.tenant][crc32(entry.key) & 16383][entry.key]
        self.object_count -= 1
        entry.visible = False
        if group:
            self._leases.leave(entry.tenant, group, entry.key)

    def lose_replica(self, owner: Object | CopyJob, segment: Segment, start: int, n: int) -> None:
        """An owner has lost this place: a newer claim has it, or its segment was unmounted."""
        before = owner.replicas
        left = tuple(r for r in before if r.segment is not segment or r.offset != start)
        if self._quotas is not None:
            self._quotas.charge(owner.tenant, -owner.size * (len(before) - len(left)))
        if isinstance(owner, CopyJob):
            owner.replicas = left
        else:
            owner.set_replicas(left)
        if left:
            return
        if isinstance(owner, CopyJob):
            self.copies.pop((owner.tenant, owner.key), None)
        elif self._log.last_n:  # else a snapshot is being loaded
            self.drop(owner, n, self._clock.latest, 0)

    def _forget(self, entry: Object) -> None:
        """An object without replicas leaves its table, or the unfinished upserts."""
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
                if group := entry.group:
                    self._leases.leave(entry.tenant, group, key)
                if name is not None and (beside := pending.pop(name, None)) is not None:
                    self.insert(beside)  # an upsert without an old version is an ordinary put
        entry.visible = False

    # --- tables ---

    def insert(self, entry: Object) -> None:
        """Put an object into its table."""
        tables = self.tables.get(entry.tenant)
        if tables is None:
            tables = self.tables[entry.tenant] = [NO_OBJECTS] * TABLES
        table = _table_of(tables, entry.key)
        if entry.key not in table:
            self.object_count += 1
        table[entry.key] = entry
        if entry.group:
            self._leases.join(entry)

    def forget_empty_table(self, tenant: bytes, number: int) -> None:
        """Free the memory of a table that has become empty: a dict does not shrink automatically."""
        tables = self.tables[tenant]
        if not tables[number]:
            tables[number] = NO_OBJECTS

    def forget_some_tenants(self) -> None:
        """Forget the tables of tenants without objects: a few in each call, since a look at all tables is work."""
        if not self._tenants_ahead:
            self._tenants_ahead = list(self.tables)
        for tenant in self._tenants_ahead[-tenants_step:]:
            if (tables := self.tables.get(tenant)) is not None and not any(tables):
                del self.tables[tenant]
        del self._tenants_ahead[-tenants_step:]

    # --- segments that were unmounted ---

    def written_on(self, segment: Segment) -> list[Object | CopyJob]:
        """Puts and copies that are under way on this segment."""
        busy: list[Object | CopyJob] = [*self.unfinished.values(), *self.copies.values()]
        return [one for one in busy if any(replica.segment is segment for replica in one.replicas)]

    def segment_ended(self, segment: Segment, written: list[Object | CopyJob]) -> None:
        """A segment was unmounted. `written`: puts and copies that were under way on it.

        These, and the objects that they are written beside, are settled now: how long their space stays in quarantine
        counts from this record.
        """
        for owner in written:
            self._lose_segment(segment, owner)
        for name in (*self.copies, *self.pending):
            if (entry := self.lookup(*name)) is not None:
                self.settle(entry)
        self.ending.append(segment)
        self.settle_some(self.settle_step_objects)

    def _lose_segment(self, segment: Segment, owner: Object | CopyJob) -> None:
        if isinstance(owner, Object):
            self.settle(owner)
            return
        for replica in owner.replicas:
            if replica.segment is segment:
                self.lose_replica(owner, segment, replica.offset, segment.ended_n)

    def settle(self, entry: Object) -> bool:
        """Take away the replicas that an object had on unmounted segments; returns whether any is left."""
        own = entry.segment
        if own is not None and not own.unmounted:
            return True
        for replica in entry.replicas:
            if replica.segment.unmounted:
                entry.changed_n = max(entry.changed_n, replica.segment.ended_n)
                self.lose_replica(entry, replica.segment, replica.offset, replica.segment.ended_n)
        return bool(entry.replica_count)

    def settle_some(self, budget: int) -> bool:
        """Settle up to `budget` objects of unmounted segments; returns whether there are more."""
        while self.ending:
            allocator = self.ending[0].allocator
            owners = allocator.forget(budget)
            budget -= len(owners)
            for owner in owners:
                if type(owner) is Object and owner.replica_count and not self._settle_plain(owner):
                    self.settle(owner)
            if allocator.block_count:
                return True
            self.ending.pop(0)
        return False

    def _settle_plain(self, entry: Object) -> bool:
        """Settle the usual object: at its own place, finished, alone. There may be a million of them."""
        segment = entry.segment
        if segment is None or not entry.visible or entry.extra is not None or self.copies or self.pending:
            return False
        if self._disk.count:
            return False
        if not segment.unmounted:
            return False  # it was settled before and has a replica elsewhere
        del self.tables[entry.tenant][crc32(entry.key) & 16383][entry.key]
        self.object_count -= 1
        if self._changes is not None:
            self._changes.removed(entry, segment.ended_n)
        if self._quotas is not None:
            self._quotas.charge(entry.tenant, -entry.size)
        entry.visible = False
        entry.segment = None
        return True

    # --- snapshots ---

    def load_copy(self, job: CopyJob) -> None:
        """Add a copy of a snapshot. Its places follow."""
        self.copies[(job.tenant, job.key)] = job

    def load_place(self, owner: Object | CopyJob, replica: Replica) -> None:
        """Add a replica of a snapshot, which owns its place."""
        if isinstance(owner, CopyJob):
            owner.replicas = (*owner.replicas, replica)
        else:
            owner.set_replicas((*owner.replicas, replica))
        if self._quotas is not None:
            self._quotas.charge(owner.tenant, owner.size)

    def load_object(self, entry: Object, beside: bool) -> None:
        """Add an object of a snapshot, in the order of put numbers. `beside`: an upsert beside a readable version."""
        if beside:
            self.pending[(entry.tenant, entry.key)] = entry
        else:
            self.insert(entry)
        if entry.draft is not None:
            self.unfinished[entry.put_seq] = entry
            return
        if self._changes is not None and entry.visible:
            self._changes.stored(entry, entry.changed_n)
        if not entry.hard_pin:
            self.wheel.add(entry, entry.lease_end)

    def load_finished(self) -> None:
        """All objects of a snapshot were added: upserts without a readable version are ordinary puts."""
        for name, beside in list(self.pending.items()):
            if self.lookup(*name) is None:
                del self.pending[name]
                self.insert(beside)

    # --- the end ---

    def discarding(self, every: int) -> Iterator[None]:
        """Forget all objects, of an index that is no longer used. Pauses after about `every` objects.

        This frees little memory: the objects still own their space.
        """
        self.pending.clear()
        self.unfinished.clear()
        self.copies.clear()
        self.object_count = 0
        yield from self.wheel.discarding(every)
        forgotten = 0
        while self.tables:
            _, tables = self.tables.popitem()
            while tables:
                forgotten += 1 + len(tables.pop())  # an empty table is work too
                if forgotten >= every:
                    forgotten = 0
                    yield

    # --- invariants ---

    def check(self) -> None:
        """Raise `InvariantBroken` unless the invariants hold."""
        objects = list(self.objects())
        places: set[tuple[int, int]] = set()
        holders: list[Object | CopyJob] = [*objects, *self.pending.values(), *self.copies.values()]
        for holder in holders:
            self._check_places(holder, places)
        for entry in objects:
            self._check_object(entry)
        for name, beside in self.pending.items():
            ensure(beside.draft is not None and not beside.visible, "a pending upsert is unfinished", name)
        for put_seq, entry in self.unfinished.items():
            ensure(entry.draft is not None and entry.put_seq == put_seq, "unfinished puts have drafts", entry.key)
        for name, job in self.copies.items():
            there = self.lookup(*name)
            ensure(there is not None and there.put_seq == job.put_seq, "a copy has its object", name)
        ensure(not NO_OBJECTS, "the shared empty table is empty")
        ensure(self.object_count == len(objects), "objects are counted", self.object_count)
        for segment in self._space.segments.values():
            for start, owner in segment.allocator.used_blocks():
                known = not isinstance(owner, Object | CopyJob) or (segment.incarnation, start) in places
                ensure(known, "every owner of space is known", segment.spec.name, start)
        self._leases.check(objects)
        if self._changes is not None:
            rows = [each.row for each in self._disk.versions() if self._disk.is_readable(each)]
            self._changes.check([*objects, *(row for row in rows if not self._disk.is_in_memory(row))])
        if self._quotas is not None:
            self._quotas.check(holders)

    def _check_places(self, entry: Object | CopyJob, places: set[tuple[int, int]]) -> None:
        ensure(bool(entry.replicas) or isinstance(entry, CopyJob), "an object has a replica", entry.key)
        for replica in entry.replicas:
            place = (replica.segment.incarnation, replica.offset)
            ensure(place not in places, "P3 two holders of one place", place, entry.key)
            if replica.segment in self.ending:
                continue
            ensure(not replica.segment.unmounted, "no replica on an unmounted segment", entry.key)
            owner = replica.segment.allocator.owner_of(replica.offset)
            ensure(owner is entry, "P3 a replica owns its place", entry.key)
            places.add(place)

    def _check_object(self, entry: Object) -> None:
        ensure(self.tables[entry.tenant][crc32(entry.key) & 16383][entry.key] is entry, "found under its name")
        ensure(entry.visible == (entry.draft is None), "readable when finished", entry.key)
        wanted = COMPLETE if entry.visible else PROCESSING
        ensure(all(replica.status == wanted for replica in entry.replicas), "replicas have its status", entry.key)
        ensure(entry.visible or entry.put_seq in self.unfinished, "unfinished puts are known", entry.key)
        ensure(entry.put_seq <= entry.changed_n <= self._log.last_n, "numbers are in order", entry.key)


def _table_of(tables: Tables, key: bytes) -> dict[bytes, Object]:
    """The table of this key, to put something into it. A tenant with few objects has few tables of its own."""
    number = crc32(key) & 16383
    table = tables[number]
    if table is NO_OBJECTS:
        table = tables[number] = {}
    return table
