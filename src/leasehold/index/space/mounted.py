"""The mounted segments, by every name they have. There may be thousands, and a request may name thousands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from leasehold.index.model import Segment, SegmentSpec

Name = TypeVar("Name", str, bytes)


class _Named(Generic[Name]):
    """Segments that share a name, in the order of their mounts."""

    __slots__ = ("_named",)

    def __init__(self) -> None:
        self._named: dict[Name, dict[int, Segment]] = {}

    def add(self, name: Name, segment: Segment) -> None:
        self._named.setdefault(name, {})[segment.incarnation] = segment

    def discard(self, name: Name, segment: Segment) -> None:
        if (named := self._named.get(name)) is not None:
            named.pop(segment.incarnation, None)
            if not named:
                del self._named[name]

    def get(self, name: Name) -> list[Segment]:
        return list(self._named.get(name, {}).values())

    def count(self, name: Name) -> int:
        return len(self._named.get(name, ()))


class Mounted(dict[int, Segment]):
    """By incarnation, in the order of their mounts; changed by `add` and `discard` only."""

    def __init__(self) -> None:
        super().__init__()
        self.by_id: dict[bytes, Segment] = {}  # of two with one id, the later
        self.by_client: _Named[bytes] = _Named()
        self.by_name: _Named[str] = _Named()
        self.by_endpoint: _Named[str] = _Named()
        # Segments for new objects, by whether they speak our own protocol.
        self.placeable: dict[bool, list[Segment]] = {True: [], False: []}

    def add(self, segment: Segment) -> None:
        """Add a segment to every table."""
        spec = segment.spec
        self[segment.incarnation] = self.by_id[spec.id] = segment
        self.by_client.add(segment.client, segment)
        self.by_name.add(spec.name, segment)
        self.by_endpoint.add(spec.endpoint, segment)
        if segment.placeable:
            self.placeable[segment.native].append(segment)

    def discard(self, incarnation: int) -> Segment | None:
        """Take one out. Returns None if it is not there."""
        segment = self.pop(incarnation, None)
        if segment is None:
            return None
        spec = segment.spec
        if self.by_id.get(spec.id) is segment:
            del self.by_id[spec.id]
        self.by_client.discard(segment.client, segment)
        self.by_name.discard(spec.name, segment)
        self.by_endpoint.discard(spec.endpoint, segment)
        self.placeable[segment.native] = [each for each in self.placeable[segment.native] if each is not segment]
        return segment

    def rebind(self, segment: Segment, spec: SegmentSpec, client: bytes) -> None:
        """The owner of an adopted segment has mounted it, perhaps under another name."""
        self.discard(segment.incarnation)
        segment.bind(spec, client)
        self.add(segment)
        in_order = sorted(self.items())
        self.clear()
        self.update(in_order)

    def refresh_placeable(self) -> None:
        """Some segments were proven, distrusted or drained."""
        for native, segments in self.placeable.items():
            segments[:] = _placeable(self.values(), native)


def _placeable(segments: Iterable[Segment], native: bool) -> list[Segment]:
    return [segment for segment in segments if segment.native == native and segment.placeable]
