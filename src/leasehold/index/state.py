"""What the index knows, and the small steps that everything else is made of.

Internal time. Lease ends of several epochs must be comparable, and an epoch can begin without a walk over a million
objects. So all times inside are on one axis: internal time = leader time + `offset`. An epoch that begins after a
hand-over goes on where the old one stopped. An epoch that begins after a death begins *beyond every end that can
have been granted before* (`older_than`), and all that is older counts as ending at `floor`, the grace. Nobody
outside sees this axis.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from zlib import crc32

from leasehold.base.errors import LeaseholdError
from leasehold.base.limits import index_hints_max, limbo_step_extents, segment_end_step_objects
from leasehold.index.allocator import rounded
from leasehold.index.model import (
    Client,
    CopyJob,
    Grave,
    Group,
    Limbo,
    Object,
    Owner,
    Replica,
    Segment,
    Task,
)
from leasehold.index.records import Record
from leasehold.index.settings import IndexSettings
from leasehold.index.wheel import Wheel

# Objects are in tables by the hash of their keys, so that no step over one of them takes long: snapshots and range
# records go by whole tables, and a dict grows in one go. A part of the records' meaning: never to be changed.
TABLES = 16384  # a few dozen objects each, of a million; the hot paths say `& 16383`
Tables = list[dict[bytes, Object]]
NO_OBJECTS: dict[bytes, Object] = {}  # stands for every table that nothing was put into yet. Read only: see `_table_of`
Name = tuple[bytes, bytes]


class Unappliable(LeaseholdError):
    """A record that does not fit this state: the node has diverged, or lost a record. Set it aside, say so, rebuild."""


class NotHere(Unappliable):
    """The record names an object that is not there: another node, which leads, still has what was evicted here."""


class State:
    """The data of one index. One thread, no locks, no clock, no randomness."""

    def __init__(self, settings: IndexSettings, choose: Callable[[int], int]) -> None:
        """`choose(n)` returns a number in 0..n-1: the only randomness, from outside."""
        self.settings = settings
        self.choose = choose
        self.lease_ttl_ms = settings.lease_ttl_ms
        self.expiry = settings.eviction_policy == "expiry"
        # numbers
        self.epoch = 0
        self.last_n = 0
        self.durable_n = 0
        self.outbox: list[tuple[int, Record]] = []
        # time
        self.offset = 0  # internal time = leader time + offset
        self.latest = 0  # the latest internal time seen
        self.max_term_ms = settings.lease_ttl_ms
        self.older_than = 0  # lease ends before this are of an older epoch (or of a gap): they count as `floor`
        self.floor = 0
        self.begin_n = (
            0  # the record that began this epoch, for its primary: what was started before, was under another
        )
        self.epoch_start = 0  # heartbeats and unfinished puts count from here at the earliest
        # objects
        self.tables: dict[bytes, Tables] = {}
        self.pending: dict[Name, Object] = {}  # unfinished upserts beside a readable version
        self.unfinished: dict[int, Object] = {}  # by put number, the oldest first
        self.copies: dict[Name, CopyJob] = {}
        self.groups: dict[Name, Group] = {}
        self.object_count = 0
        # space
        self.segments: dict[int, Segment] = {}
        self.segment_ids: dict[bytes, Segment] = {}
        self.clients: dict[bytes, Client] = {}
        self.unproven: set[int] = set()  # incarnations whose owner has not been heard of since a restart of everything
        self.unheard_n = 0  # this epoch began with owners of segments mounted before this record in doubt
        self.limbo: list[tuple[int, int, int, int, Limbo]] = []  # heap by end; see `by_end` and `limbo_end_of`
        self.resting_count = 0  # extents in limbo
        self.resting_bytes = 0
        self.lifted = (0, 0, 0)  # the last `begin` that gave grace: record, internal time, length
        self.graves: list[Grave] = []
        self.ending: list[Segment] = []  # ended, but not all of their objects have been looked at since: see `settle`
        self.end_step_objects = segment_end_step_objects
        self.in_doubt: list[tuple[int, int, int]] = []  # see `doubt`
        self.total_bytes = 0
        self.used_bytes = 0
        self.placeable: dict[bool, list[Segment]] = {True: [], False: []}
        self.journal_full = False  # as the primary: no new puts until the journal has room again
        # tasks
        self.tasks: dict[bytes, Task] = {}
        self.open_tasks: dict[bytes, dict[bytes, Task]] = {}  # those that have not ended, by the client that does them
        # what an answer must wait for (schedule 13)
        self.removed: dict[Name, int] = {}
        self._removed_order: deque[tuple[int, Name]] = deque()
        self.range_n = 0
        self.absent_bytes: dict[bytes, int] = {}
        self._absent_order: deque[tuple[int, bytes, int]] = deque()
        # bulk
        self.dirty: list[Object] = []
        self.slow_dirty: dict[Object, None] = {}  # those whose every renewal needs more than the hot path does
        self.urgent = False
        self.hints: deque[Object] = deque(maxlen=index_hints_max)
        self.hinted_bytes = 0  # of what is in `hints`, at least
        # eviction
        self.wheel = Wheel()
        self.soft: deque[Object] = deque()  # soft-pinned objects whose lease has ended
        self.evict_to_bytes = -1  # evict until no more than this is used; -1: no round is on
        # replay over a fuzzy snapshot: up to which record each table already is; None when past it
        self.covered_n: list[int] | None = None
        self.homeless: list[Object] | None = None  # while a snapshot is loaded and replayed (see `_end_homeless`)
        self.keyless_n = 0
        self.limbo_to_come: list[Limbo] = []  # of the last slice: it has its place when replay has come that far
        # counters, for people
        self.evicted_count = 0
        self.evicted_bytes = 0
        self.displaced_count = 0
        self.refused: dict[str, int] = {}

    # --- objects ---

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

    def lease_end_of(self, entry: Object) -> int:
        """When the object's lease has surely ended, in internal time: with grace, and with its group's."""
        end = entry.lease_end
        if end < self.older_than and end < self.floor:
            end = self.floor
        if entry.group:
            group = self.groups.get((entry.tenant, entry.group))
            if group is not None:
                shared = self._shared_end(group)
                if shared > end:
                    end = shared
        return end

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

    # --- space ---

    def _claim(self, segment: Segment, offset: int, owner: Owner, n: int) -> bool:
        """Take a place for record `n`. What is there is displaced, unless it is newer: then the claim is void."""
        space = segment.space
        taken_bytes = space.take(offset, owner)
        if taken_bytes:
            self.used_bytes += taken_bytes
            return True
        if not space.contains(offset, owner.size):
            raise Unappliable(f"record {n} claims space outside of segment {segment.spec.name!r}")
        blocking = space.in_the_way(offset, owner.size)
        if blocking:
            if any(self._claimed_n(space.owners[start], segment, start) > n for start in blocking):
                return False
            for start in blocking:
                self._displace(segment, start, n)
        space.claim(offset, owner)
        self.used_bytes += rounded(owner.size)
        return True

    @staticmethod
    def _claimed_n(owner: Owner, segment: Segment, start: int) -> int:
        if isinstance(owner, Limbo):
            return owner.n
        for replica in owner.replicas:
            if replica.offset == start and replica.segment is segment:
                return replica.claimed_n
        return owner.put_seq

    def _displace_older(self, segment: Segment, offset: int, size: int, n: int) -> None:
        """Record `n` gave this place away, whatever has become of it since."""
        space = segment.space
        for start in space.in_the_way(offset, size) if space.contains(offset, size) else ():
            if start in space.owners and self._claimed_n(space.owners[start], segment, start) < n:
                self._displace(segment, start, n)

    def _displace(self, segment: Segment, start: int, n: int) -> None:
        """Somebody newer has this place: whatever we still believed to be there is not."""
        owner = segment.space.owners[start]
        self._release(segment, start)
        if isinstance(owner, Limbo):
            self._count_resting(owner, -1)
            return
        self.displaced_count += 1
        self._lose_replica(owner, segment, start, n)

    def _lose_replica(self, owner: Object | CopyJob, segment: Segment, start: int, n: int) -> None:
        owner.replicas = tuple(r for r in owner.replicas if r.segment is not segment or r.offset != start)
        if owner.replicas:
            return
        if isinstance(owner, CopyJob):
            self.copies.pop((owner.tenant, owner.key), None)
        elif self.last_n:  # else a snapshot is being loaded
            self._drop(owner, n, self.latest, 0)

    def _end_homeless(self) -> None:
        """Replay has come to the last slice: what has no place by now is gone.

        Not before: of what lost its place to somebody in a later slice, a record between the two may say that it had
        moved elsewhere first.
        """
        for entry in self.homeless or ():
            if not entry.replicas:
                self._drop(entry, self.last_n, self.latest, 0)
        self.homeless = None

    def _release(self, segment: Segment, offset: int) -> None:
        self.used_bytes -= segment.space.release(offset)

    def _let_go(self, replicas: Iterable[Replica], size: int, n: int, now: int, limbo_ms: int) -> None:
        """Extents leave their object: free at once, or after `limbo_ms` in limbo."""
        for replica in replicas:
            segment = replica.segment
            if segment.unmounted:
                continue
            if limbo_ms > 0:
                entry = Limbo(segment, replica.offset, size, limbo_ms, now + limbo_ms, n)
                segment.space.pass_on(replica.offset, entry)
                self._count_resting(entry, 1)
                heappush(self.limbo, by_end(entry))
            else:
                self.used_bytes -= segment.space.release(replica.offset)

    def _rest(self, segment: Segment, offset: int, size: int, n: int, now: int, limbo_ms: int) -> None:
        """Put free space into limbo."""
        entry = Limbo(segment, offset, size, limbo_ms, now + limbo_ms, n)
        space = segment.space
        space.claim(offset, entry)
        self.used_bytes += rounded(size)
        self._count_resting(entry, 1)
        heappush(self.limbo, by_end(entry))

    def _place_limbo(self) -> None:
        """Replay has come to the last slice: its limbo takes its places, where nothing newer is.

        Not before: a record between the slices may say that an object had left a place before it came to rest.
        """
        for entry in sorted(self.limbo_to_come, key=lambda one: one.n):
            segment = entry.segment
            there = segment.space.owners.get(entry.offset)
            again = isinstance(there, Limbo) and there.n == entry.n
            if not segment.unmounted and not again and self._claim(segment, entry.offset, entry, entry.n):
                self._count_resting(entry, 1)
                heappush(self.limbo, by_end(entry))
        self.limbo_to_come = []

    def _count_resting(self, entry: Limbo, by: int) -> None:
        self.resting_count += by
        self.resting_bytes += by * rounded(entry.size)

    def limbo_end_of(self, entry: Limbo) -> int:
        """When an extent's time in limbo is over, in internal time: with the grace that `begin` gave to all of them.

        Its place in the heap may be too early: that is found out when its turn comes. There may be a million of them,
        and an epoch begins without going through them.
        """
        n, at, grace_ms = self.lifted
        return entry.end if entry.n >= n else max(entry.end, at + max(grace_ms, entry.duration_ms))

    def _free_limbo(self, now: int) -> bool:
        """What has been in limbo long enough is free; whether there is more of it. No record: a later claim tells."""
        heap = self.limbo
        for _ in range(limbo_step_extents):
            if not heap or heap[0][0] > now:
                return False
            entry = heappop(heap)[4]
            segment = entry.segment
            if segment.unmounted or segment.space.owners.get(entry.offset) is not entry:
                continue
            entry.end = self.limbo_end_of(entry)
            if entry.end > now:
                heappush(heap, by_end(entry))
            else:
                self._release(segment, entry.offset)
                self._count_resting(entry, -1)
        return bool(heap) and heap[0][0] <= now

    def _live_limbo(self, of: Segment | None = None) -> list[Limbo]:
        """What is in limbo, or what of it is on one segment (also one that is just ending)."""
        return [
            entry
            for *_, entry in self.limbo
            if (entry.segment is of or (of is None and not entry.segment.unmounted))
            and entry.segment.space.owners.get(entry.offset) is entry
        ]

    def resting(self) -> tuple[int, int]:
        """How many extents are in limbo, and their bytes."""
        return self.resting_count, self.resting_bytes

    def _lift_limbo(self, n: int, now: int, grace_ms: int) -> None:
        # Each `begin` reaches further than the one before (an older grace has passed by then): the last one will do.
        self.lifted = (n, now, grace_ms)
        for grave in self.graves:
            if grave.duration_ms:
                grave.end = max(grave.end, now + max(grace_ms, grave.duration_ms))
            for extent in grave.extents:
                extent.end = max(extent.end, now + max(grace_ms, extent.duration_ms))

    # --- leaving ---

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

    def _drop(self, entry: Object, n: int, now: int, limbo_ms: int) -> None:
        """An object leaves, with its copies in the making; its space rests for `limbo_ms`."""
        job = self.copies.get((entry.tenant, entry.key)) if self.copies else None
        if job is not None and job.put_seq == entry.put_seq:
            del self.copies[(entry.tenant, entry.key)]
            self._let_go(job.replicas, job.size, n, now, max(limbo_ms, self.settings.put_release_ms))
        self._let_go(entry.replicas, entry.size, n, now, limbo_ms)
        entry.replicas = ()
        self._forget(entry)

    def _remember_removed(self, name: Name, n: int) -> None:
        """Until `n` is durable a miss of this name must wait for it (schedule 13)."""
        if n > self.durable_n:
            self.removed[name] = n
            self._removed_order.append((n, name))

    def durable(self, n: int) -> None:
        """Everything up to `n` is durable."""
        self.durable_n = max(self.durable_n, n)
        order = self._removed_order
        while order and order[0][0] <= n:
            number, name = order.popleft()
            if self.removed.get(name) == number:
                del self.removed[name]
        absent = self._absent_order
        while absent and absent[0][0] <= n:
            _, source, size = absent.popleft()
            left = self.absent_bytes[source] - size
            if left:
                self.absent_bytes[source] = left
            else:
                del self.absent_bytes[source]

    def _count_absent(self, n: int, source: bytes, size: int) -> None:
        self.absent_bytes[source] = self.absent_bytes.get(source, 0) + size
        self._absent_order.append((n, source, size))

    def refuses_records(self) -> bool:
        """Whether the journal is full: then nothing is decided that callers could repeat without end (P6)."""
        if self.journal_full:
            self.refuse("the journal is full")
        return self.journal_full

    def refuse(self, reason: str) -> None:
        """Count bad input by reason."""
        self.refused[reason] = self.refused.get(reason, 0) + 1


def by_end(entry: Limbo) -> tuple[int, int, int, int, Limbo]:
    """A place in the heap; the numbers are unique, so that two entries are never compared themselves."""
    return entry.end, entry.n, entry.segment.incarnation, entry.offset, entry
