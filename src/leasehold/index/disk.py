"""The disk tier: versions of keys on the disks of storage clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from zlib import crc32

from leasehold.base.invariants import ensure
from leasehold.base.limits import disk_replicas_max
from leasehold.index.changes import Changes
from leasehold.index.model import DiskOwner, DiskReplica, DiskVersion, Extra, Object
from leasehold.index.records import DiskItem
from leasehold.index.tables import Name, Tables

_PLACE_BITS: Final = 9  # of a replica's id: its position in its record, below the record's number


class DiskTier:
    """Which versions are on which disks, and which owners can be reached.

    This state follows from records alone: unlike memory replicas, disk replicas never leave without one. So it is the
    same on every node. An object in the catalog and a version here are copies of the same bytes if their put numbers
    are equal. The object is evicted from memory without this part; the version stays readable from disk.

    A version is readable if an owner of a replica is connected. One that is not readable is absent: a put replaces it.
    Replicas of an owner that was forgotten do not count; they are cleared step by step (`sweep_some`).

    Invariants: a version has a replica; it stands on the shelf of its key; `count` counts the versions; every owner's
    counters are those of its replicas.
    """

    __slots__ = ("_changes", "_in_memory", "_sweeping", "count", "owners", "promotions", "shelves", "stale", "tenants")

    def __init__(self, changes: Changes | None, in_memory: dict[bytes, Tables]) -> None:
        """`in_memory`: the catalog's tables. `changes` receives what becomes readable, or is no longer."""
        self._changes = changes
        self._in_memory = in_memory
        self.shelves: dict[int, dict[Name, DiskVersion]] = {}  # by the number of the key's table
        self.owners: dict[bytes, DiskOwner] = {}
        self.count = 0
        self.tenants: dict[bytes, int] = {}  # how many versions each has
        self.promotions: dict[Name, int] = {}  # under way: the number of each
        self.stale = False  # an owner was forgotten: some versions may have replicas that do not count
        self._sweeping: list[int] = []

    # --- looking up ---

    def find(self, tenant: bytes, key: bytes) -> DiskVersion | None:
        """The version on disk, readable or not."""
        shelf = self.shelves.get(crc32(key) & 16383)
        return None if shelf is None else shelf.get((tenant, key))

    def owner_of(self, replica: DiskReplica) -> DiskOwner | None:
        """The owner of a replica. None: it was forgotten, and the replica does not count."""
        owner = self.owners.get(replica.owner)
        return owner if owner is not None and replica.id >> _PLACE_BITS > owner.since_n else None

    def is_readable(self, version: DiskVersion) -> bool:
        """Whether a reader can be sent to one of its disks."""
        return any((owner := self.owner_of(r)) is not None and owner.connected for r in version.replicas)

    def readable(self, tenant: bytes, key: bytes) -> DiskVersion | None:
        """The version on disk, if a reader can be sent there."""
        version = self.find(tenant, key)
        return version if version is not None and self.is_readable(version) else None

    def read(self, tenant: bytes, key: bytes) -> Object | None:
        """The row of a readable version. Its `changed_n` covers the record that connected its owner (P1)."""
        version = self.find(tenant, key)
        if version is None:
            return None
        connected = [o.changed_n for r in version.replicas if (o := self.owner_of(r)) is not None and o.connected]
        if not connected:
            return None
        row = version.row
        row.changed_n = max(row.changed_n, min(connected))
        return row

    def beside(self, entry: Object) -> tuple[DiskReplica, ...]:
        """The readable disk replicas of this version."""
        version = self.find(entry.tenant, entry.key)
        if version is None or version.row.put_seq != entry.put_seq:
            return ()
        return tuple(r for r in version.replicas if (o := self.owner_of(r)) is not None and o.connected)

    def keeps(self, entry: Object) -> bool:
        """Whether this version stays readable when it leaves memory."""
        return bool(self.count) and bool(self.beside(entry))

    def versions(self) -> Iterator[DiskVersion]:
        for shelf in self.shelves.values():
            yield from shelf.values()

    def on_shelves(self, first: int, beyond: int) -> Iterator[DiskVersion]:
        """The versions whose keys belong to these tables."""
        shelves = self.shelves
        numbers = sorted(shelves) if beyond - first > len(shelves) else range(first, beyond)
        for number in numbers:
            if first <= number < beyond and (shelf := shelves.get(number)) is not None:
                yield from shelf.values()

    def holds_of(self, client: bytes) -> int:
        """How many replicas a client has."""
        owner = self.owners.get(client)
        return owner.replicas if owner is not None else 0

    def newest_bucket(self, client: bytes) -> int:
        """The newest file that this client has reported."""
        owner = self.owners.get(client)
        return owner.newest_bucket if owner is not None else 0

    # --- owners ---

    def connect(self, client: bytes, n: int) -> None:
        """Record `n`: a client lends its disk, or is back."""
        owner = self.owners.get(client)
        if owner is None:
            self.owners[client] = DiskOwner(client, n, True, n)
        elif not owner.connected:
            before = self._readable_now(owner)
            owner.connected, owner.changed_n = True, n
            self._report(before, n)

    def disconnect(self, client: bytes, n: int) -> None:
        """Record `n`: a client is silent."""
        owner = self.owners.get(client)
        if owner is not None and owner.connected:
            before = self._readable_now(owner)
            owner.connected, owner.changed_n = False, n
            self._report(before, n)

    def forget_owner(self, client: bytes, n: int) -> None:
        """Record `n`: a client's disk replicas do not count any more."""
        self.disconnect(client, n)
        owner = self.owners.pop(client, None)
        if owner is not None and owner.replicas:
            self._start_sweeping()

    def _readable_now(self, owner: DiskOwner) -> list[tuple[DiskVersion, bool]]:
        """For events only: which versions of an owner are readable, before that changes."""
        if self._changes is None or not owner.replicas:
            return []
        mine = (v for v in self.versions() if any(r.owner == owner.client for r in v.replicas))
        return [(version, self.is_readable(version)) for version in mine]

    def _report(self, before: list[tuple[DiskVersion, bool]], n: int) -> None:
        for version, was in before:
            if self.is_readable(version) != was:
                self._tell(version.row, n, stored=not was)

    def _tell(self, row: Object, n: int, stored: bool) -> None:
        """A version became readable from disk, or is no longer: that changes nothing while it is in memory, too."""
        if self._changes is None or self.is_in_memory(row):
            return
        if stored:
            self._changes.stored(row, n)
        else:
            self._changes.removed(row, n)

    def is_in_memory(self, row: Object) -> bool:
        """Whether this version has memory replicas."""
        tables = self._in_memory.get(row.tenant)
        entry = None if tables is None else tables[crc32(row.key) & 16383].get(row.key)
        return entry is not None and entry.visible and entry.put_seq == row.put_seq

    def _start_sweeping(self) -> None:
        self.stale = True
        self._sweeping = list(self.shelves)

    def sweep_some(self, budget: int) -> None:
        """Clear replicas of forgotten owners from about `budget` versions. They have no effect meanwhile."""
        while self._sweeping and budget > 0:
            number = self._sweeping.pop()
            for name, version in list(self.shelves.get(number, {}).items()):
                budget -= 1
                left = tuple(replica for replica in version.replicas if self.owner_of(replica) is not None)
                if left:
                    version.replicas = left
                else:
                    self._delete(number, name, version)
        self.stale = bool(self._sweeping)

    # --- versions ---

    def store(self, n: int, place: int, now: int, client: bytes, endpoint: str, item: DiskItem) -> None:
        """Record `n`: a version is on the disk of a client. Another version of the key must have left before."""
        if client not in self.owners:
            return  # in replay: it was forgotten by a later record
        number, name = crc32(item.key) & 16383, (item.tenant, item.key)
        self.drop(item.tenant, item.key, item.put_seq, n)
        version = self.shelves.get(number, {}).get(name)
        if version is None:
            row = disk_row(
                item.key, item.tenant, item.put_seq, n, item.size, item.writer, now, item.checksum, item.data_type
            )
            version = DiskVersion(row, ())
            self._add(number, name, version)
        was = self.is_readable(version)
        replica = DiskReplica(n << _PLACE_BITS | place, client, endpoint, item.bucket, item.offset, item.key_size)
        kept = [r for r in version.replicas if r.owner not in (client, item.previous) and self.owner_of(r) is not None]
        self._set_replicas(version, (replica, *kept[: disk_replicas_max - 1]))
        version.row.changed_n = n
        owner = self.owners.get(client)
        if owner is not None and item.bucket > owner.newest_bucket:
            owner.newest_bucket = item.bucket
        if not was and self.is_readable(version):
            self._tell(version.row, n, stored=True)

    def evict(self, version: DiskVersion, client: bytes, n: int) -> None:
        """Record `n`: an owner deletes its copy, and so every replica at the same place (a shared folder)."""
        places = [(r.bucket, r.offset, r.key_size) for r in version.replicas if r.owner == client]
        left = tuple(
            r for r in version.replicas
            if r.owner != client and (r.bucket <= 0 or (r.bucket, r.offset, r.key_size) not in places)
        )  # fmt: skip
        was = self.is_readable(version)
        row = version.row
        row.changed_n = n
        if left:
            self._set_replicas(version, left)
        else:
            self._delete(crc32(row.key) & 16383, (row.tenant, row.key), version)
        if was and not (left and self.is_readable(version)):
            self._tell(row, n, stored=False)

    def drop(self, tenant: bytes, key: bytes, before_n: int, n: int) -> DiskVersion | None:
        """Record `n` ends the version of this key, if it is older than `before_n`."""
        number = crc32(key) & 16383
        shelf = self.shelves.get(number)
        version = shelf.get((tenant, key)) if shelf is not None else None
        if version is None or version.row.put_seq >= before_n:
            return None
        was = self.is_readable(version)
        self._delete(number, (tenant, key), version)
        if was:
            self._tell(version.row, n, stored=False)
        return version

    def _set_replicas(self, version: DiskVersion, replicas: tuple[DiskReplica, ...]) -> None:
        size = version.row.size
        for replica, sign in (*((r, -1) for r in version.replicas), *((r, 1) for r in replicas)):
            owner = self.owner_of(replica)
            if owner is not None:
                owner.replicas += sign
                owner.used_bytes += sign * size
        version.replicas = replicas

    def _add(self, number: int, name: Name, version: DiskVersion) -> None:
        self.shelves.setdefault(number, {})[name] = version
        self.count += 1
        self.tenants[name[0]] = self.tenants.get(name[0], 0) + 1

    def _delete(self, number: int, name: Name, version: DiskVersion) -> None:
        self._set_replicas(version, ())
        shelf = self.shelves[number]
        del shelf[name]
        if not shelf:
            del self.shelves[number]
        self.count -= 1
        self.tenants[name[0]] -= 1
        if not self.tenants[name[0]]:
            del self.tenants[name[0]]
        self.promotions.pop(name, None)
        version.row.visible = False

    # --- promotions ---

    def start_promotion(self, version: DiskVersion, n: int, client: bytes) -> None:
        """Record `n` starts to write this version into memory."""
        version.promotion, version.promoter = n, client
        self.promotions[(version.row.tenant, version.row.key)] = n

    def end_promotion(self, tenant: bytes, key: bytes, n: int, cooling_until: int) -> None:
        """Promotion `n` failed. A late notice of it must not end another one."""
        if self.promotions.get((tenant, key)) != n:
            return
        del self.promotions[(tenant, key)]
        version = self.find(tenant, key)
        if version is not None:
            version.promotion, version.cooling_until = 0, cooling_until

    def promoted(self, version: DiskVersion, put_seq: int, n: int) -> None:
        """Record `n`: the promotion `put_seq` is complete. The disk replicas are of that version now."""
        old = version.row
        if self.is_readable(version):
            self._tell(old, n, stored=False)
        old.visible = False
        version.row = disk_row(
            old.key, old.tenant, put_seq, n, old.size, old.client, old.lease_end, old.checksum, old.data_type
        )
        version.promotion = 0
        self.promotions.pop((old.tenant, old.key), None)
        if self.is_readable(version):
            self._tell(version.row, n, stored=True)

    def inherit(self, entry: Object) -> None:
        """An object leaves memory under a lease: the lease goes on for the version on disk (P2)."""
        version = self.find(entry.tenant, entry.key)
        if version is not None and version.row.put_seq == entry.put_seq and entry.lease_end > version.row.lease_end:
            version.row.lease_end = entry.lease_end

    # --- snapshots ---

    def load_owner(self, client: bytes, since_n: int, connected: bool, changed_n: int, newest_bucket: int) -> None:
        """Add an owner of a snapshot."""
        self.owners[client] = DiskOwner(client, since_n, connected, changed_n, newest_bucket)

    def load_version(self, version: DiskVersion) -> None:
        """Add a version of a snapshot. Its owners were loaded before."""
        row, replicas = version.row, version.replicas
        version.replicas = ()
        self._add(crc32(row.key) & 16383, (row.tenant, row.key), version)
        self._set_replicas(version, replicas)
        if any(self.owner_of(replica) is None for replica in replicas):
            self._start_sweeping()
        if version.promotion:
            self.promotions[(row.tenant, row.key)] = version.promotion
        if self.is_readable(version):
            self._tell(row, row.changed_n, stored=True)

    # --- invariants ---

    def check(self) -> None:
        """Raise `InvariantBroken` unless the invariants hold."""
        held: dict[bytes, list[int]] = {}
        count = 0
        for number, shelf in self.shelves.items():
            for name, version in shelf.items():
                count += 1
                row = version.row
                ensure(crc32(row.key) & 16383 == number and (row.tenant, row.key) == name, "on its own shelf", name)
                ensure(bool(version.replicas), "a version on disk has a replica", name)
                ensure(row.visible and not row.replicas and row.draft is None, "a version on disk is finished", name)
                for replica in filter(self.owner_of, version.replicas):
                    sums = held.setdefault(replica.owner, [0, 0])
                    sums[0] += 1
                    sums[1] += row.size
        ensure(count == self.count, "versions on disk are counted", count, self.count)
        for client, owner in self.owners.items():
            ensure([owner.replicas, owner.used_bytes] == held.get(client, [0, 0]), "an owner's replicas are counted")


def disk_row(
    key: bytes,
    tenant: bytes,
    put_seq: int,
    changed_n: int,
    size: int,
    client: bytes,
    lease_end: int,
    checksum: int | None,
    data_type: int,
) -> Object:
    """The row of a version on disk: an object without replicas in memory."""
    extra = Extra(checksum=checksum, data_type=data_type)
    return Object(
        key, tenant, put_seq, changed_n, size, client, lease_end, True, extra=None if extra.is_empty else extra
    )
