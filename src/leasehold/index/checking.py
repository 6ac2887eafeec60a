"""Every invariant of the state, in one place. Slow: for tests and simulation."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from zlib import crc32

from leasehold.base.invariants import ensure
from leasehold.index.allocator import rounded
from leasehold.index.model import COMPLETE, PROCESSING, CopyJob, Object, Quarantined
from leasehold.index.saving import Saving
from leasehold.index.state import NO_OBJECTS


class Checking(Saving):
    """What must hold after every command and every record."""

    def objects(self) -> Iterator[Object]:
        """Every object in the tables."""
        for tables in self.tables.values():
            for table in filter(None, tables):
                yield from table.values()

    def check(self) -> None:
        """Raise `InvariantBroken` unless every invariant holds: extents, accounting, counts."""
        holders: dict[tuple[int, int], Object | CopyJob] = {}
        objects = list(self.objects())  # once: there are thousands of tables to look into
        everything: list[Object | CopyJob] = [*objects, *self.pending.values(), *self.copies.values()]
        for holder in everything:
            self._check_places(holder, holders)
        for entry in objects:
            self._check_object(entry)
        for name, beside in self.pending.items():
            ensure(beside.draft is not None and not beside.visible, "what is beside is unfinished", name)
        for put_seq, entry in self.unfinished.items():
            ensure(entry.draft is not None and entry.put_seq == put_seq, "the unfinished have drafts", entry.key)
        for name, job in self.copies.items():
            there = self.lookup(*name)
            ensure(there is not None and there.put_seq == job.put_seq, "a copy has its object", name)
        ensure(not NO_OBJECTS, "what stands for all tables without objects has none")
        ensure(self.object_count == len(objects), "objects are counted", self.object_count)
        self._check_space(holders)

    def _check_places(self, entry: Object | CopyJob, holders: dict[tuple[int, int], Object | CopyJob]) -> None:
        ensure(bool(entry.replicas) or isinstance(entry, CopyJob), "an object has a replica", entry.key)
        for replica in entry.replicas:
            place = (replica.segment.incarnation, replica.offset)
            ensure(place not in holders, "P3 two holders of one place", place, entry.key)
            if replica.segment in self.ending:
                continue
            ensure(not replica.segment.unmounted, "no replica on a segment that is gone", entry.key)
            ensure(replica.segment.space.owners.get(replica.offset) is entry, "P3 a replica owns its place", entry.key)
            holders[place] = entry

    def _check_object(self, entry: Object) -> None:
        ensure(self.tables[entry.tenant][crc32(entry.key) & 16383][entry.key] is entry, "found under its name")
        ensure(entry.visible == (entry.draft is None), "readable when finished", entry.key)
        wanted = COMPLETE if entry.visible else PROCESSING
        ensure(all(replica.status == wanted for replica in entry.replicas), "replicas say so too", entry.key)
        ensure(entry.visible or entry.put_seq in self.unfinished, "unfinished ones are known", entry.key)
        ensure(entry.put_seq <= entry.changed_n <= self.last_n, "numbers are in order", entry.key)
        if entry.group:
            ensure(entry.key in self.groups[(entry.tenant, entry.group)].members, "a member of its group", entry.key)

    def _check_space(self, holders: dict[tuple[int, int], Object | CopyJob]) -> None:
        quarantined = {id(entry) for entry in self._live_limbo()}
        ensure(self.resting_count == len(quarantined), "what rests is counted", self.resting_count, len(quarantined))
        ensure(self.resting_bytes == sum(rounded(entry.size) for entry in self._live_limbo()), "and its bytes")
        for segment in self.segments.values():
            segment.space.check()
            for start, owner in segment.space.owners.items():
                if isinstance(owner, Quarantined):
                    ensure(id(owner) in quarantined, "limbo has an end", segment.spec.name, start)
                else:
                    ensure(holders.get((segment.incarnation, start)) is owner, "every owner is known", owner.key)
        used = sum(segment.space.used_bytes for segment in self.segments.values())
        total = sum(segment.space.size for segment in self.segments.values())
        ensure((self.used_bytes, self.total_bytes) == (used, total), "space is counted", self.used_bytes, used)

    def digest(self) -> bytes:
        """A hash of what records alone determine: names, versions, places, pins. Equal on equal nodes, ghosts aside."""
        while self.end_some(1_000):
            pass
        lines = sorted(
            (
                entry.tenant, entry.key, entry.put_seq, entry.size, entry.visible, entry.hard_pin, entry.group,
                tuple((r.id, r.segment.incarnation, r.offset) for r in entry.replicas),
            )
            for entry in [*self.objects(), *self.pending.values()]
        )  # fmt: skip
        return blake2b(repr((lines, sorted(self.segments))).encode(), digest_size=16).digest()
