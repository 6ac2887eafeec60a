"""Segments come and go. A segment is a mount: the same memory lent again is another incarnation."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from leasehold.base.limits import segment_end_step_objects
from leasehold.index.allocator import Allocator
from leasehold.index.model import (
    Client,
    CopyJob,
    Object,
    Owner,
    Quarantined,
    RetiredExtent,
    RetiredSegment,
    Segment,
    SegmentSpec,
)
from leasehold.index.mounted import Mounted
from leasehold.index.records import Cause, ClientGone, DrainSegment, MountSegment, UnmountSegment
from leasehold.index.replay import Replay
from leasehold.index.settings import IndexSettings


class Mounts(Replay):
    """Applying the records that have no key."""

    def __init__(self, settings: IndexSettings, choose: Callable[[int], int]) -> None:
        super().__init__(settings, choose)
        self.segments = Mounted()
        self.clients: dict[bytes, Client] = {}
        self.unproven: set[int] = set()  # incarnations whose owner has not been heard of since a restart of everything
        self.unheard_n = 0  # this epoch began with owners of segments mounted before this record in doubt
        self.end_step_objects = segment_end_step_objects
        self.total_bytes = 0

    def _apply_mount(self, n: int, record: MountSegment) -> None:
        if self._covers_keyless(n):
            return
        now = record.at_ms + self.offset
        for incarnation in record.supersedes:
            self._end_segment(n, incarnation, now, Cause.SUPERSEDED)
        spec = SegmentSpec(
            record.segment, record.name, record.base, record.size, record.endpoint, record.protocol, record.host_id
        )  # fmt: skip
        segment = self._add_segment(spec, record.client, n)
        self._rest_in_peace(n, segment, now)
        self._hear(record.client, now)

    def _add_segment(self, spec: SegmentSpec, client: bytes, incarnation: int) -> Segment:
        segment = Segment(spec, client, incarnation, Allocator(spec.size))
        self.segments.add(segment)
        self.total_bytes += segment.space.size
        return segment

    def _hear(self, client: bytes, now: int) -> None:
        known = self.clients.get(client)
        if known is None:
            self.clients[client] = Client(client, now)
        else:
            known.heard = max(known.heard, now)

    def _rest_in_peace(self, n: int, segment: Segment, now: int) -> None:
        """Memory that comes back: what somebody may still read or write there starts in limbo (schedule 8d)."""
        base, space = segment.spec.base, segment.space
        for serious in self._graves_under(segment):
            for extent in serious.extents:
                offset = extent.address - base
                if (
                    extent.end > now
                    and space.contains(offset, extent.size)
                    and not space.in_the_way(offset, extent.size)
                ):
                    self._rest(segment, offset, extent.size, n, now, extent.end - now)
        for serious in self._graves_under(segment):
            low, high = serious.base - base, serious.base + serious.size - base
            for start, length in space.free_blocks() if serious.end > now else ():
                if start < high and low < start + length:
                    self._rest(segment, start, length, n, now, serious.end - now)

    def _graves_under(self, segment: Segment) -> list[RetiredSegment]:
        spec = segment.spec
        return [serious for serious in self.retired if overlap(spec, serious.endpoint, serious.base, serious.size)]

    def _apply_unmount(self, n: int, record: UnmountSegment) -> None:
        if self._covers_keyless(n):
            return
        for incarnation in record.incarnations:
            self._end_segment(n, incarnation, record.at_ms + self.offset, record.cause)

    def _apply_client_gone(self, n: int, record: ClientGone) -> None:
        if self._covers_keyless(n):
            return
        for incarnation in record.incarnations:
            self._end_segment(n, incarnation, record.at_ms + self.offset, Cause.CLIENT_GONE)
        self.clients.pop(record.client, None)

    def _apply_drain(self, n: int, record: DrainSegment) -> None:
        segment = self.segments.get(record.incarnation)
        if segment is not None and not self._covers_keyless(n):
            segment.drain_end = max(1, record.at_ms + self.offset + record.grace_ms)
            self.segments.refresh_placeable()

    def _end_segment(self, n: int, incarnation: int, now: int, cause: Cause) -> None:
        segment = self.segments.discard(incarnation)
        if segment is None:
            return
        segment.unmounted = True
        segment.ended_n = n
        self.unproven.discard(incarnation)
        self.total_bytes -= segment.space.size
        self.used_bytes -= segment.space.used_bytes
        self.range_n = n  # a miss from here on shows this record
        self._bury(segment, now, cause)
        # What is being written, and what it is written beside, comes first: how long its space rests counts from here.
        for owner in self._written_on(segment):
            self._lose_on(segment, owner)
        for name in (*self.copies, *self.pending):
            if (entry := self.lookup(*name)) is not None:
                self.settle(entry)
        self.ending.append(segment)
        self.end_some(self.end_step_objects)

    def _written_on(self, segment: Segment) -> list[Object | CopyJob]:
        """Puts and copies that are under way on this segment."""
        busy: list[Object | CopyJob] = [*self.unfinished.values(), *self.copies.values()]
        return [one for one in busy if any(replica.segment is segment for replica in one.replicas)]

    def _lose_on(self, segment: Segment, owner: Object | CopyJob) -> None:
        if isinstance(owner, Object):
            self.settle(owner)
            return
        for replica in owner.replicas:
            if replica.segment is segment:
                self._lose_replica(owner, segment, replica.offset, segment.ended_n)

    def end_some(self, budget: int) -> bool:
        """Go through some of the objects of segments that have ended; whether there are more."""
        while self.ending:
            segment = self.ending[0]
            owners = segment.space.owners
            while owners and budget > 0:
                budget -= 1
                _, owner = owners.popitem()
                if type(owner) is Object and owner.replicas and not self._lose_plainly(owner):
                    self.settle(owner)
            if owners:
                return True
            self.ending.pop(0)
        return False

    def _lose_plainly(self, entry: Object) -> bool:
        """The usual object of a segment that ends: one replica, finished, alone. There may be a million of them."""
        if len(entry.replicas) > 1 or not entry.visible or entry.group or self.copies or self.pending:
            return False
        if not entry.replicas[0].segment.unmounted:
            return False  # it was settled before, and lives on elsewhere
        del self.tables[entry.tenant][crc32(entry.key) & 16383][entry.key]
        self.object_count -= 1
        entry.visible = False
        entry.replicas = ()
        return True

    def _bury(self, segment: Segment, now: int, cause: Cause) -> None:
        """Remember what must rest if this memory comes back.

        All of it, where readers may be at work in it: after a death that may be false, and after an owner took it back
        and is alive. Else (its owner is another process now) writers' extents.
        """
        base = segment.spec.base
        owners: list[tuple[int, Owner]] = [
            (replica.offset, owner)
            for owner in self._written_on(segment)
            for replica in owner.replicas
            if replica.segment is segment
        ]
        for entry in self._live_limbo(segment):
            owners.append((entry.offset, entry))
            self._count_resting(entry, -1)
        extents = []
        for start, owner in sorted(owners, key=lambda one: one[0]):
            end = self._writer_gives_up(owner)
            if end > now:
                extents.append(RetiredExtent(base + start, owner.size, end, end - now))
        alive_ms = 0 if cause == Cause.SUPERSEDED else self.max_term_ms
        if extents or alive_ms:
            spec = segment.spec
            self.retired.append(RetiredSegment(spec.endpoint, base, spec.size, now + alive_ms, alive_ms, extents))

    def _writer_gives_up(self, owner: Owner) -> int:
        if isinstance(owner, Quarantined):
            return self.limbo_end_of(owner)
        if isinstance(owner, CopyJob):
            return max(owner.started, self.epoch_start) + self.settings.put_release_ms
        if owner.draft is not None:
            return max(owner.draft.started, self.epoch_start) + self.settings.put_release_ms
        return 0

    def _prune_graves(self, now: int) -> None:
        if self.retired:
            for serious in self.retired:
                serious.extents = [extent for extent in serious.extents if extent.end > now]
            self.retired = [serious for serious in self.retired if serious.extents or serious.end > now]


def overlap(spec: SegmentSpec, endpoint: str, base: int, size: int) -> bool:
    """The same bytes: one endpoint, and addresses that overlap (H8: the endpoint's name alone is not enough)."""
    return spec.endpoint == endpoint and spec.base < base + size and base < spec.base + spec.size
