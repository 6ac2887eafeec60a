"""Storage clients: what they lend, and whether they are alive."""

from __future__ import annotations

from collections.abc import Sequence

from leasehold.base.codes import ClientStatus, Code
from leasehold.base.limits import (
    clients_max,
    extent_alignment_bytes,
    segment_bytes_max,
    segments_max,
    segments_per_client_max,
)
from leasehold.index.model import Segment, SegmentSpec
from leasehold.index.mounts import overlap
from leasehold.index.records import Cause, ClientGone, DrainSegment, MountSegment, UnmountSegment
from leasehold.index.removes import Removes

_ADDRESS_SPACE = 1 << 64
_TEXT_MAX = 1024
_EVERY = 1 << 62


class Lending(Removes):
    """Deciding about segments and clients."""

    def mount(self, now_ms: int, client: bytes, spec: SegmentSpec) -> tuple[Code, int]:
        """Lend a segment.

        Again with the same data is fine; another client's on the same bytes is superseded (schedule 11).
        """
        if self._bad_segment(client, spec):
            return Code.BAD_PARAMS, 0
        known = self.segments.by_id.get(spec.id)
        if known is not None and known.client == client and known.spec == spec:
            self._hear(client, now_ms + self.offset)
            return Code.OK, known.incarnation
        if self.segments.by_client.count(client) >= segments_per_client_max or len(self.segments) >= segments_max:
            self.refuse("too many segments")
            return Code.BAD_PARAMS, 0
        neighbours = self.segments.by_endpoint.get(spec.endpoint)
        same_bytes = [s for s in neighbours if overlap(spec, s.spec.endpoint, s.spec.base, s.spec.size)]
        superseded = [segment for segment in same_bytes if segment.client != client]
        if len(superseded) < len(same_bytes) or (known is not None and known not in superseded):
            self.refuse("segment overlaps or exists")
            return Code.SEGMENT_EXISTS, self.last_n
        record = MountSegment(
            now_ms, client, spec.id, spec.name, spec.base, spec.size, spec.endpoint, spec.protocol, spec.host_id,
            tuple(segment.incarnation for segment in superseded),
        )  # fmt: skip
        return Code.OK, self._emit(record)

    def _bad_segment(self, client: bytes, spec: SegmentSpec) -> bool:
        texts = (spec.name, spec.endpoint, spec.protocol, spec.host_id)
        bad = (
            not client
            or not spec.id
            or not extent_alignment_bytes <= spec.size <= segment_bytes_max
            or not 0 <= spec.base <= _ADDRESS_SPACE - spec.size
            or any(len(text) > _TEXT_MAX for text in texts)
        )
        if bad:
            self.refuse("bad segment")
        return bad

    def remount(self, now_ms: int, client: bytes, specs: Sequence[SegmentSpec]) -> tuple[Code, int]:
        """All segments of a client, again: those that are there stay, the others are mounted."""
        if len(specs) > segments_per_client_max or (client not in self.clients and len(self.clients) >= clients_max):
            self.refuse("too many segments" if specs else "too many clients")
            return Code.BAD_PARAMS, 0
        after = 0
        for spec in specs:
            code, number = self.mount(now_ms, client, spec)
            if code != Code.OK:
                return code, number
            after = max(after, number)
        self._hear(client, now_ms + self.offset)
        return Code.OK, after

    def unmount(self, now_ms: int, client: bytes, segment: bytes) -> tuple[Code, int]:
        """Take a segment back. One that is not there is fine."""
        known = self.segments.by_id.get(segment)
        if known is None:
            return Code.OK, self.range_n
        if known.client != client:
            self.refuse("another client's segment")
            return Code.ILLEGAL_CLIENT, known.incarnation
        return Code.OK, self._emit(UnmountSegment(now_ms, (known.incarnation,), Cause.UNMOUNT))

    def drain(self, now_ms: int, client: bytes, segment: bytes, grace_ms: int) -> tuple[Code, int]:
        """Graceful unmount: no new objects there, gone after `grace_ms`."""
        known = self.segments.by_id.get(segment)
        if grace_ms <= 0:
            return (Code.SEGMENT_NOT_FOUND, self.range_n) if known is None else self.unmount(now_ms, client, segment)
        if known is None or known.client != client:  # as the C++ master says to both
            self.refuse("another client's segment")
            return Code.BAD_PARAMS, self.range_n if known is None else known.incarnation
        return Code.OK, self._emit(DrainSegment(now_ms, known.incarnation, min(grace_ms, self.settings.put_release_ms)))

    def ping(self, now_ms: int, client: bytes) -> int:
        """A client is alive. A `ClientStatus`: one that is not known must mount again."""
        known = self.clients.get(client)
        if known is None:
            return ClientStatus.NEED_REMOUNT
        known.heard = now_ms + self.offset
        if self.unproven:
            self._prove(client)
        return ClientStatus.OK

    def hear_all(self, now_ms: int) -> None:
        """Nobody could ping for a while: every client's term starts anew. It proves no owner (H9): only a ping does."""
        for client in self.clients.values():
            client.heard = max(client.heard, now_ms + self.offset)

    def distrust_owners(self, before_n: int = _EVERY) -> None:
        """After a restart of everything: nobody is sent to a segment before its owner has pinged (H9).

        Whoever mounted with record `before_n` or later was heard then.
        """
        for segment in self.segments.values():
            segment.proven = segment.incarnation >= before_n
        self.unproven = {incarnation for incarnation in self.segments if incarnation < before_n}
        self.segments.refresh_placeable()

    def suspect_owners(self) -> None:
        """Leader: nobody could hear any owner for longer than a term: each is waited for again (H9)."""
        self.unheard_n = self.last_n + 1
        self.distrust_owners(self.unheard_n)

    def still_unheard_n(self) -> int:
        """Leader: whom it waits for, to be told to its successors; 0 as soon as each has pinged, or was ended."""
        if not self.unproven:
            self.unheard_n = 0
        return self.unheard_n

    def _prove(self, client: bytes) -> None:
        unproven = [segment for segment in self.segments.by_client.get(client) if not segment.proven]
        for segment in unproven:
            segment.proven = True
            self.unproven.discard(segment.incarnation)
        if unproven:
            self.segments.refresh_placeable()

    def client_segments(self, client: bytes) -> list[Segment]:
        """What a client lends."""
        return self.segments.by_client.get(client)

    def client_endpoints(self, client: bytes) -> list[str]:
        """For `query ip`: the transport endpoints of a client's segments."""
        return sorted({segment.spec.endpoint for segment in self.client_segments(client)})

    def segment_by_id(self, segment: bytes) -> Segment | None:
        return self.segments.by_id.get(segment)

    def segments_by_name(self, name: str) -> list[Segment]:
        return self.segments.by_name.get(name)

    # --- time ---

    def _end_silent_clients(self, now: int) -> None:
        for client in list(self.clients.values()):
            if now - max(client.heard, self.epoch_start) <= self.settings.client_ttl_ms:
                continue
            incarnations = tuple(segment.incarnation for segment in self.client_segments(client.id))
            if incarnations:
                self._emit(ClientGone(now - self.offset, client.id, incarnations))
            else:
                del self.clients[client.id]  # it lends nothing: nobody else has to know

    def _end_drained(self, now: int) -> None:
        for segment in list(self.segments.values()):
            if segment.drain_end and segment.drain_end <= now:
                self._emit(UnmountSegment(now - self.offset, (segment.incarnation,), Cause.DRAINED))
