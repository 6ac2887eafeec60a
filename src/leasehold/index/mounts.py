"""Segments come and go. A segment is a mount: the same memory lent again is another incarnation."""

from __future__ import annotations

from zlib import crc32

from leasehold.index.allocator import Allocator
from leasehold.index.model import (
    Client,
    CopyJob,
    Grave,
    Limbo,
    Object,
    Owner,
    RestingExtent,
    Segment,
    SegmentSpec,
)
from leasehold.index.records import Cause, ClientGone, DrainSegment, MountSegment, UnmountSegment
from leasehold.index.state import State


class Mounts(State):
    """Applying the records that have no key."""

    def _covers_keyless(self, n: int) -> bool:
        return self.slice_n is not None and n <= self.keyless_n

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
        self.segments[incarnation] = segment
        self.segment_ids[spec.id] = segment
        self.total_bytes += segment.space.size
        self._refresh_placeable()
        return segment

    def _refresh_placeable(self) -> None:
        for native in (False, True):
            self.placeable[native] = [
                segment
                for segment in self.segments.values()
                if segment.native == native and not segment.drain_end and segment.proven
            ]

    def _hear(self, client: bytes, now: int) -> None:
        known = self.clients.get(client)
        if known is None:
            self.clients[client] = Client(client, now)
        else:
            known.heard = max(known.heard, now)

    def _rest_in_peace(self, n: int, segment: Segment, now: int) -> None:
        """Memory that comes back: what somebody may still read or write there starts in limbo (schedule 8d)."""
        base, space = segment.spec.base, segment.space
        for grave in self._graves_under(segment):
            for extent in grave.extents:
                offset = extent.address - base
                if (
                    extent.end > now
                    and space.contains(offset, extent.size)
                    and not space.in_the_way(offset, extent.size)
                ):
                    self._rest(segment, offset, extent.size, n, now, extent.end - now)
        for grave in self._graves_under(segment):
            low, high = grave.base - base, grave.base + grave.size - base
            for start, length in space.free_blocks() if grave.end > now else ():
                if start < high and low < start + length:
                    self._rest(segment, start, length, n, now, grave.end - now)

    def _graves_under(self, segment: Segment) -> list[Grave]:
        spec = segment.spec
        return [grave for grave in self.graves if overlap(spec, grave.endpoint, grave.base, grave.size)]

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
            self._refresh_placeable()

    def _end_segment(self, n: int, incarnation: int, now: int, cause: Cause) -> None:
        segment = self.segments.pop(incarnation, None)
        if segment is None:
            return
        segment.unmounted = True
        if self.segment_ids.get(segment.spec.id) is segment:
            del self.segment_ids[segment.spec.id]
        self.unproven.discard(incarnation)
        self.total_bytes -= segment.space.size
        self.used_bytes -= segment.space.used_bytes
        self.range_n = n  # a miss from here on shows this record
        self._bury(segment, now, cause)
        for start, owner in list(segment.space.owners.items()):
            if type(owner) is Object and len(owner.replicas) == 1 and owner.visible and not owner.group:
                if not self._lose_plainly(owner):
                    self._lose_replica(owner, segment, start, n)
            elif not isinstance(owner, Limbo):
                if isinstance(owner, Object):
                    owner.changed_n = n
                self._lose_replica(owner, segment, start, n)
        self._refresh_placeable()

    def _lose_plainly(self, entry: Object) -> bool:
        """The usual object of a segment that ends: one replica, finished, alone. There may be a million of them."""
        name = (entry.tenant, entry.key)
        if (self.copies and name in self.copies) or (self.pending and name in self.pending):
            return False
        del self.tables[entry.tenant][crc32(entry.key) & 1023][entry.key]
        self.object_count -= 1
        entry.visible = False
        entry.replicas = ()
        return True

    def _bury(self, segment: Segment, now: int, cause: Cause) -> None:
        """Remember what must rest if this memory comes back.

        All of it, where readers may be at work in it: after a death that may be false, and after an owner took it back
        and is alive. Else (its owner is another process now) writers' extents.
        """
        extents = []
        base = segment.spec.base
        for start, owner in segment.space.owners.items():
            end = self._writer_gives_up(owner)
            if end > now:
                extents.append(RestingExtent(base + start, owner.size, end, end - now))
        alive_ms = 0 if cause == Cause.SUPERSEDED else self.max_term_ms
        if extents or alive_ms:
            spec = segment.spec
            self.graves.append(Grave(spec.endpoint, base, spec.size, now + alive_ms, alive_ms, extents))

    def _writer_gives_up(self, owner: Owner) -> int:
        if isinstance(owner, Limbo):
            return owner.end
        if isinstance(owner, CopyJob):
            return max(owner.started, self.epoch_start) + self.settings.put_release_ms
        if owner.draft is not None:
            return max(owner.draft.started, self.epoch_start) + self.settings.put_release_ms
        return 0

    def _prune_graves(self, now: int) -> None:
        if self.graves:
            for grave in self.graves:
                grave.extents = [extent for extent in grave.extents if extent.end > now]
            self.graves = [grave for grave in self.graves if grave.extents or grave.end > now]


def overlap(spec: SegmentSpec, endpoint: str, base: int, size: int) -> bool:
    """The same bytes: one endpoint, and addresses that overlap (H8: the endpoint's name alone is not enough)."""
    return spec.endpoint == endpoint and spec.base < base + size and base < spec.base + spec.size
