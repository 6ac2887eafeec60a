"""The state of one master: an object made of parts.

| part | owns |
|---|---|
| `clock` | internal time: offset, grace, maximum lease term |
| `log` | record numbers, outbox, what answers must wait for, refusals |
| `features` | the feature level: which record kinds may be written |
| `coverage` | which records a loaded snapshot already contains |
| `space` | segments, allocators, quarantine, suspect space, retired segments: P3 |
| `renewals` | the contents of the next unlogged batch |
| `leases` | when leases and pins expire; groups: P2 |
| `catalog` | objects, unfinished puts, upserts and copies, the expiry wheel |
| `owners` | storage clients, and whose memory is proven |
| `task_table` | tasks |
| `drains` | drain jobs |
| `quotas` | how much memory each tenant may use, and uses |
| `disk` | versions on the disks of storage clients |
| `offloads`, `promotions` | of a leader: what is to be written to disk, and read back |

Commands decide over these parts (primary): `puts`, `removes`, `mounts`, `copies`, `tasks`, `reads`, `disks`. A
decision is a record: `Decisions.emit` queues it for the journal and applies it by the same handlers (`*_records`) that
a standby applies it with. Renewals and evictions have no records; they travel in unlogged batches.

`now_ms` is leader time. Every command returns a reply that names the record it waits for (`replies`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Final

from leasehold.base.invariants import ensure
from leasehold.index.apply import Applier
from leasehold.index.catalog import Catalog
from leasehold.index.changes import Changes
from leasehold.index.clock import LeaderClock
from leasehold.index.copies import Copies
from leasehold.index.copy_records import CopyRecords
from leasehold.index.coverage import Coverage
from leasehold.index.decisions import Decisions
from leasehold.index.disk import DiskTier
from leasehold.index.disk_commands import Disks
from leasehold.index.disk_records import DiskRecords
from leasehold.index.draining import Draining
from leasehold.index.drains import Drains
from leasehold.index.epoch_records import EpochRecords
from leasehold.index.eviction import Eviction
from leasehold.index.features import LEVEL_OF, Features
from leasehold.index.leases import Leases
from leasehold.index.log import Log
from leasehold.index.mount_records import MountRecords
from leasehold.index.mounts import Mounts
from leasehold.index.offloads import Offloads
from leasehold.index.owners import Owners
from leasehold.index.placement import Placement
from leasehold.index.promotions import Promotions
from leasehold.index.put_records import PutRecords
from leasehold.index.puts import Puts
from leasehold.index.quotas import Quotas
from leasehold.index.reads import Reads
from leasehold.index.records import NEVER_MS, Begin, FeatureLevel, Handover, MaxTerm, SetQuota
from leasehold.index.removes import Removes
from leasehold.index.renewals import Renewals
from leasehold.index.settings import IndexSettings
from leasehold.index.snapshot_export import SnapshotExport
from leasehold.index.snapshot_format import Keyless, QuarantineSlice, Slice
from leasehold.index.snapshot_load import SnapshotLoad
from leasehold.index.space.space import Space
from leasehold.index.tables import Tables
from leasehold.index.tasks import Tasks, TaskTable
from leasehold.index.tenants import Tenants

_MAINTENANCE_MS: Final = 100
_STALL_MS: Final = 1_000  # a longer time between two maintenances: this process did not run
_SWEPT_VERSIONS: Final = 1_000  # on disk, cleared of forgotten owners in one step

Renewal = tuple[bytes, bytes, int, int, int]  # tenant, key, put_seq, lease_end_ms, soft_pin_end_ms
Hint = tuple[bytes, bytes, int]  # tenant, key, put_seq


class Index:
    """Puts the parts together, and has what concerns all of them: epochs, time, unlogged batches, snapshots.

    One thread, no locks, no clock, no randomness.
    """

    __slots__ = (
        "_loader", "_maintained", "apply", "catalog", "changes", "clock", "copies", "coverage", "decisions", "disk",
        "disks", "draining", "drains", "eviction", "export", "features", "finish_some", "leases", "log", "mounts",
        "offloads", "owners", "placement", "promotions", "puts", "quotas", "reads", "removes",
        "renewals", "settings", "space", "task_table", "tasks", "tenants",
    )  # fmt: skip

    def __init__(self, settings: IndexSettings, choose: Callable[[int], int], changes: Changes | None = None) -> None:
        """`choose(n)` returns a number in 0..n-1: the only randomness, from outside. `changes`: for events."""
        self.settings = settings
        release_ms = settings.put_release_ms
        # the state
        self.clock = clock = LeaderClock(settings.lease_ttl_ms)
        self.log = log = Log(clock)
        self.features = features = Features()
        self.coverage = coverage = Coverage()
        self.space = space = Space(clock, coverage, release_ms)
        self.renewals = renewals = Renewals()
        self.leases = leases = Leases(settings, clock, renewals)
        self.changes = changes
        self.quotas = quotas = Quotas(coverage)
        tables: dict[bytes, Tables] = {}
        self.disk = disk = DiskTier(changes, tables)
        self.catalog = catalog = Catalog(
            clock, log, space, leases, release_ms, changes, quotas if settings.tenant_quotas else None, disk, tables
        )
        self.owners = owners = Owners(clock, log, space)
        self.task_table = task_table = TaskTable(log, coverage)
        self.drains = drains = Drains(log, coverage, space, catalog, task_table)
        # records
        handlers = {
            **EpochRecords(clock, log, features, coverage, space, renewals, leases, catalog, owners).handlers(),
            **MountRecords(clock, log, coverage, space, catalog, owners).handlers(),
            **PutRecords(clock, log, coverage, space, catalog, disk, release_ms).handlers(),
            **DiskRecords(clock, log, coverage, space, catalog, owners, disk).handlers(),
            **CopyRecords(clock, coverage, space, catalog).handlers(),
            **task_table.handlers(),
            **quotas.handlers(),
            **drains.handlers(),
        }
        self.decisions = decisions = Decisions(log, features, handlers)
        applier = Applier(clock, log, coverage, space, catalog, handlers)
        self.apply = applier.apply  # standby, replay; the method itself, since a forwarding call costs 60 ns a record
        self.finish_some = applier.finish_some  # standby, after each record: the work that the record left
        # commands
        self.placement = placement = Placement(settings, clock, space, choose)
        self.offloads = offloads = Offloads(settings, catalog, disk)
        self.promotions = promotions = Promotions(settings, space, disk)
        self.eviction = eviction = Eviction(settings, clock, log, space, renewals, leases, catalog, placement, offloads)
        self.reads = Reads(settings, clock, log, leases, catalog, disk, promotions)
        self.tenants = tenants = Tenants(log, features, decisions, space, leases, catalog, eviction, quotas)
        self.puts = Puts(
            settings, clock, log, features, decisions, space, leases, catalog, placement, eviction, tenants,
            disk, offloads,
        )  # fmt: skip
        self.removes = Removes(clock, log, decisions, leases, catalog, eviction, disk)
        self.disks = Disks(
            settings, clock, log, features, decisions, space, catalog, owners, placement, eviction, disk, offloads,
            promotions, tenants if settings.tenant_quotas else None,
        )  # fmt: skip
        self.mounts = Mounts(settings, clock, log, decisions, space, owners)
        self.copies = Copies(
            clock,
            log,
            decisions,
            space,
            leases,
            catalog,
            placement,
            eviction,
            tenants if settings.tenant_quotas else None,
        )
        self.tasks = Tasks(clock, log, decisions, space, eviction, task_table)
        self.draining = Draining(clock, log, features, decisions, space, catalog, self.tasks, task_table, drains)
        # snapshots
        self.export = SnapshotExport(clock, log, features, space, catalog, owners, task_table, quotas, drains, disk)
        self._loader = SnapshotLoad(
            clock, log, features, coverage, space, catalog, owners, task_table, quotas, drains, disk, applier
        )
        self._maintained = -_MAINTENANCE_MS

    # --- epochs ---

    def begin(
        self,
        now_ms: int,
        epoch: int,
        *,
        handover_ms: int | None = None,
        drift_ms: int = 0,
        owners_unproven: bool = False,
    ) -> int:
        """Primary: decide the first record of an epoch; returns its number.

        With `handover_ms` (leader time of the old epoch's hand-over) older lease ends are mapped; else all get grace.
        The maximum term never shrinks here: leases of the old length may be live (schedule 9).
        `owners_unproven`: all nodes were down, or for an unknown time: wait for the owners of memory (H9).
        """
        clock, log = self.clock, self.log
        ensure(self.coverage.tables_n is None, "P1 an epoch begins only on a complete replay")
        while self.finish_some():
            pass
        ensure(epoch > log.epoch, "P4 epochs grow", epoch, log.epoch)
        max_term_ms = max(clock.max_term_ms, self.settings.lease_ttl_ms)
        self._maintained = -_MAINTENANCE_MS
        # Owners that the leader before waited for, and has not reported as proven, are waited for again.
        unproven_n = log.last_n + 1 if owners_unproven else self.owners.unproven_before_n
        if handover_ms is not None:
            n = self.decisions.emit(Begin(now_ms, epoch, max_term_ms, 0, handover_ms, drift_ms, 0, unproven_n))
        else:
            shift_ms = clock.latest + clock.max_term_ms + 1 - clock.offset
            n = self.decisions.emit(
                Begin(now_ms, epoch, max_term_ms, clock.max_term_ms, NEVER_MS, 0, shift_ms, unproven_n)
            )
        self.owners.distrust(unproven_n)
        self.space.begin_settling()
        self.disks.begin()
        return n

    def handover(self, now_ms: int, last_unlogged: int) -> int:
        """Primary: decide the last record of this epoch. Nothing may be decided after it."""
        return self.decisions.emit(Handover(now_ms, self.log.epoch, last_unlogged))

    def set_feature_level(self, now_ms: int, level: int) -> int:
        """Primary: decide which record kinds may be written from now on; returns the record's number.

        State of a level that is left ends first: a snapshot of the lower level could not hold it.
        """
        if level < LEVEL_OF[SetQuota]:
            self.tenants.delete_all(now_ms)
            self.draining.end_all(now_ms)
            self.mounts.end_adopted_units(now_ms)
            self.disks.end_all(now_ms)
        return self.decisions.emit(FeatureLevel(now_ms, level))

    # --- time ---

    def work(self, now_ms: int, budget: int = 256) -> bool:
        """Primary, between requests: time-outs, quarantine, eviction; at most about `budget` objects.

        Returns True if there is more to do: call again soon.
        """
        now = now_ms + self.clock.offset
        self.clock.see(now)
        if not 0 <= now - self._maintained < _MAINTENANCE_MS:
            stalled_ms = now - self._maintained - _STALL_MS if self._maintained >= 0 else 0
            self._maintained = now
            if stalled_ms > 0:
                self.owners.stalled(now, stalled_ms, self.settings.client_ttl_ms)
            self._maintain(now)
        space, catalog = self.space, self.catalog
        if space.free_quarantined(now) or (catalog.ending and catalog.settle_some(budget)):
            return True
        if space.unsettled and space.settle_some(now, budget):
            return True
        return self.eviction.evict_some(now, budget)

    def _maintain(self, now: int) -> None:
        self.space.retired.prune(now)
        self.catalog.forget_some_tenants()
        self.placement.forget_dead(self.owners.clients)
        self.mounts.end_silent_clients(now)
        self.mounts.end_drained(now)
        if self.disk.owners:
            self.disks.end_silent(now)
        if self.disk.stale:
            self.disk.sweep_some(_SWEPT_VERSIONS)
        self.copies.end_stale(now)
        self.puts.end_stale(now)
        if self.task_table.open:
            self.tasks.end_stale(now)
        if self.drains.jobs:
            self.draining.work(now)
        clock, ttl_ms = self.clock, self.settings.lease_ttl_ms
        if clock.max_term_ms > ttl_ms and now >= clock.epoch_start + clock.max_term_ms:
            self.decisions.emit(MaxTerm(now - clock.offset, ttl_ms))  # one old term later: no longer lease can be live

    def observe(self, leader_ms: int) -> bool:
        """Standby: the leader's clock has reached this. Returns True if there is more to do: call again soon."""
        clock = self.clock
        now = leader_ms + clock.offset
        clock.see(now)
        self.space.retired.prune(now)
        self.catalog.forget_some_tenants()
        if self.catalog.ending:
            self.catalog.settle_some(self.catalog.settle_step_objects)
        if self.disk.stale:
            self.disk.sweep_some(_SWEPT_VERSIONS)
        return self.space.free_quarantined(now, max(clock.begin_n, self.coverage.keyless_n))

    # --- unlogged batches ---

    def take_renewals(self, limit: int) -> tuple[list[Renewal], bool]:
        """Primary: renewed leases, in leader time, and whether these are all of them."""
        offset, catalog = self.clock.offset, self.catalog
        renewals = []
        for entry in self.renewals.take_renewed(limit):
            # An object on an unmounted segment is deleted on every node: a standby would report divergence.
            if entry.visible and (not catalog.ending or not entry.replicas or catalog.settle(entry)):
                soft_ms = max(0, entry.soft_pin_end - offset)
                renewals.append((entry.tenant, entry.key, entry.put_seq, entry.lease_end - offset, soft_ms))
        return renewals, self.renewals.finish_batch()

    def take_hints(self, limit: int) -> list[Hint]:
        """Primary: evictions that were not sent yet. The number kept is bounded, the oldest are dropped."""
        return [(entry.tenant, entry.key, entry.put_seq) for entry in self.renewals.take_hints(limit)]

    def apply_renewal(self, tenant: bytes, key: bytes, put_seq: int, lease_end_ms: int, soft_pin_end_ms: int) -> bool:
        """Standby: the leader has renewed a lease.

        Returns False if there is no such object. If this node has applied exactly the records that the batch is as of,
        it has diverged.
        """
        entry = self.catalog.lookup(tenant, key)
        if (entry is None or entry.put_seq != put_seq) and self.disk.count:
            version = self.disk.find(tenant, key)
            entry = version.row if version is not None else None
        if entry is None or entry.put_seq != put_seq:
            return False
        offset = self.clock.offset
        self.leases.renewed_by_leader(
            entry, lease_end_ms + offset, soft_pin_end_ms + offset if soft_pin_end_ms else None
        )
        return True

    def apply_hint(self, tenant: bytes, key: bytes, put_seq: int) -> bool:
        """Standby: the leader has evicted an object. Returns False if the object is already deleted, or is busy."""
        entry = self.catalog.lookup(tenant, key)
        if entry is None or entry.put_seq != put_seq or not entry.visible or self.catalog.is_busy(entry):
            return False
        self.eviction.evict(entry, hint=False)
        return True

    def expiring(self, leader_ms: int, every: int) -> Iterator[None]:
        """Standby, policy `expiry`: all renewals up to this leader time were applied. Evict what expired before it.

        Pauses after `every` objects; nothing else may be applied meanwhile.
        """
        if self.leases.expiry:
            yield from self.eviction.expire_until(leader_ms + self.clock.offset - 1, every)

    def expire_until(self, leader_ms: int) -> int:
        """As `expiring`, without pauses. Returns the number of evicted objects."""
        before = self.eviction.evicted_count
        for _ in self.expiring(leader_ms, 1_000):
            pass
        return self.eviction.evicted_count - before

    def gap_closed(self, leader_ms: int) -> None:
        """Standby: unlogged batches were missed until here (H3).

        A node that starts from a snapshot or from the records alone has missed batches too, also of older epochs.
        """
        self.clock.gap_closed(leader_ms)

    # --- snapshots ---

    def load(self, keyless: Keyless, parts: Iterable[Slice | QuarantineSlice]) -> None:
        """Fill an empty index from a snapshot. Continue with `apply` from `log.last_n` on."""
        for _ in self.loading(keyless, parts):
            pass

    def loading(self, keyless: Keyless, parts: Iterable[Slice | QuarantineSlice]) -> Iterator[None]:
        """As `load`, with a pause after each part. Nothing else may change the index meanwhile."""
        yield from self._loader.loading(keyless, parts)

    # --- the end ---

    def discarding(self, every: int) -> Iterator[None]:
        """Free the memory of the objects: this index is no longer used. Pauses after about `every` objects.

        Without this it is never freed: objects and segments refer to each other (see `Space.discarding`).
        """
        self.renewals.clear()
        yield from self.catalog.discarding(every)
        yield from self.space.discarding(every, self.catalog.ending)

    # --- invariants ---

    def check(self) -> None:
        """Raise `InvariantBroken` unless every invariant of every part holds. Slow: for tests and simulation."""
        self.clock.check()
        self.log.check()
        self.features.check()
        self.coverage.check()
        self.renewals.check()
        self.space.check()
        self.catalog.check()
        self.owners.check()
        self.task_table.check()
        self.drains.check()
        self.disk.check()

    def digest(self) -> bytes:
        """A hash of the state that records alone determine: names, versions, places, pins.

        Equal on equal nodes, except for objects that one of them has evicted.
        """
        while self.catalog.settle_some(1_000):
            pass
        lines = sorted(
            (
                entry.tenant, entry.key, entry.put_seq, entry.size, entry.visible, entry.hard_pin, entry.group,
                tuple((r.id, r.segment.incarnation, r.offset) for r in entry.replicas),
            )
            for entry in [*self.catalog.objects(), *self.catalog.pending.values()]
        )  # fmt: skip
        on_disk = sorted(
            (
                row.tenant,
                row.key,
                row.put_seq,
                tuple((r.id, r.owner) for r in version.replicas if self.disk.owner_of(r)),
            )
            for version in self.disk.versions()
            if (row := version.row) and any(self.disk.owner_of(r) for r in version.replicas)
        )
        state = (lines, sorted(self.space.segments), *([on_disk] if on_disk else []))
        return blake2b(repr(state).encode(), digest_size=16).digest()
