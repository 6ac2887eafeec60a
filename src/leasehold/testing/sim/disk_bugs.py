"""Bugs of the disk tier, planted from outside."""

from __future__ import annotations

import msgspec

from leasehold.base.limits import snapshot_step_objects
from leasehold.index.disk import DiskTier
from leasehold.index.disk_commands import Disks, Written
from leasehold.index.index import Index
from leasehold.index.model import DiskVersion, Object
from leasehold.index.offloads import Offload, Offloads
from leasehold.index.records import DiskItem
from leasehold.index.snapshot_export import SnapshotExport
from leasehold.index.snapshot_format import DiskSlice, Slice
from leasehold.index.tables import TABLES, Name


def bend_disks(bugs: frozenset[str], index: Index) -> None:
    """Plant bugs into a new index."""
    if "notice-of-any-version" in bugs:
        index.offloads.__class__ = CarelessOffloads
        index.disks.__class__ = CarelessDisks
    if "notice-creates" in bugs:
        index.disks.__class__ = CreatingDisks
    if "sent-to-the-silent" in bugs:
        index.disk.__class__ = SilentTier
    if "memory-takes-all" in bugs:
        index.disk.__class__ = VolatileTier
    if "promotion-again" in bugs:
        index.disk.__class__ = HastyTier
    if "forgets-nothing-removed" in bugs:
        index.disk.__class__ = LastingTier
    if "snapshot-without-disks" in bugs:
        index.export.__class__ = ExportWithoutDisks


class CarelessOffloads(Offloads):
    """A notice counts for the present version."""

    __slots__ = ()

    def stands(self, name: Name, offload: Offload) -> bool:
        entry = self._catalog.lookup(*name)
        return entry is not None and entry.visible and entry.size == offload.size


class CarelessDisks(Disks):
    """Repeated notices count too."""

    __slots__ = ()

    def _relist(self, client: bytes, notice: Written) -> DiskItem | None:
        entry = self._catalog.lookup(notice.tenant, notice.key)
        if entry is None or not entry.visible or entry.size != notice.size:
            return None
        return _item(entry, notice)


class CreatingDisks(Disks):
    """A file that a restarted client reports becomes an object, as in the C++ master."""

    __slots__ = ()

    def _relist(self, client: bytes, notice: Written) -> DiskItem | None:
        if self._disk.find(notice.tenant, notice.key) is not None:
            return super()._relist(client, notice)
        if self._catalog.lookup(notice.tenant, notice.key) is not None:
            return None
        return DiskItem(
            notice.tenant, notice.key, self._log.last_n, notice.size, notice.bucket, notice.offset, notice.key_size,
            client,
        )  # fmt: skip


class SilentTier(DiskTier):
    """Every owner counts as connected."""

    __slots__ = ()

    def read(self, tenant: bytes, key: bytes) -> Object | None:
        version = self.find(tenant, key)
        return version.row if version is not None else None


class VolatileTier(DiskTier):
    """A version that leaves memory leaves the disks too."""

    __slots__ = ()

    def read(self, tenant: bytes, key: bytes) -> Object | None:
        version = self.find(tenant, key)
        return super().read(tenant, key) if version is not None and self.is_in_memory(version.row) else None


class HastyTier(DiskTier):
    """A promotion that failed may be repeated immediately."""

    __slots__ = ()

    def end_promotion(self, tenant: bytes, key: bytes, n: int, cooling_until: int) -> None:
        super().end_promotion(tenant, key, n, 0)


class LastingTier(DiskTier):
    """Removed and replaced versions stay on disk."""

    __slots__ = ()

    def drop(self, tenant: bytes, key: bytes, before_n: int, n: int) -> DiskVersion | None:
        return None


class ExportWithoutDisks(SnapshotExport):
    """Snapshots lack the versions on disk."""

    __slots__ = ()

    def tables(self, first_table: int, tables_max: int = TABLES, objects_max: int = snapshot_step_objects) -> Slice:
        made = super().tables(first_table, tables_max, objects_max)
        return msgspec.structs.replace(made, disk=()) if isinstance(made, DiskSlice) else made


def _item(entry: Object, notice: Written) -> DiskItem:
    return DiskItem(
        entry.tenant, entry.key, entry.put_seq, entry.size, notice.bucket, notice.offset, notice.key_size, entry.client
    )
