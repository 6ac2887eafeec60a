"""Copies and moves of objects between segments."""

from __future__ import annotations

from collections.abc import Sequence

from leasehold.base.codes import Code
from leasehold.base.limits import replicas_max
from leasehold.index.catalog import Catalog
from leasehold.index.clock import LeaderClock
from leasehold.index.decisions import Decisions
from leasehold.index.eviction import Eviction
from leasehold.index.leases import Leases
from leasehold.index.log import Log
from leasehold.index.model import CopyJob, Replica
from leasehold.index.placement import Placement
from leasehold.index.records import CopyEnd, CopyRevoke, CopyStart
from leasehold.index.replies import Acknowledged, SpaceHandedOut
from leasehold.index.space.space import Space
from leasehold.index.tenants import Tenants

Started = SpaceHandedOut[tuple[Replica, list[Replica]]]


class Copies:
    """Commands about copies and moves. There is one copy or move of an object at a time."""

    __slots__ = ("_catalog", "_clock", "_decisions", "_eviction", "_leases", "_log", "_placement", "_space", "_tenants")

    def __init__(
        self,
        clock: LeaderClock,
        log: Log,
        decisions: Decisions,
        space: Space,
        leases: Leases,
        catalog: Catalog,
        placement: Placement,
        eviction: Eviction,
        tenants: Tenants | None,
    ) -> None:
        self._clock = clock
        self._log = log
        self._decisions = decisions
        self._space = space
        self._leases = leases
        self._catalog = catalog
        self._placement = placement
        self._eviction = eviction
        self._tenants = tenants

    def copy_start(
        self, now_ms: int, client: bytes, tenant: bytes, key: bytes, source: str, targets: Sequence[str]
    ) -> Started:
        """Space for copies on the named segments. The value is the source replica and the new replicas."""
        return self._start(now_ms, client, tenant, key, source, targets, move=False)

    def move_start(
        self, now_ms: int, client: bytes, tenant: bytes, key: bytes, source: str, target: str
    ) -> SpaceHandedOut[tuple[Replica, Replica | None]]:
        """Space for one copy; when it is complete the source replica leaves."""
        reply = self._start(now_ms, client, tenant, key, source, (target,), move=True)
        if reply.value is None:
            return SpaceHandedOut(reply.code, None, reply.after)
        origin, replicas = reply.value
        return SpaceHandedOut(reply.code, (origin, replicas[0] if replicas else None), reply.after)

    def copy_end(self, now_ms: int, client: bytes, tenant: bytes, key: bytes) -> Acknowledged:
        """The copies are written: readers see them."""
        return self._end(now_ms, client, tenant, key, move=False)

    def move_end(self, now_ms: int, client: bytes, tenant: bytes, key: bytes) -> Acknowledged:
        """The copy is written: readers see it. The moved replica is quarantined until its leases expire."""
        return self._end(now_ms, client, tenant, key, move=True)

    def copy_revoke(self, now_ms: int, client: bytes, tenant: bytes, key: bytes) -> Acknowledged:
        """Give unfinished copies back."""
        return self._revoke(now_ms, client, tenant, key, move=False)

    def move_revoke(self, now_ms: int, client: bytes, tenant: bytes, key: bytes) -> Acknowledged:
        """Give an unfinished move back."""
        return self._revoke(now_ms, client, tenant, key, move=True)

    def _end(self, now_ms: int, client: bytes, tenant: bytes, key: bytes, *, move: bool) -> Acknowledged:
        job = self._job_of(client, tenant, key, move=move)
        if isinstance(job, Acknowledged):
            return job
        entry = self._catalog.lookup(tenant, key)
        left_ms = 0
        if entry is not None and job.moves:
            left_ms = max(0, self._leases.end_of(entry) - (now_ms + self._clock.offset))
        record = CopyEnd(now_ms, tenant, key, job.put_seq, job.started_n, left_ms)
        return Acknowledged(Code.OK, self._decisions.emit(record))

    def _revoke(self, now_ms: int, client: bytes, tenant: bytes, key: bytes, *, move: bool) -> Acknowledged:
        job = self._job_of(client, tenant, key, move=move)
        return job if isinstance(job, Acknowledged) else Acknowledged(Code.OK, self._revoke_job(now_ms, job))

    def _start(
        self,
        now_ms: int,
        client: bytes,
        tenant: bytes,
        key: bytes,
        source: str,
        targets: Sequence[str],
        *,
        move: bool,
    ) -> Started:
        log, segments = self._log, self._space.segments
        # More replicas than this do not fit into a replica's id. A move to the same segment makes no sense.
        if len(targets) > replicas_max or (move and source in targets):
            log.refuse("bad copy")
            return SpaceHandedOut(Code.BAD_PARAMS, None, 0)
        if any(not segments.by_name.get(name) for name in targets):
            return SpaceHandedOut(Code.SEGMENT_NOT_FOUND, None, log.last_n)
        entry = self._eviction.lookup_live(now_ms + self._clock.offset, tenant, key)
        if entry is None:
            return SpaceHandedOut(Code.NOT_FOUND, None, log.after_absent(tenant, key))
        if (tenant, key) in self._catalog.copies:
            return SpaceHandedOut(Code.COPY_UNDER_WAY, None, self._catalog.busy_n(entry))
        if not entry.visible or self._catalog.is_busy(entry):
            return SpaceHandedOut(Code.NOT_READY, None, self._catalog.busy_n(entry))
        named = [r for r in entry.replicas if not source or r.segment.spec.name == source]
        if not named:
            return SpaceHandedOut(Code.NO_REPLICA_THERE, None, entry.changed_n)
        origin = next((r for r in named if r.segment.proven), None)  # no client is sent to unproven memory (H9)
        if origin is None:
            return SpaceHandedOut(Code.NOT_READY, None, entry.changed_n)
        there = {replica.segment.spec.name for replica in entry.replicas}
        wanted = [name for name in dict.fromkeys(targets) if name not in there]
        if not targets or (move and not wanted):
            log.refuse("bad copy")
            return SpaceHandedOut(Code.BAD_PARAMS, None, entry.changed_n)
        if self._tenants is not None:
            now = now_ms + self._clock.offset
            if code := self._tenants.admit(now, tenant, entry.size * len(wanted), rounds=0):
                return SpaceHandedOut(code, None, max(entry.changed_n, self._tenants.changed_n))
        native = origin.segment.native
        named_homes = [segment for name in wanted for segment in segments.by_name.get(name)]
        homes = [segment for segment in named_homes if segment.placeable and segment.native == native]
        extents = self._placement.place_on(homes, entry.size, len(wanted))
        if len(extents) < len(wanted) or log.refuses_records():
            return SpaceHandedOut(Code.NO_SPACE, None, 0)
        moves = origin.id if move else 0
        n = self._decisions.emit(
            CopyStart(now_ms, client, tenant, key, entry.put_seq, extents, origin.id, moves, entry.size)
        )
        return SpaceHandedOut(Code.OK, (origin, list(self._catalog.copies[(tenant, key)].replicas)), n)

    def _job_of(self, client: bytes, tenant: bytes, key: bytes, *, move: bool) -> CopyJob | Acknowledged:
        """The client's copy of this key, or the refusal."""
        job = self._catalog.copies.get((tenant, key))
        if job is None:
            there = self._catalog.lookup(tenant, key) is not None
            return Acknowledged(Code.NO_COPY_UNDER_WAY if there else Code.NOT_FOUND, self._log.last_n)
        if job.client != client:
            self._log.refuse("another client's copy")
            return Acknowledged(Code.ILLEGAL_CLIENT, job.started_n)
        if bool(job.moves) != move:  # the end of a copy must not end the replica that a move would
            self._log.refuse("a copy's end for a move, or a move's for a copy")
            return Acknowledged(Code.BAD_PARAMS, job.started_n)
        return job

    def _revoke_job(self, now_ms: int, job: CopyJob) -> int:
        left_ms = max(0, self._space.writer_gives_up(job) - (now_ms + self._clock.offset))
        return self._decisions.emit(CopyRevoke(now_ms, job.tenant, job.key, job.put_seq, job.started_n, left_ms))

    def end_stale(self, now: int) -> None:
        """Revoke copies whose writer must have given up."""
        for job in list(self._catalog.copies.values()):
            if self._space.writer_gives_up(job) <= now:
                self._revoke_job(now - self._clock.offset, job)
