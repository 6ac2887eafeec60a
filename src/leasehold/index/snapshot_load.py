"""Filling an empty index from the slices of a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from leasehold.base.errors import LeaseholdError
from leasehold.base.invariants import ensure
from leasehold.base.limits import extent_alignment_bytes, snapshot_step_objects
from leasehold.index.apply import Applier
from leasehold.index.catalog import Catalog
from leasehold.index.clock import LeaderClock
from leasehold.index.coverage import Coverage
from leasehold.index.disk import DiskTier, disk_row
from leasehold.index.drains import Drains
from leasehold.index.features import Features
from leasehold.index.log import Log
from leasehold.index.model import (
    CopyJob,
    DiskReplica,
    DiskVersion,
    Draft,
    Extra,
    Object,
    Quarantined,
    Replica,
    RetiredExtent,
    RetiredSegment,
    Segment,
    Task,
)
from leasehold.index.owners import Owners
from leasehold.index.quotas import Quotas
from leasehold.index.records import Extent
from leasehold.index.shared import Shared
from leasehold.index.snapshot_format import (
    DiskSlice,
    Keyless,
    QuarantineSlice,
    SavedDiskVersion,
    SavedObject,
    SavedQuarantine,
    SavedReplica,
    Slice,
)
from leasehold.index.space.space import Space
from leasehold.index.tables import TABLES
from leasehold.index.tasks import TaskTable

Part = Slice | QuarantineSlice


class StaleClaim(Struct, frozen=True, gc=False):
    """A claim that lost against a newer one, or is older than one that lost: see `SnapshotLoad`."""

    n: int
    extent: Extent
    size: int


class BadSnapshot(LeaseholdError):
    """The slices do not belong together: use another snapshot."""


class SnapshotLoad:
    """Loads a snapshot, whose slices may be of different ages. Records replayed over it bring all of it to one age.

    **In any order.** Where two claim a byte the higher record number wins. A claim that lost has still ended older
    ones: with the claims 1 on bytes 0 to 9, 2 on 5 to 14 and 3 on 12 to 19, only the third is valid, also if the second
    is met after the third and before the first. So claims that lost are remembered (stale claims) and displace what is
    older than they are when all parts are loaded. A sort of all claims would be one step, of 10 s with ten million.
    """

    __slots__ = (
        "_applier",
        "_catalog",
        "_clock",
        "_coverage",
        "_disk",
        "_drains",
        "_features",
        "_latest_end",
        "_log",
        "_on_disk",
        "_owners",
        "_quotas",
        "_shared",
        "_space",
        "_stale_claims",
        "_tasks",
        "_unfinished",
    )  # fmt: skip

    def __init__(
        self,
        clock: LeaderClock,
        log: Log,
        features: Features,
        coverage: Coverage,
        space: Space,
        catalog: Catalog,
        owners: Owners,
        tasks: TaskTable,
        quotas: Quotas,
        drains: Drains,
        disk: DiskTier,
        applier: Applier,
    ) -> None:
        self._clock = clock
        self._log = log
        self._features = features
        self._coverage = coverage
        self._space = space
        self._catalog = catalog
        self._owners = owners
        self._tasks = tasks
        self._quotas = quotas
        self._drains = drains
        self._disk = disk
        self._applier = applier
        self._shared = Shared()
        self._stale_claims: list[StaleClaim] = []
        self._unfinished: list[tuple[Object, bool]] = []  # puts, and whether each is beside a readable version
        self._on_disk: list[SavedDiskVersion] = []
        self._latest_end = 0

    def loading(self, keyless: Keyless, parts: Iterable[Part]) -> Iterator[None]:
        """Fill an empty index. `last_n` becomes the lowest slice number: replay from there. Pauses after
        each part, or some objects of it.

        Where two claim a byte the higher number wins; an extent on an unmounted segment is void (schedule 15).
        """
        ensure(not self._log.last_n and not self._space.segments, "only an empty index is loaded")
        self._load_keyless(keyless)
        self._coverage.begin_load()
        tables_n = [-1] * TABLES
        for part in parts:
            if isinstance(part, QuarantineSlice):
                self._load_quarantine(part.quarantine)
            else:
                if part.epoch != keyless.epoch or part.n > keyless.n:
                    raise BadSnapshot(
                        f"slice {part.first_table} is of epoch {part.epoch}, the snapshot of {keyless.epoch}"
                    )
                _cover(tables_n, part)
                yield from self._load_slice(part)
            yield
        if -1 in tables_n:
            raise BadSnapshot(f"table {tables_n.index(-1)} is in no slice")
        self._load_quarantine(keyless.quarantine)
        for stale in sorted(self._stale_claims, key=lambda one: one.n):
            self._space.displace_older(stale.n, (stale.extent,), stale.size, self._lose)
        self._load_unfinished()
        yield from self._load_disk()
        # A primary grants leases after the last record that it decided, so its clock was at least there. Otherwise the
        # next epoch would not begin beyond these ends, and would treat them as its own (seed 2657).
        self._clock.see(self._latest_end - self._clock.max_term_ms)
        self._log.load(keyless.epoch, min(tables_n))
        self._coverage.start(tables_n, keyless.n)
        self._stale_claims, self._unfinished, self._on_disk, self._shared = [], [], [], Shared()
        if self._coverage.tables_n is None:
            self._applier.end_replay()
            while self._applier.finish_some():
                yield

    def _load_slice(self, part: Slice) -> Iterator[None]:
        for number, saved in enumerate(part.objects, start=1):
            if number % snapshot_step_objects == 0:
                yield
            entry = _object(saved, self._shared)
            for replica in saved.replicas:
                self._claim(entry, replica)
            if not entry.replica_count:
                self._coverage.add_placeless(entry)
            self._latest_end = max(self._latest_end, entry.lease_end)
            if saved.draft is not None:
                self._unfinished.append((entry, saved.draft.beside))
            else:
                self._catalog.load_object(entry, False)
        for copy in part.copies:
            job = CopyJob(
                copy.tenant, copy.key, copy.put_seq, copy.size, copy.client, copy.started_n, copy.started_ms,
                copy.source, copy.moves, (),
            )  # fmt: skip
            self._catalog.load_copy(job)
            lost = [not self._claim(job, replica) for replica in copy.replicas]
            if all(lost) and any(lost):
                self._catalog.take_copy(job.tenant, job.key, job.started_n)
        if isinstance(part, DiskSlice):
            self._on_disk += part.disk

    def _claim(self, owner: Object | CopyJob, saved: SavedReplica) -> bool:
        """Returns False if a newer owner has the place."""
        segment = self._space.segments.get(saved.incarnation)
        if segment is None:
            return True
        if self._space.claim(segment, saved.offset, owner, saved.id >> 4, self._lose):
            self._catalog.load_place(owner, Replica(saved.id, segment, saved.offset, saved.status))
            return True
        self._stale_claims.append(StaleClaim(saved.id >> 4, Extent(saved.incarnation, saved.offset), owner.size))
        return False

    def _lose(self, owner: Object | CopyJob, segment: Segment, start: int, n: int) -> None:
        """A newer claim has this place."""
        claimed = next((r.id >> 4 for r in owner.replicas if r.segment is segment and r.offset == start), owner.put_seq)
        self._stale_claims.append(StaleClaim(claimed, Extent(segment.incarnation, start), owner.size))
        self._catalog.lose_replica(owner, segment, start, n)
        if isinstance(owner, Object) and not owner.replica_count:
            self._coverage.add_placeless(owner)

    def _load_unfinished(self) -> None:
        """Unfinished puts are kept the oldest first."""
        for entry, beside in sorted(self._unfinished, key=lambda one: one[0].put_seq):
            self._catalog.load_object(entry, beside)
        self._catalog.load_finished()

    def _load_disk(self) -> Iterator[None]:
        """Copies on disks, after the objects that they belong to."""
        for number, version in enumerate(self._on_disk, start=1):
            if number % snapshot_step_objects == 0:
                yield
            self._disk.load_version(_on_disk(version))

    def _load_keyless(self, keyless: Keyless) -> None:
        self._clock.load(
            keyless.latest_ms, keyless.max_term_ms, keyless.older_than_ms, keyless.grace_end_ms, keyless.epoch_start_ms
        )
        self._features.switch(keyless.level, keyless.switched_n)
        adopted = {incarnation: (unit, awaits) for incarnation, unit, awaits in keyless.adopted}
        for saved in keyless.segments:
            drain_end = 0 if saved.drain_end_ms is None else saved.drain_end_ms
            unit, awaits_mount = adopted.get(saved.incarnation, (extent_alignment_bytes, False))
            self._space.load_segment(
                saved.spec, saved.client, saved.incarnation, drain_end, saved.evicted, unit, awaits_mount
            )
        retired = [
            RetiredSegment(
                g.endpoint, g.base, g.size, g.end_ms, g.duration_ms, [RetiredExtent(*extent) for extent in g.extents]
            )
            for g in keyless.retired
        ]
        self._space.load(retired, dict(keyless.suspect))
        self._owners.set_unproven_before_n(keyless.unproven_before_n)
        self._quotas.load(keyless.quotas)
        self._drains.load(keyless.drains)
        for owner in keyless.disk_owners:
            self._disk.load_owner(*owner)
        for client in keyless.clients:
            self._owners.seen(client, keyless.latest_ms)
        for task in keyless.tasks:
            self._tasks.add(Task(
                task.id, task.kind, task.tenant, task.key, task.source, task.targets, task.client, task.created_ms,
                task.updated_ms, task.status, task.message,
            ))  # fmt: skip

    def _load_quarantine(self, quarantine: tuple[SavedQuarantine, ...]) -> None:
        for saved in quarantine:
            segment = self._space.segments.get(saved.incarnation)
            if segment is not None:  # else it was unmounted since, and its retired segment has the extent
                self._space.load_quarantined(
                    Quarantined(segment, saved.offset, saved.size, saved.duration_ms, saved.end_ms, saved.n)
                )


def _cover(tables_n: list[int], one: Slice) -> None:
    """Every table is in exactly one slice: with two, one of them would be of another age."""
    first, beyond = one.first_table, one.first_table + one.table_count
    if not 0 <= first < beyond <= TABLES:
        raise BadSnapshot(f"a slice of {one.table_count} tables begins at {first}, of {TABLES}")
    if tables_n[first:beyond].count(-1) != one.table_count:
        raise BadSnapshot(f"a table from {first} to {beyond - 1} is in two slices")
    tables_n[first:beyond] = [one.n] * one.table_count


def _on_disk(saved: SavedDiskVersion) -> DiskVersion:
    row = disk_row(
        saved.key, saved.tenant, saved.put_seq, saved.changed_n, saved.size, saved.writer, saved.lease_end_ms,
        saved.checksum, saved.data_type,
    )  # fmt: skip
    replicas = tuple(DiskReplica(r.id, r.owner, r.endpoint, r.bucket, r.offset, r.key_size) for r in saved.replicas)
    return DiskVersion(row, replicas, saved.promotion, saved.promoter, saved.cooling_until_ms or 0)


def _object(saved: SavedObject, shared: Shared) -> Object:
    """An object without its places."""
    tenant, client, size = shared.values(saved.tenant, saved.client, saved.size)
    draft = None
    if (old := saved.draft) is not None:
        draft = Draft(old.started_ms, old.soft_pin, old.soft_pin_ttl_ms, old.request, old.in_place)
    extra = Extra(draft, saved.group, saved.soft_pin_end_ms, saved.hard_pin, saved.checksum, saved.data_type)
    return Object(
        saved.key, tenant, saved.put_seq, saved.changed_n, size, client, saved.lease_end_ms, draft is None, False,
        None, 0, None if extra.is_empty else extra,
    )  # fmt: skip
