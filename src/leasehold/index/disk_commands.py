"""Commands of storage clients about their disks: lending them, writing objects there, reading them back."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from leasehold.base.codes import Code, ReplicaKind
from leasehold.base.limits import batch_record_keys_max, clients_max, disk_record_bytes_max
from leasehold.index.catalog import Catalog
from leasehold.index.clock import LeaderClock
from leasehold.index.decisions import Decisions
from leasehold.index.disk import DiskTier
from leasehold.index.eviction import Eviction
from leasehold.index.features import Features
from leasehold.index.log import Log
from leasehold.index.model import Object, PutConfig
from leasehold.index.offloads import Offloads
from leasehold.index.owners import Owners
from leasehold.index.placement import Placement
from leasehold.index.promotions import Promotions
from leasehold.index.records import (
    DiskEvict,
    DiskGone,
    DiskItem,
    DiskMount,
    DiskStored,
    DiskUnmount,
    PromoteEnd,
    PromoteStart,
    PutRevoke,
)
from leasehold.index.replies import Acknowledged, Answered, SpaceHandedOut
from leasehold.index.settings import IndexSettings
from leasehold.index.space.space import Space
from leasehold.index.tables import Name
from leasehold.index.tenants import Tenants

_TEXT_MAX = 1024
DiskTask = tuple[Name, int]  # an object to write or to read, and its size
_DISKS = (ReplicaKind.DISK, ReplicaKind.LOCAL_DISK)


class Written(Struct, frozen=True, gc=False):
    """A client's notice about one object: where it is on its disk. A negative size: it could not be written."""

    tenant: bytes
    key: bytes
    bucket: int
    offset: int
    key_size: int
    size: int
    endpoint: str


class Disks:
    """Commands about the disk tier.

    A disk replica is recorded only if this leader handed the object out to that client, and the replica that was read
    still stands; or if it is at a place that the journal lists already (a client that restarted). A notice never
    creates an object: the version in its file is unknown (P5).
    """

    __slots__ = (
        "_catalog", "_clock", "_decisions", "_disk", "_eviction", "_features", "_gone_since", "_last_bucket", "_log",
        "_offloads", "_owners", "_placement", "_promotions", "_settings", "_space", "_tenants", "capacities",
        "refused_notices", "remove_all",
    )  # fmt: skip

    def __init__(
        self,
        settings: IndexSettings,
        clock: LeaderClock,
        log: Log,
        features: Features,
        decisions: Decisions,
        space: Space,
        catalog: Catalog,
        owners: Owners,
        placement: Placement,
        eviction: Eviction,
        disk: DiskTier,
        offloads: Offloads,
        promotions: Promotions,
        tenants: Tenants | None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._log = log
        self._features = features
        self._decisions = decisions
        self._space = space
        self._catalog = catalog
        self._owners = owners
        self._placement = placement
        self._eviction = eviction
        self._disk = disk
        self._offloads = offloads
        self._promotions = promotions
        self._tenants = tenants
        self._gone_since: dict[bytes, int] = {}  # silent owners, since when this leader knows it
        self._last_bucket: dict[bytes, int] = {}  # the newest file of each client that a notice named
        self.capacities: dict[bytes, int] = {}  # bytes of each disk, as reported
        self.remove_all: set[bytes] = set()  # clients that are to delete all files
        self.refused_notices = 0

    # --- owners ---

    @property
    def is_on(self) -> bool:
        """Whether the disk tier is enabled, and the cluster's feature level has its records."""
        return self._settings.enable_offload and self._features.allow(DiskMount)

    def mount(self, now_ms: int, client: bytes, offloading: bool) -> Acknowledged:
        """A client lends its disk. `offloading`: it accepts objects to write."""
        if not self.is_on:
            return Acknowledged(Code.NO_OFFLOAD, 0)
        clients = self._owners.clients
        if not client or (client not in clients and len(clients) >= clients_max):
            self._log.refuse("too many clients")
            return Acknowledged(Code.BAD_PARAMS, 0)
        owner = self._disk.owners.get(client)
        if owner is None or not owner.connected:
            self._decisions.emit(DiskMount(now_ms, client))
        self._owners.seen(client, now_ms + self._clock.offset)
        if offloading:
            self._offloads.open(client)
        return Acknowledged(Code.OK, self._disk.owners[client].changed_n)

    def unmount(self, now_ms: int, client: bytes) -> Acknowledged:
        """A client takes its disk back: its replicas are forgotten."""
        if not self.is_on:
            return Acknowledged(Code.NO_OFFLOAD, 0)
        if client not in self._disk.owners:
            return Acknowledged(Code.OK, self._log.range_n)
        return Acknowledged(Code.OK, self._forget(now_ms, client))

    def _forget(self, now_ms: int, client: bytes) -> int:
        self._close(client)
        self._gone_since.pop(client, None)
        return self._decisions.emit(DiskUnmount(now_ms, client))

    def _close(self, client: bytes) -> None:
        self._offloads.close(client)
        self._promotions.close(client)
        self._last_bucket.pop(client, None)
        self.capacities.pop(client, None)
        self.remove_all.discard(client)

    def _is_connected(self, client: bytes) -> bool:
        owner = self._disk.owners.get(client)
        return owner is not None and owner.connected

    def report_capacity(self, now_ms: int, client: bytes, capacity_bytes: int) -> Acknowledged:
        """How large a client's disk is."""
        if capacity_bytes < 0:
            return Acknowledged(Code.BAD_PARAMS, 0)
        if not self._is_connected(client):
            return Acknowledged(Code.SEGMENT_NOT_FOUND, 0)
        self.capacities[client] = capacity_bytes
        return Acknowledged(Code.OK, 0)

    def poll_remove_all(self, now_ms: int, client: bytes) -> Answered[bool]:
        """Whether a client is to delete all its files: only if none of them is listed for any tenant."""
        if not self._is_connected(client):
            return Answered(Code.SEGMENT_NOT_FOUND, False, 0)
        wanted = client in self.remove_all
        self.remove_all.discard(client)
        return Answered(Code.OK, wanted and not self._disk.holds_of(client), self._log.last_n)

    def removed_all(self) -> None:
        """A tenant's objects were all removed: files of clients without any other are to be deleted."""
        self.remove_all.update(client for client, owner in self._disk.owners.items() if owner.connected)

    # --- writing to disk ---

    def offload_heartbeat(self, now_ms: int, client: bytes, offloading: bool) -> Answered[list[DiskTask]]:
        """The objects that a client is to write to its disk now."""
        if not self._is_connected(client):
            return Answered(Code.SEGMENT_NOT_FOUND, [], 0)
        if not offloading:
            self._offloads.close(client)
            return Answered(Code.OK, [], 0)
        self._offloads.open(client)  # this leader may have begun after the mount
        return Answered(Code.OK, self._offloads.hand_out(client, now_ms + self._clock.offset), self._log.last_n)

    def offloaded(self, now_ms: int, client: bytes, notices: Sequence[Written]) -> Acknowledged:
        """A client has written objects to its disk, or has found files there after a restart."""
        if not self.is_on:
            return Acknowledged(Code.NO_OFFLOAD if notices else Code.OK, 0)
        if notices and not self._is_connected(client):
            for notice in notices:
                self._offloads.take_handed_out(client, (notice.tenant, notice.key))
            return Acknowledged(Code.SEGMENT_NOT_FOUND, self._log.range_n)
        if self._log.refuses_records():
            return Acknowledged(Code.NO_SPACE, 0)
        newest = max(self._last_bucket.get(client, 0), self._disk.newest_bucket(client))
        after, items, endpoint, size = 0, list[DiskItem](), "", 0
        for notice in notices:
            item = self._accept(now_ms, client, notice, newest)
            if item is None:
                continue
            if items and (
                notice.endpoint != endpoint or len(items) == batch_record_keys_max or size > disk_record_bytes_max
            ):
                after, items, size = self._decisions.emit(DiskStored(now_ms, client, endpoint, tuple(items))), [], 0
            items.append(item)
            endpoint, size = notice.endpoint, size + len(notice.key) + len(notice.tenant)
        if items:
            after = self._decisions.emit(DiskStored(now_ms, client, endpoint, tuple(items)))
        return Acknowledged(Code.OK, after)

    def _accept(self, now_ms: int, client: bytes, notice: Written, newest: int) -> DiskItem | None:
        name = (notice.tenant, notice.key)
        if notice.size < 0:
            offload = self._offloads.take_handed_out(client, name)
            version = self._disk.find(*name)
            if version is not None and any(r.owner == client for r in version.replicas):
                # Its notice arrived, and the answer did not: the client has deleted the file.
                self._decisions.emit(DiskEvict(now_ms, *name, version.row.put_seq, client))
            elif offload is not None:
                self._offloads.try_again(client, name, offload)
            return None
        if 0 < notice.bucket <= newest or len(notice.endpoint) > _TEXT_MAX:
            return self._relist(client, notice)  # repeated: that file was reported before
        offload = self._offloads.take_handed_out(client, name)
        if offload is None:
            return self._relist(client, notice)
        self._last_bucket[client] = max(self._last_bucket.get(client, 0), notice.bucket)
        if notice.size != offload.size or not self._offloads.stands(name, offload):
            return self._refuse()
        entry = self._catalog.lookup(*name)
        return None if entry is None else _item(entry, notice, b"")

    def _relist(self, client: bytes, notice: Written) -> DiskItem | None:
        """A file of an earlier process: the same version only if it is the file that the journal lists."""
        version = self._disk.find(notice.tenant, notice.key)
        if version is None or notice.bucket <= 0 or notice.size != version.row.size or len(notice.endpoint) > _TEXT_MAX:
            return self._refuse()
        there = [
            r for r in version.replicas
            if r.is_at(notice.bucket, notice.offset, notice.key_size) and self._disk.owner_of(r) is not None
        ]  # fmt: skip
        if not there:
            return self._refuse()
        if any(r.owner == client and r.endpoint == notice.endpoint for r in there):
            return None
        gone = next((r.owner for r in there if not self._disk.owners[r.owner].connected), b"")
        return _item(version.row, notice, gone)

    def _refuse(self) -> DiskItem | None:
        self.refused_notices += 1
        return None

    def evict(
        self, now_ms: int, client: bytes, tenant: bytes, keys: Sequence[bytes], kind: int
    ) -> Answered[list[Code]]:
        """A client deletes its copies of these objects."""
        codes, after = [], 0
        for key in keys:
            code, n = self._evict_one(now_ms, client, tenant, key, kind)
            codes.append(code)
            after = max(after, n)
        return Answered(Code.OK, codes, max(after, self._log.range_n))

    def _evict_one(self, now_ms: int, client: bytes, tenant: bytes, key: bytes, kind: int) -> tuple[Code, int]:
        version, entry = self._disk.find(tenant, key), self._catalog.lookup(tenant, key)
        if entry is None and version is None:
            return Code.NOT_FOUND, self._log.after_absent(tenant, key)
        if kind not in _DISKS:
            return Code.BAD_PARAMS, 0
        self._offloads.take_handed_out(client, (tenant, key))  # a file that is deleted must not be listed afterwards
        if version is None or kind != ReplicaKind.LOCAL_DISK or all(r.owner != client for r in version.replicas):
            return Code.OK, entry.changed_n if entry is not None else self._log.last_n
        return Code.OK, self._decisions.emit(DiskEvict(now_ms, tenant, key, version.row.put_seq, client))

    # --- reading back into memory ---

    def promotion_heartbeat(self, now_ms: int, client: bytes) -> Answered[list[DiskTask]]:
        """The versions that a client is to read back now."""
        if not self._is_connected(client):
            return Answered(Code.SEGMENT_NOT_FOUND, [], 0)
        return Answered(Code.OK, self._promotions.hand_out(client), self._log.last_n)

    def promotion_start(
        self, now_ms: int, client: bytes, tenant: bytes, key: bytes, size: int, preferred: Sequence[str]
    ) -> SpaceHandedOut[Object]:
        """Space in memory for a version that this client has on disk."""
        now, name, log = now_ms + self._clock.offset, (tenant, key), self._log
        version, entry = self._disk.readable(tenant, key), self._catalog.lookup(tenant, key)
        if version is None and (entry is None or not self.is_on):
            return SpaceHandedOut(Code.NOT_FOUND if entry is None else Code.NOT_READY, None, log.after_absent(*name))
        handed = self._promotions.handed_out.get(name)
        if version is None or entry is not None or handed is None or handed[1] != version.row.put_seq:
            return SpaceHandedOut(Code.NOT_READY, None, log.last_n)
        if handed[0] != client or size != version.row.size:
            return SpaceHandedOut(Code.BAD_PARAMS, None, log.last_n)
        if version.promotion or now < version.cooling_until:
            return SpaceHandedOut(Code.NOT_READY, None, log.last_n)
        if self._tenants is not None and (code := self._tenants.admit(now, tenant, size, rounds=0)):
            return SpaceHandedOut(code, None, self._tenants.changed_n)
        config = PutConfig(preferred_segments=tuple(preferred))
        extents = self._placement.place(size, config) or self._eviction.place_or_evict(now, size, config)
        if not extents or log.refuses_records():
            return SpaceHandedOut(Code.NO_SPACE, None, 0)
        n = self._decisions.emit(PromoteStart(now_ms, client, tenant, key, version.row.put_seq, size, extents))
        return SpaceHandedOut(Code.OK, self._catalog.unfinished[n], n)

    def promotion_end(self, now_ms: int, client: bytes, tenant: bytes, key: bytes) -> Acknowledged:
        """The bytes are in memory: readers get them there, once durable."""
        version = self._disk.find(tenant, key)
        if version is None:
            there = self._catalog.lookup(tenant, key) is not None
            return Acknowledged(Code.NOT_READY if there else Code.NOT_FOUND, self._log.last_n)
        entry = self._catalog.unfinished.get(version.promotion) if version.promotion else None
        if entry is None:
            return Acknowledged(Code.NOT_READY, self._log.last_n)
        if version.promoter != client:
            return Acknowledged(Code.BAD_PARAMS, self._log.last_n)
        self._promotions.ended((tenant, key))
        lease_ms = self._settings.lease_ttl_ms if self._settings.eviction_policy == "expiry" else 0
        record = PromoteEnd(now_ms, tenant, key, entry.put_seq, version.row.put_seq, lease_ms)
        return Acknowledged(Code.OK, self._decisions.emit(record))

    def promotion_failed(self, now_ms: int, client: bytes, tenant: bytes, key: bytes) -> Acknowledged:
        """The client gives up. Its space is quarantined: bytes may still arrive."""
        name, log = (tenant, key), self._log
        version = self._disk.find(tenant, key)
        if version is None and self._catalog.lookup(tenant, key) is None:
            return Acknowledged(Code.NOT_FOUND if self.is_on else Code.OK, log.after_absent(*name))
        handed = self._promotions.handed_out.get(name)
        if handed is not None and handed[0] != client:
            return Acknowledged(Code.BAD_PARAMS, log.last_n)
        self._promotions.ended(name)
        entry = self._catalog.unfinished.get(version.promotion) if version is not None and version.promotion else None
        if version is None or entry is None or version.promoter != client:
            return Acknowledged(Code.OK, log.last_n)
        return Acknowledged(Code.OK, self._revoke(now_ms, entry))

    def _revoke(self, now_ms: int, entry: Object) -> int:
        left_ms = max(0, self._space.writer_gives_up(entry) - now_ms - self._clock.offset)
        return self._decisions.emit(PutRevoke(now_ms, entry.tenant, entry.key, entry.put_seq, left_ms))

    # --- time ---

    def begin(self) -> None:
        """This node leads from now on. The grace of silent owners starts again."""
        self._offloads.clear()
        self._promotions.clear()
        self._gone_since.clear()
        self._last_bucket.clear()
        self.remove_all.clear()

    def end_silent(self, now: int) -> None:
        """Disconnect owners that have not pinged in time, and forget those that did not return."""
        clients, now_ms = self._owners.clients, now - self._clock.offset
        for client, owner in list(self._disk.owners.items()):
            if owner.connected:
                self._gone_since.pop(client, None)
                if client not in clients:
                    self._close(client)
                    self._decisions.emit(DiskGone(now_ms, client))
                    self._gone_since[client] = now
            elif now - self._gone_since.setdefault(client, now) >= self._settings.disk_grace_ms:
                self._forget(now_ms, client)

    def end_all(self, now_ms: int) -> None:
        """Forget everything: the cluster returns to a feature level without it."""
        for name in list(self._disk.promotions):
            version = self._disk.find(*name)
            entry = self._catalog.unfinished.get(version.promotion) if version is not None else None
            if entry is not None:
                self._revoke(now_ms, entry)
        for client in list(self._disk.owners):
            self._forget(now_ms, client)
        while self._disk.stale:
            self._disk.sweep_some(1_000)


def _item(entry: Object, notice: Written, previous: bytes) -> DiskItem:
    return DiskItem(
        entry.tenant, entry.key, entry.put_seq, entry.size, notice.bucket, notice.offset, notice.key_size,
        entry.client, entry.checksum, entry.data_type, previous,
    )  # fmt: skip
