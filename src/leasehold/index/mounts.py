"""Commands about segments: mounting, unmounting, draining."""

from __future__ import annotations

from collections.abc import Sequence

from leasehold.base.codes import Code
from leasehold.base.limits import (
    clients_max,
    extent_alignment_bytes,
    segment_bytes_max,
    segments_max,
    segments_per_client_max,
)
from leasehold.index.clock import LeaderClock
from leasehold.index.decisions import Decisions
from leasehold.index.log import Log
from leasehold.index.model import Segment, SegmentSpec
from leasehold.index.owners import Owners
from leasehold.index.records import BindSegment, Cause, ClientGone, DrainSegment, MountSegment, UnmountSegment
from leasehold.index.replies import Acknowledged
from leasehold.index.settings import IndexSettings
from leasehold.index.space.retired import overlap
from leasehold.index.space.space import Space

_ADDRESS_SPACE = 1 << 64
_TEXT_MAX = 1024


class Mounts:
    """Storage clients lend segments and take them back."""

    __slots__ = ("_clock", "_decisions", "_log", "_owners", "_settings", "_space")

    def __init__(
        self,
        settings: IndexSettings,
        clock: LeaderClock,
        log: Log,
        decisions: Decisions,
        space: Space,
        owners: Owners,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._log = log
        self._decisions = decisions
        self._space = space
        self._owners = owners

    def mount(self, now_ms: int, client: bytes, spec: SegmentSpec) -> Acknowledged:
        """Lend a segment.

        The same segment again is fine; another client's segment on the same bytes is superseded (schedule 11).
        """
        log, segments = self._log, self._space.segments
        if self._is_bad(client, spec):
            return Acknowledged(Code.BAD_PARAMS, 0)
        known = segments.by_id.get(spec.id)
        if known is not None and known.client == client and known.spec == spec and not known.awaits_mount:
            self._owners.seen(client, now_ms + self._clock.offset)
            return Acknowledged(Code.OK, known.incarnation)
        if segments.by_client.count(client) >= segments_per_client_max or len(segments) >= segments_max:
            log.refuse("too many segments")
            return Acknowledged(Code.BAD_PARAMS, 0)
        adopted = (
            [each for each in segments.values() if _is_awaited(each, client, spec)] if self._owners.unproven else []
        )
        for each in adopted:
            if (each.spec.endpoint, each.spec.base, each.spec.size) == (spec.endpoint, spec.base, spec.size):
                return self._bind(now_ms, client, spec, each)
            self._end_adopted(now_ms, each)
            known = segments.by_id.get(spec.id)
        neighbours = segments.by_endpoint.get(spec.endpoint)
        same_bytes = [s for s in neighbours if overlap(spec, s.spec.endpoint, s.spec.base, s.spec.size)]
        superseded = [segment for segment in same_bytes if segment.client != client]
        if len(superseded) < len(same_bytes) or (known is not None and known not in superseded):
            log.refuse("segment overlaps or exists")
            return Acknowledged(Code.SEGMENT_EXISTS, log.last_n)
        record = MountSegment(
            now_ms, client, spec.id, spec.name, spec.base, spec.size, spec.endpoint, spec.protocol, spec.host_id,
            tuple(segment.incarnation for segment in superseded),
        )  # fmt: skip
        return Acknowledged(Code.OK, self._decisions.emit(record))

    def _bind(self, now_ms: int, client: bytes, spec: SegmentSpec, adopted: Segment) -> Acknowledged:
        """The owner mounts an adopted segment: the same bytes, and the client or the segment that was reported."""
        record = BindSegment(now_ms, adopted.incarnation, client, spec.id, spec.name, spec.protocol, spec.host_id)
        n = self._decisions.emit(record)
        self._owners.prove([adopted])
        return Acknowledged(Code.OK, n)

    def _end_adopted(self, now_ms: int, adopted: Segment) -> None:
        """An adopted segment is not what was reported. Readers of the old master may still read it: it is retired."""
        self._log.refuse("adopted segment differs")
        self._decisions.emit(UnmountSegment(now_ms, (adopted.incarnation,), Cause.UNMOUNT))

    def end_adopted_units(self, now_ms: int) -> None:
        """End every segment that a lower feature level could not hold. Its owner must mount it again."""
        segments = self._space.segments
        kept = (each for each in segments.values() if each.awaits_mount or each.allocator.unit < extent_alignment_bytes)
        for client in {each.client: None for each in kept}:
            mounts = tuple(each.incarnation for each in segments.by_client.get(client))
            self._decisions.emit(ClientGone(now_ms, client, mounts))

    def _is_bad(self, client: bytes, spec: SegmentSpec) -> bool:
        texts = (spec.name, spec.endpoint, spec.protocol, spec.host_id)
        bad = (
            not client
            or not spec.id
            or not extent_alignment_bytes <= spec.size <= segment_bytes_max
            or not 0 <= spec.base <= _ADDRESS_SPACE - spec.size
            or any(len(text) > _TEXT_MAX for text in texts)
        )
        if bad:
            self._log.refuse("bad segment")
        return bad

    def remount(self, now_ms: int, client: bytes, specs: Sequence[SegmentSpec]) -> Acknowledged:
        """All segments of a client again: segments that are mounted stay, the others are mounted."""
        clients = self._owners.clients
        if len(specs) > segments_per_client_max or (client not in clients and len(clients) >= clients_max):
            self._log.refuse("too many segments" if specs else "too many clients")
            return Acknowledged(Code.BAD_PARAMS, 0)
        after = 0
        for spec in specs:
            reply = self.mount(now_ms, client, spec)
            if reply.code != Code.OK:
                return reply
            after = max(after, reply.after)
        for left in self._space.segments.by_client.get(client) if self._owners.unproven else ():
            if left.awaits_mount:  # a client lists all its segments: it no longer has this one
                self._end_adopted(now_ms, left)
        self._owners.seen(client, now_ms + self._clock.offset)
        return Acknowledged(Code.OK, after)

    def unmount(self, now_ms: int, client: bytes, segment: bytes) -> Acknowledged:
        """Take a segment back. A segment that is not mounted is fine."""
        known = self._space.segments.by_id.get(segment)
        if known is None:
            return Acknowledged(Code.OK, self._log.range_n)
        if known.client != client:
            self._log.refuse("another client's segment")
            return Acknowledged(Code.ILLEGAL_CLIENT, known.incarnation)
        record = UnmountSegment(now_ms, (known.incarnation,), Cause.UNMOUNT)
        return Acknowledged(Code.OK, self._decisions.emit(record))

    def drain(self, now_ms: int, client: bytes, segment: bytes, grace_ms: int) -> Acknowledged:
        """Unmount gracefully: no new objects there from now on, unmounted after `grace_ms`."""
        known = self._space.segments.by_id.get(segment)
        if grace_ms <= 0:
            if known is None:
                return Acknowledged(Code.SEGMENT_NOT_FOUND, self._log.range_n)
            return self.unmount(now_ms, client, segment)
        if known is None or known.client != client:  # the C++ master answers both in the same way
            self._log.refuse("another client's segment")
            return Acknowledged(Code.BAD_PARAMS, self._log.range_n if known is None else known.incarnation)
        record = DrainSegment(now_ms, known.incarnation, min(grace_ms, self._settings.put_release_ms))
        return Acknowledged(Code.OK, self._decisions.emit(record))

    # --- time-outs ---

    def end_silent_clients(self, now: int) -> None:
        """Declare clients dead that have not pinged in time."""
        for client in self._owners.silent(now, self._settings.client_ttl_ms):
            incarnations = tuple(each.incarnation for each in self._space.segments.by_client.get(client))
            if incarnations:
                self._decisions.emit(ClientGone(now - self._clock.offset, client, incarnations))
            else:
                self._owners.forget(client)  # it lends nothing: no other node has to know

    def end_drained(self, now: int) -> None:
        """Unmount segments whose draining has finished."""
        for segment in list(self._space.segments.values()):
            if segment.drain_end and segment.drain_end <= now:
                self._decisions.emit(UnmountSegment(now - self._clock.offset, (segment.incarnation,), Cause.DRAINED))


def _is_awaited(adopted: Segment, client: bytes, spec: SegmentSpec) -> bool:
    """Whether this mount may be that of an adopted segment. Its endpoint is not enough: it may be a new process."""
    return (
        adopted.awaits_mount
        and (adopted.client == client or adopted.spec.id == spec.id)
        and (adopted.spec.id == spec.id or overlap(spec, adopted.spec.endpoint, adopted.spec.base, adopted.spec.size))
    )
