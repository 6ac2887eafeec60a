"""Writing the slices of a fuzzy snapshot while the state changes."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.base.limits import extent_alignment_bytes, snapshot_step_extents, snapshot_step_objects
from leasehold.index.catalog import Catalog
from leasehold.index.clock import LeaderClock
from leasehold.index.disk import DiskTier
from leasehold.index.drains import Drains
from leasehold.index.features import Features
from leasehold.index.log import Log
from leasehold.index.model import DiskVersion, Object, Quarantined, Replica
from leasehold.index.owners import Owners
from leasehold.index.quotas import Quotas
from leasehold.index.snapshot_format import (
    DiskSlice,
    Keyless,
    QuarantineSlice,
    SavedCopy,
    SavedDiskReplica,
    SavedDiskVersion,
    SavedDraft,
    SavedObject,
    SavedQuarantine,
    SavedReplica,
    SavedRetired,
    SavedSegment,
    SavedTask,
    Slice,
)
from leasehold.index.space.space import Space
from leasehold.index.space.walk import QuarantineWalk
from leasehold.index.tables import TABLES
from leasehold.index.tasks import TaskTable

_TABLES_PER_OBJECT = 48  # looking into this many tables takes as long as saving one object


class SnapshotExport:
    """Each method is one short step, and the state may change between them (docs/journal.md, "Snapshots")."""

    __slots__ = (
        "_catalog",
        "_clock",
        "_disk",
        "_drains",
        "_features",
        "_log",
        "_owners",
        "_quotas",
        "_space",
        "_tasks",
    )

    def __init__(
        self,
        clock: LeaderClock,
        log: Log,
        features: Features,
        space: Space,
        catalog: Catalog,
        owners: Owners,
        tasks: TaskTable,
        quotas: Quotas,
        drains: Drains,
        disk: DiskTier,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._log = log
        self._features = features
        self._space = space
        self._catalog = catalog
        self._owners = owners
        self._tasks = tasks
        self._quotas = quotas
        self._drains = drains

    def tables(self, first_table: int, tables_max: int = TABLES, objects_max: int = snapshot_step_objects) -> Slice:
        """All objects of the tables from `first_table` on, as of now: at least one table, until a bound is reached."""
        objects: list[SavedObject] = []
        copies: list[SavedCopy] = []
        # Looking into an empty table is work, too: the more tenants, the fewer tables are in one slice.
        by_tenant = self._catalog.tables
        tables_max = min(tables_max, max(1, objects_max * _TABLES_PER_OBJECT // max(1, len(by_tenant))))
        beyond = self._bounded_by_disk(first_table, min(TABLES, first_table + tables_max), objects_max)
        side_by_side = zip(*(tables[first_table:beyond] for tables in by_tenant.values()), strict=True)
        for number, of_all_tenants in enumerate(side_by_side, first_table):
            if not any(of_all_tenants):
                continue
            for table in of_all_tenants:
                self._save_table(table, objects, copies)
            if len(objects) >= objects_max:
                beyond = number + 1
                break
        log = self._log
        on_disk = tuple(map(self._save_on_disk, self._disk.on_shelves(first_table, beyond))) if self._disk.count else ()
        if on_disk:
            return DiskSlice(
                first_table, beyond - first_table, log.epoch, log.last_n, tuple(objects), tuple(copies), on_disk
            )
        return Slice(first_table, beyond - first_table, log.epoch, log.last_n, tuple(objects), tuple(copies))

    def _bounded_by_disk(self, first_table: int, beyond: int, objects_max: int) -> int:
        """The end of a run of tables with about `objects_max` versions on disk at most."""
        shelves, found = self._disk.shelves, 0
        for number in range(first_table, beyond) if shelves else ():
            found += len(shelves.get(number, ()))
            if found >= objects_max:
                return number + 1
        return beyond

    def _save_on_disk(self, version: DiskVersion) -> SavedDiskVersion:
        row, offset = version.row, self._clock.offset
        return SavedDiskVersion(
            row.tenant, row.key, row.put_seq, row.changed_n, row.size, row.client, row.lease_end - offset,
            row.checksum, row.data_type,
            tuple(SavedDiskReplica(r.id, r.owner, r.endpoint, r.bucket, r.offset, r.key_size)
                  for r in version.replicas),
            version.promotion, version.promoter,
            version.cooling_until - offset if version.cooling_until else None,
        )  # fmt: skip

    def _save_table(self, table: dict[bytes, Object], objects: list[SavedObject], copies: list[SavedCopy]) -> None:
        objects += map(self._save, table.values())
        catalog = self._catalog
        if not catalog.pending and not catalog.copies:
            return
        for entry in table.values():  # an upsert or a copy is saved with its object
            name = (entry.tenant, entry.key)
            beside, job = catalog.pending.get(name), catalog.copies.get(name)
            if beside is not None:
                objects.append(self._save(beside, True))
            if job is not None:
                copies.append(SavedCopy(
                    job.tenant, job.key, job.put_seq, job.size, job.client, job.started_n,
                    job.started - self._clock.offset, job.source, job.moves, _save_replicas(job.replicas),
                ))  # fmt: skip

    def _save(self, entry: Object, beside: bool = False) -> SavedObject:
        offset = self._clock.offset
        draft = entry.draft
        saved_draft = None
        if draft is not None:
            saved_draft = SavedDraft(
                draft.started - offset, draft.soft_pin, draft.soft_pin_ttl_ms, draft.request, draft.in_place, beside
            )  # fmt: skip
        # Never 0 if it was ever pinned, however long ago: see `Eviction.expire_until`.
        soft_pin_end_ms = (entry.soft_pin_end - offset or -1) if entry.soft_pin_end else 0
        return SavedObject(
            entry.tenant, entry.key, entry.put_seq, entry.changed_n, entry.size, _save_replicas(entry.replicas),
            entry.client, entry.lease_end - offset, soft_pin_end_ms, entry.hard_pin,
            entry.group, entry.checksum, entry.data_type, saved_draft,
        )  # fmt: skip

    def quarantine(self, walk: QuarantineWalk, extents_max: int = snapshot_step_extents) -> QuarantineSlice:
        """The next extents in quarantine, or those that were added since."""
        return QuarantineSlice(self._save_quarantine(walk.step(extents_max)))

    def _save_quarantine(self, entries: Iterable[Quarantined]) -> tuple[SavedQuarantine, ...]:
        offset, end_of = self._clock.offset, self._space.quarantine.end_of
        return tuple(
            SavedQuarantine(e.segment.incarnation, e.offset, e.size, e.duration_ms, end_of(e) - offset, e.n)
            for e in entries
        )

    def keyless(self, walk: QuarantineWalk | None = None) -> Keyless:
        """The last slice: everything without a key. Ends `walk` with the extents that it has not reported yet."""
        clock, space = self._clock, self._space
        offset = clock.offset
        segments = tuple(
            SavedSegment(s.spec, s.client, s.incarnation, s.drain_end - offset if s.drain_end else None, s.evicted)
            for s in space.segments.values()
        )
        quarantine = self._save_quarantine(space.quarantine.live() if walk is None else walk.rest())
        retired = tuple(
            SavedRetired(
                g.endpoint, g.base, g.size, g.end - offset, g.duration_ms,
                tuple((e.address, e.size, e.end - offset, e.duration_ms) for e in g.extents),
            )
            for g in space.retired.all()
        )  # fmt: skip
        tasks = tuple(
            SavedTask(
                t.id, t.kind, t.tenant, t.key, t.source, t.targets, t.client, t.created_ms, t.updated_ms, t.status,
                t.message,
            )
            for t in self._tasks.all.values()
        )  # fmt: skip
        return Keyless(
            self._log.epoch, self._log.last_n, clock.latest - offset, clock.max_term_ms, clock.older_than - offset,
            clock.grace_end - offset, clock.epoch_start - offset, segments, tuple(self._owners.clients), quarantine,
            retired, tasks, space.all_suspect(), self._owners.unproven_before_n, self._features.level,
            self._features.switched_n, tuple(self._quotas.policies.items()), self._drains.saved(),
            tuple(
                (s.incarnation, s.allocator.unit, s.awaits_mount)
                for s in space.segments.values()
                if s.awaits_mount or s.allocator.unit != extent_alignment_bytes
            ),
            tuple((o.client, o.since_n, o.connected, o.changed_n, o.newest_bucket) for o in self._disk.owners.values()),
        )  # fmt: skip


def _save_replicas(replicas: tuple[Replica, ...]) -> tuple[SavedReplica, ...]:
    if len(replicas) == 1:  # nearly always, and a snapshot has a million of them
        r = replicas[0]
        return (SavedReplica(r.id, r.segment.incarnation, r.offset, r.status),)
    return tuple(SavedReplica(r.id, r.segment.incarnation, r.offset, r.status) for r in replicas)
