"""Planted bugs of adopted pools that are in the index; the others are in the listing (`old_pool`)."""

from __future__ import annotations

from leasehold.index.index import Index
from leasehold.index.model import SegmentSpec
from leasehold.index.mounts import Mounts
from leasehold.index.replies import Acknowledged


def bend_adoption(bugs: frozenset[str], index: Index) -> None:
    """Plant bugs into a new index."""
    if "bind-by-endpoint" in bugs:
        index.mounts.__class__ = MountsByEndpoint


class MountsByEndpoint(Mounts):
    """Any process that mounts memory at the same endpoint gets the adopted objects."""

    __slots__ = ()

    def mount(self, now_ms: int, client: bytes, spec: SegmentSpec) -> Acknowledged:
        for segment in self._space.segments.by_endpoint.get(spec.endpoint):
            if segment.awaits_mount:
                return self._bind(now_ms, client, spec, segment)
        return super().mount(now_ms, client, spec)
