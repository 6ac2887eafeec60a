"""Filling an empty index from the slices of a snapshot."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.base.errors import LeaseholdError
from leasehold.base.invariants import ensure
from leasehold.index.apply import Applier
from leasehold.index.catalog import Catalog
from leasehold.index.clock import LeaderClock
from leasehold.index.coverage import Coverage
from leasehold.index.drains import Drains
from leasehold.index.features import Features
from leasehold.index.log import Log
from leasehold.index.model import CopyJob, Draft, Object, Quarantined, Replica, RetiredExtent, RetiredSegment, Task
from leasehold.index.owners import Owners
from leasehold.index.quotas import Quotas
from leasehold.index.snapshot_format import Keyless, QuarantineSlice, SavedObject, SavedQuarantine, SavedReplica, Slice
from leasehold.index.space.space import Space
from leasehold.index.tables import TABLES
from leasehold.index.tasks import TaskTable

Claim = tuple[int, Object | CopyJob, SavedReplica]  # record, owner, place


class BadSnapshot(LeaseholdError):
    """The slices do not belong together: use another snapshot."""


class SnapshotLoad:
    """Loads a snapshot, whose slices may be of different ages. Records replayed over it bring all of it to one age."""

    __slots__ = (
        "_applier", "_catalog", "_clock", "_coverage", "_drains", "_features", "_log", "_owners", "_quotas", "_space",
        "_tasks",
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
        self._applier = applier

    def load(self, keyless: Keyless, slices: Iterable[Slice], quarantined: Iterable[QuarantineSlice]) -> None:
        """Fill an empty index. `last_n` becomes the lowest slice number: replay from there.

        Where two claim a byte the higher number wins; an extent on an unmounted segment is void (schedule 15).
        """
        ensure(not self._log.last_n and not self._space.segments, "only an empty index is loaded")
        self._load_keyless(keyless)
        tables_n = [-1] * TABLES
        claims: list[Claim] = []
        objects: list[tuple[Object, bool]] = []
        for one in slices:
            if one.epoch != keyless.epoch or one.n > keyless.n:
                raise BadSnapshot(f"slice {one.first_table} is of epoch {one.epoch}, the snapshot of {keyless.epoch}")
            _cover(tables_n, one)
            for saved in one.objects:
                entry = _object(saved)
                objects.append((entry, saved.draft is not None and saved.draft.beside))
                claims += [(replica.id >> 4, entry, replica) for replica in saved.replicas]
            for copy in one.copies:
                job = CopyJob(
                    copy.tenant, copy.key, copy.put_seq, copy.size, copy.client, copy.started_n, copy.started_ms,
                    copy.source, copy.moves, (),
                )  # fmt: skip
                self._catalog.load_copy(job)
                claims += [(replica.id >> 4, job, replica) for replica in copy.replicas]
        if -1 in tables_n:
            raise BadSnapshot(f"table {tables_n.index(-1)} is in no slice")
        self._load_quarantine(keyless.quarantine)
        for some in quarantined:
            self._load_quarantine(some.quarantine)
        self._load_claims(claims)
        self._load_objects(objects)
        self._log.load(keyless.epoch, min(tables_n))
        self._coverage.start(tables_n, keyless.n)
        if self._coverage.tables_n is None:
            self._applier.finish_replay()

    def _load_keyless(self, keyless: Keyless) -> None:
        self._clock.load(
            keyless.latest_ms, keyless.max_term_ms, keyless.older_than_ms, keyless.grace_end_ms, keyless.epoch_start_ms
        )
        self._features.switch(keyless.level, keyless.switched_n)
        for saved in keyless.segments:
            drain_end = 0 if saved.drain_end_ms is None else saved.drain_end_ms
            self._space.load_segment(saved.spec, saved.client, saved.incarnation, drain_end, saved.evicted)
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

    def _load_claims(self, claims: list[Claim]) -> None:
        claims.sort(key=lambda claim: claim[0])
        lose = self._catalog.lose_replica
        for n, owner, saved in claims:
            segment = self._space.segments.get(saved.incarnation)
            if segment is not None and self._space.claim(segment, saved.offset, owner, n, lose):
                self._catalog.load_place(owner, Replica(saved.id, segment, saved.offset, saved.status))

    def _load_objects(self, objects: list[tuple[Object, bool]]) -> None:
        self._coverage.begin_load()
        objects.sort(key=lambda pair: pair[0].put_seq)  # unfinished puts are kept the oldest first
        for entry, beside in objects:
            if not entry.replicas:
                self._coverage.add_placeless(entry)
            self._catalog.load_object(entry, beside)
        self._catalog.load_finished()
        # A primary grants leases after the last record that it decided, so its clock was at least there. Otherwise the
        # next epoch would not begin beyond these ends, and would treat them as its own (seed 2657).
        latest_end = max((entry.lease_end for entry, _ in objects), default=0)
        self._clock.see(latest_end - self._clock.max_term_ms)


def _cover(tables_n: list[int], one: Slice) -> None:
    """Every table is in exactly one slice: with two, one of them would be of another age."""
    first, beyond = one.first_table, one.first_table + one.table_count
    if not 0 <= first < beyond <= TABLES:
        raise BadSnapshot(f"a slice of {one.table_count} tables begins at {first}, of {TABLES}")
    if tables_n[first:beyond].count(-1) != one.table_count:
        raise BadSnapshot(f"a table from {first} to {beyond - 1} is in two slices")
    tables_n[first:beyond] = [one.n] * one.table_count


def _object(saved: SavedObject) -> Object:
    draft = saved.draft
    return Object(
        saved.key, saved.tenant, saved.put_seq, saved.changed_n, saved.size, (), saved.client, saved.lease_end_ms,
        saved.soft_pin_end_ms, saved.hard_pin, False, False, saved.group,
        None if draft is None
        else Draft(draft.started_ms, draft.soft_pin, draft.soft_pin_ttl_ms, draft.request, draft.in_place),
        saved.checksum, saved.data_type,
    )  # fmt: skip
