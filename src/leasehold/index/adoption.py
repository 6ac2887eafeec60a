"""Adopting the pool of another master: which of its objects can be taken over, and the records that do it.

The other master lists its objects by address, and its segments by endpoint, base and size. An object is taken over only
if its bytes lie in a listed segment and no other object has one of them. Everything else is counted with its reason.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from leasehold.base.limits import extent_alignment_bytes, key_bytes_max, object_bytes_max, tenant_bytes_max
from leasehold.index.features import LEVEL_NEWEST
from leasehold.index.index import Index
from leasehold.index.model import SegmentSpec
from leasehold.index.records import (
    AdoptEnd,
    AdoptSegment,
    Extent,
    FeatureLevel,
    MaxTerm,
    PutEnd,
    PutStart,
    Record,
)
from leasehold.index.space.allocator import rounded

UNKNOWN_CLIENT: Final = bytes(16)  # the writer of an adopted object: the other master does not report it

NO_MEMORY_REPLICA: Final = "no complete replica in memory"
FOREIGN_MEMORY: Final = "in memory that is no listed segment"
BEYOND_SEGMENT: Final = "reaches beyond its segment"
OVERLAPS: Final = "overlaps another object"
LISTED_TWICE: Final = "listed twice"
TOO_LARGE: Final = "key, tenant or size beyond our limits"
CHANGED: Final = "changed while it was listed"


class ReportedSegment(Struct, frozen=True):
    """A segment of the other master, as its admin port reports it."""

    spec: SegmentSpec
    client: bytes
    used_bytes: int = 0  # also of unfinished puts, which are not listed


class Place(Struct, frozen=True, gc=False):
    """Bytes in memory, as the other master names them."""

    endpoint: str
    address: int
    size: int


class ListedObject(Struct, frozen=True, gc=False):
    """A finished object of the other master. `places`: its complete replicas in memory."""

    tenant: bytes
    key: bytes
    places: tuple[Place, ...]
    checksum: int | None = None


class Terms(Struct, frozen=True):
    """How long clients of the other master may still use what it gave them."""

    lease_ms: int
    put_release_ms: int


Claim = tuple[int, int, int]  # offset, size, number of the candidate


class Plan:
    """Which objects of a listing are taken over. `objects` are in its order, with their extents (segment, offset)."""

    def __init__(self, segments: Iterable[ReportedSegment], listing: Iterable[ListedObject]) -> None:
        self.segments = sorted(segments, key=lambda one: (one.spec.endpoint, one.spec.base))
        self.units = [extent_alignment_bytes] * len(self.segments)
        self.objects: list[tuple[ListedObject, tuple[tuple[int, int], ...]]] = []
        self.dropped: Counter[str] = Counter()  # objects, by reason
        self.dropped_replicas: Counter[str] = Counter()  # of objects that are taken over with their other replicas
        self.examples: dict[str, bytes] = {}  # for each reason one key
        self.unaligned = 0  # objects that do not begin on a multiple of our alignment
        self.shared_lines = 0  # objects that share a cache line with the one before
        self.bytes = 0
        claims: list[list[Claim]] = [[] for _ in self.segments]
        candidates = list(self._candidates(listing, claims))
        for each in claims:
            each.sort()
        overlapping = _overlapping(claims)
        self._take(candidates, overlapping)
        for segment, extents in enumerate(claims):
            self._measure(segment, [one for one in extents if (segment, one[0], one[2]) not in overlapping])
        # For each segment: used, but by no listed object.
        self.unlisted_bytes = [
            reported.used_bytes - sum(size for _, size, _ in extents)
            for reported, extents in zip(self.segments, claims, strict=True)
        ]

    def drop(self, key: bytes, reason: str) -> None:
        """Count an object that is not taken over."""
        self.dropped[reason] += 1
        self.examples.setdefault(reason, key)

    def _candidates(
        self, listing: Iterable[ListedObject], claims: list[list[Claim]]
    ) -> Iterator[tuple[ListedObject, list[tuple[int, int]]]]:
        """Objects with bytes in a segment, with their extents. Adds the extents to `claims`."""
        finder, count = _Finder(self.segments), 0
        seen: set[tuple[bytes, bytes]] = set()
        for listed in listing:
            if reason := _refused(listed, seen):
                self.drop(listed.key, reason)
                continue
            extents: list[tuple[int, int]] = []
            reasons: list[str] = []
            for place in listed.places:
                found = finder.find(place)
                if isinstance(found, str):
                    reasons.append(found)
                else:
                    extents.append(found)
                    claims[found[0]].append((found[1], place.size, count))
            if not extents:
                self.drop(listed.key, reasons[0])
                continue
            self.dropped_replicas.update(reasons)
            count += 1
            yield listed, extents

    def _take(
        self, candidates: list[tuple[ListedObject, list[tuple[int, int]]]], overlapping: set[tuple[int, int, int]]
    ) -> None:
        for number, (listed, extents) in enumerate(candidates):
            kept = tuple(each for each in extents if (each[0], each[1], number) not in overlapping)
            if not kept:
                self.drop(listed.key, OVERLAPS)
                continue
            if len(kept) < len(extents):
                self.dropped_replicas[OVERLAPS] += len(extents) - len(kept)
            self.objects.append((listed, kept))
            self.bytes += listed.places[0].size * len(kept)

    def _measure(self, segment: int, extents: list[Claim]) -> None:
        """Choose the largest unit in which every block of this segment keeps its exact place."""
        alignment, size = extent_alignment_bytes, self.segments[segment].spec.size
        unit, end = alignment, 0
        for offset, length, _ in extents:
            self.unaligned += offset % alignment != 0
            self.shared_lines += offset // alignment * alignment < end
            while unit > 1 and (offset % unit or rounded(end, unit) > offset or offset + rounded(length, unit) > size):
                unit //= 2
            end = offset + length
        self.units[segment] = unit


def _refused(listed: ListedObject, seen: set[tuple[bytes, bytes]]) -> str:
    name = (listed.tenant, listed.key)
    if name in seen:
        return LISTED_TWICE
    seen.add(name)
    if not listed.places:
        return NO_MEMORY_REPLICA
    size = listed.places[0].size
    fits = 0 < size <= object_bytes_max and 0 < len(listed.key) <= key_bytes_max
    if not fits or len(listed.tenant) > tenant_bytes_max or any(place.size != size for place in listed.places):
        return TOO_LARGE
    return ""


class _Finder:
    """Finds the segment of an address, by endpoint."""

    def __init__(self, reported: list[ReportedSegment]) -> None:
        self._bases: dict[str, list[int]] = {}
        self._numbers: dict[str, list[int]] = {}
        self._specs = [one.spec for one in reported]
        for number, spec in enumerate(self._specs):
            self._bases.setdefault(spec.endpoint, []).append(spec.base)
            self._numbers.setdefault(spec.endpoint, []).append(number)

    def find(self, place: Place) -> tuple[int, int] | str:
        """The segment's number and the offset in it, or the reason why there is none."""
        at = bisect_right(self._bases.get(place.endpoint, []), place.address) - 1
        if at < 0:
            return FOREIGN_MEMORY
        number = self._numbers[place.endpoint][at]
        spec = self._specs[number]
        offset = place.address - spec.base
        if offset >= spec.size:
            return FOREIGN_MEMORY
        return (number, offset) if offset + place.size <= spec.size else BEYOND_SEGMENT


def _overlapping(claims: list[list[Claim]]) -> set[tuple[int, int, int]]:
    """(segment, offset, candidate) of every extent that shares a byte with another: none of them can be trusted."""
    found: set[tuple[int, int, int]] = set()
    for segment, extents in enumerate(claims):
        end, longest = 0, (0, 0, 0)
        for extent in extents:
            offset, size, number = extent
            if offset < end:
                found.add((segment, offset, number))
                found.add((segment, longest[0], longest[2]))
            if offset + size > end:
                end, longest = offset + size, extent
    return found


def records_of(plan: Plan, terms: Terms, own_lease_ms: int) -> Iterator[Record]:
    """The records that build the adopted state in an empty index, from number 1 on.

    The grace of the first `begin` is the maximum term: the longer one of both masters. Free space may still be written
    until the other master's writers must have given up. In a segment whose used bytes are all listed there are none,
    and only readers of deleted objects are waited for.
    """
    grace_ms = max(own_lease_ms, terms.lease_ms)
    yield FeatureLevel(0, LEVEL_NEWEST)
    yield MaxTerm(0, grace_ms)
    for reported, unit in zip(plan.segments, plan.units, strict=True):
        spec = reported.spec
        yield AdoptSegment(
            0, reported.client, spec.id, spec.name, spec.base, spec.size, spec.endpoint, spec.protocol, unit
        )
    n = first = 2
    n += len(plan.segments)
    for listed, extents in plan.objects:
        places = tuple(Extent(first + 1 + segment, offset) for segment, offset in extents)
        yield PutStart(0, UNKNOWN_CLIENT, listed.tenant, listed.key, listed.places[0].size, places)
        yield PutEnd(0, listed.tenant, listed.key, n + 1, checksum=listed.checksum)
        n += 2
    writers_ms = max(grace_ms, terms.put_release_ms)
    yield AdoptEnd(
        0,
        tuple(
            (first + 1 + segment, writers_ms if unlisted else grace_ms)
            for segment, unlisted in enumerate(plan.unlisted_bytes)
        ),
    )


def adopt(index: Index, plan: Plan, terms: Terms) -> None:
    """Build the adopted state in an empty index."""
    for n, record in enumerate(records_of(plan, terms, index.settings.lease_ttl_ms), 1):
        index.apply(n, record)
