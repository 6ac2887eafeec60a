"""Writing slices while the state goes on, and reading them back."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.base.errors import LeaseholdError
from leasehold.base.invariants import ensure
from leasehold.base.limits import snapshot_step_extents, snapshot_step_objects
from leasehold.index.copying import Copying
from leasehold.index.model import (
    COMPLETE,
    CopyJob,
    Draft,
    Object,
    Quarantined,
    Replica,
    RetiredExtent,
    RetiredSegment,
    Task,
)
from leasehold.index.snapshot import (
    Keyless,
    QuarantineSlice,
    SavedCopy,
    SavedDraft,
    SavedObject,
    SavedQuarantine,
    SavedReplica,
    SavedRetired,
    SavedSegment,
    SavedTask,
    Slice,
)
from leasehold.index.state import TABLES
from leasehold.index.walk import QuarantineWalk

_TABLES_PER_OBJECT = 48  # looking into so many tables takes as long as saving one object


class BadSnapshot(LeaseholdError):
    """Slices that do not belong together: use another snapshot."""


class Saving(Copying):
    """Fuzzy snapshots (docs/journal.md, "Snapshots and truncation")."""

    def export_slice(
        self, first_table: int, tables_max: int = TABLES, objects_max: int = snapshot_step_objects
    ) -> Slice:
        """All objects of the tables from `first_table` on, as of `last_n`: at least one table, until a bound is met."""
        objects: list[SavedObject] = []
        copies: list[SavedCopy] = []
        # Looking into an empty table is work, too: the more tenants, the fewer tables are in one slice.
        tables_max = min(tables_max, max(1, objects_max * _TABLES_PER_OBJECT // max(1, len(self.tables))))
        beyond = min(TABLES, first_table + tables_max)
        side_by_side = zip(*(tables[first_table:beyond] for tables in self.tables.values()), strict=True)
        for number, of_all_tenants in enumerate(side_by_side, first_table):
            if not any(of_all_tenants):
                continue
            for table in of_all_tenants:
                self._save_table(table, objects, copies)
            if len(objects) >= objects_max:
                beyond = number + 1
                break
        return Slice(first_table, beyond - first_table, self.epoch, self.last_n, tuple(objects), tuple(copies))

    def _save_table(self, table: dict[bytes, Object], objects: list[SavedObject], copies: list[SavedCopy]) -> None:
        objects += map(self._save, table.values())
        if not self.pending and not self.copies:
            return
        for entry in table.values():  # what is beside an object, or copied from it, is saved with it
            name = (entry.tenant, entry.key)
            beside, job = self.pending.get(name), self.copies.get(name)
            if beside is not None:
                objects.append(self._save(beside, True))
            if job is not None:
                copies.append(SavedCopy(
                    job.tenant, job.key, job.put_seq, job.size, job.client, job.started_n, job.started - self.offset,
                    job.source, job.moves, _save_replicas(job.replicas),
                ))  # fmt: skip

    def _save(self, entry: Object, beside: bool = False) -> SavedObject:
        offset = self.offset
        draft = entry.draft
        saved_draft = None
        if draft is not None:
            saved_draft = SavedDraft(
                draft.started - offset, draft.soft_pin, draft.soft_pin_ttl_ms, draft.request, draft.in_place, beside
            )  # fmt: skip
        # Never 0 if it was ever pinned, however long ago: see `expiring`.
        soft_pin_end_ms = (entry.soft_pin_end - offset or -1) if entry.soft_pin_end else 0
        return SavedObject(
            entry.tenant, entry.key, entry.put_seq, entry.changed_n, entry.size, _save_replicas(entry.replicas),
            entry.client, entry.lease_end - offset, soft_pin_end_ms, entry.hard_pin,
            entry.group, entry.checksum, entry.data_type, saved_draft,
        )  # fmt: skip

    def export_quarantine(self, walk: QuarantineWalk, extents_max: int = snapshot_step_extents) -> QuarantineSlice:
        """The next of what rests, or what has come to rest since: one short step."""
        return QuarantineSlice(self._save_limbo(walk.step(extents_max)))

    def _save_limbo(self, entries: Iterable[Quarantined]) -> tuple[SavedQuarantine, ...]:
        offset, end_of = self.offset, self.limbo_end_of
        return tuple(
            SavedQuarantine(e.segment.incarnation, e.offset, e.size, e.duration_ms, end_of(e) - offset, e.n)
            for e in entries
        )

    def export_keyless(self, walk: QuarantineWalk | None = None) -> Keyless:
        """The last slice: what has no key; of limbo, what this walk (which ends here) has not told of yet."""
        offset = self.offset
        segments = tuple(
            SavedSegment(s.spec, s.client, s.incarnation, s.drain_end - offset if s.drain_end else None, s.evicted)
            for s in self.segments.values()
        )
        quarantine = self._save_limbo(self._live_limbo() if walk is None else walk.rest())
        retired = tuple(
            SavedRetired(
                g.endpoint, g.base, g.size, g.end - offset, g.duration_ms,
                tuple((e.address, e.size, e.end - offset, e.duration_ms) for e in g.extents),
            )
            for g in self.retired
        )  # fmt: skip
        tasks = tuple(
            SavedTask(
                t.id, t.kind, t.tenant, t.key, t.source, t.targets, t.client, t.created_ms, t.updated_ms, t.status,
                t.message,
            )
            for t in self.tasks.values()
        )  # fmt: skip
        return Keyless(
            self.epoch, self.last_n, self.latest - offset, self.max_term_ms, self.older_than - offset,
            self.floor - offset, self.epoch_start - offset, segments, tuple(self.clients), quarantine, retired, tasks,
            self._all_in_doubt(), self.unheard_n,
        )  # fmt: skip

    def load(self, keyless: Keyless, slices: Iterable[Slice], quarantined: Iterable[QuarantineSlice] = ()) -> None:
        """Fill an empty index. `last_n` becomes the lowest slice number: replay from there.

        Where two claim a byte the higher number wins; what names a mount that is no more is void (schedule 15).
        """
        ensure(not self.last_n and not self.segments, "only an empty index is loaded")
        self._load_keyless(keyless)
        covered_n = [-1] * TABLES
        claims: list[tuple[int, Object | CopyJob, SavedReplica]] = []
        objects: list[tuple[Object, bool]] = []
        for one in slices:
            if one.epoch != keyless.epoch or one.n > keyless.n:
                raise BadSnapshot(f"slice {one.first_table} is of epoch {one.epoch}, the snapshot of {keyless.epoch}")
            _cover(covered_n, one)
            for saved in one.objects:
                entry = _load_object(saved)
                objects.append((entry, saved.draft is not None and saved.draft.beside))
                claims += [(replica.id >> 4, entry, replica) for replica in saved.replicas]
            for copy in one.copies:
                job = CopyJob(
                    copy.tenant, copy.key, copy.put_seq, copy.size, copy.client, copy.started_n, copy.started_ms,
                    copy.source, copy.moves, (),
                )  # fmt: skip
                self.copies[(copy.tenant, copy.key)] = job
                claims += [(replica.id >> 4, job, replica) for replica in copy.replicas]
        if -1 in covered_n:
            raise BadSnapshot(f"table {covered_n.index(-1)} is in no slice")
        self._load_limbo(keyless.quarantine)
        for some in quarantined:
            self._load_limbo(some.quarantine)
        self._load_claims(claims)
        self._load_objects(objects)
        self.last_n = min(covered_n)
        self.keyless_n = keyless.n
        if self.last_n < keyless.n:
            self.covered_n = covered_n
        if self.covered_n is None:
            self._end_homeless()
            self._place_limbo()

    def _load_keyless(self, keyless: Keyless) -> None:
        self.epoch = keyless.epoch
        self.latest = keyless.latest_ms
        self.max_term_ms = keyless.max_term_ms
        self.older_than, self.floor = keyless.older_than_ms, keyless.floor_ms
        self.epoch_start = keyless.epoch_start_ms
        for saved in keyless.segments:
            segment = self._add_segment(saved.spec, saved.client, saved.incarnation)
            segment.drain_end = 0 if saved.drain_end_ms is None else saved.drain_end_ms
            segment.evicted = saved.evicted
        self.in_doubt = dict(keyless.in_doubt)
        self.unheard_n = keyless.unheard_n
        self.segments.refresh_placeable()
        for client in keyless.clients:
            self._hear(client, keyless.latest_ms)
        self.retired = [
            RetiredSegment(
                g.endpoint, g.base, g.size, g.end_ms, g.duration_ms, [RetiredExtent(*extent) for extent in g.extents]
            )
            for g in keyless.retired
        ]
        for task in keyless.tasks:
            self._add_task(Task(
                task.id, task.kind, task.tenant, task.key, task.source, task.targets, task.client, task.created_ms,
                task.updated_ms, task.status, task.message,
            ))  # fmt: skip

    def _load_limbo(self, quarantine: tuple[SavedQuarantine, ...]) -> None:
        for saved in quarantine:
            segment = self.segments.get(saved.incarnation)
            if segment is not None:  # else it has ended since: what had to be remembered is in its grave
                self.limbo_to_come.append(
                    Quarantined(segment, saved.offset, saved.size, saved.duration_ms, saved.end_ms, saved.n)
                )

    def _load_claims(self, claims: list[tuple[int, Object | CopyJob, SavedReplica]]) -> None:
        claims.sort(key=lambda claim: claim[0])
        for n, owner, saved in claims:
            segment = self.segments.get(saved.incarnation)
            if segment is None or not self._claim(segment, saved.offset, owner, n):
                continue
            owner.replicas = (*owner.replicas, Replica(saved.id, segment, saved.offset, saved.status))

    def _load_objects(self, objects: list[tuple[Object, bool]]) -> None:
        self.homeless = homeless = []
        objects.sort(key=lambda pair: pair[0].put_seq)  # the unfinished are kept the oldest first
        for entry, beside in objects:
            if not entry.replicas:
                homeless.append(entry)
            if beside:
                self.pending[(entry.tenant, entry.key)] = entry
            else:
                self._insert(entry)
            if entry.draft is not None:
                self.unfinished[entry.put_seq] = entry
                continue
            entry.visible = not entry.replicas or any(replica.status == COMPLETE for replica in entry.replicas)
            if not entry.hard_pin:
                self.wheel.add(entry, entry.lease_end)
        for name, beside_entry in list(self.pending.items()):
            if self.lookup(*name) is None:
                del self.pending[name]
                self._insert(beside_entry)
        # A primary grants leases after the last record that it decided. Its clock had come at least so far: else the
        # next epoch would not begin beyond these ends, and take them for its own (seed 2657).
        latest_end = max((entry.lease_end for entry, _ in objects), default=0)
        self.latest = max(self.latest, latest_end - self.max_term_ms)


def _cover(covered_n: list[int], one: Slice) -> None:
    """Every table is in exactly one slice: in two, one of them would be older than the other says."""
    first, beyond = one.first_table, one.first_table + one.table_count
    if not 0 <= first < beyond <= TABLES:
        raise BadSnapshot(f"a slice of {one.table_count} tables begins at {first}, of {TABLES}")
    if covered_n[first:beyond].count(-1) != one.table_count:
        raise BadSnapshot(f"a table from {first} to {beyond - 1} is in two slices")
    covered_n[first:beyond] = [one.n] * one.table_count


def _save_replicas(replicas: tuple[Replica, ...]) -> tuple[SavedReplica, ...]:
    if len(replicas) == 1:  # nearly always, and a snapshot has a million of them
        r = replicas[0]
        return (SavedReplica(r.id, r.segment.incarnation, r.offset, r.status),)
    return tuple(SavedReplica(r.id, r.segment.incarnation, r.offset, r.status) for r in replicas)


def _load_object(saved: SavedObject) -> Object:
    draft = saved.draft
    return Object(
        saved.key, saved.tenant, saved.put_seq, saved.changed_n, saved.size, (), saved.client, saved.lease_end_ms,
        saved.soft_pin_end_ms, saved.hard_pin, False, False, saved.group,
        None if draft is None
        else Draft(draft.started_ms, draft.soft_pin, draft.soft_pin_ttl_ms, draft.request, draft.in_place),
        saved.checksum, saved.data_type,
    )  # fmt: skip
