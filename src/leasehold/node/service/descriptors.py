"""Where an object's bytes are, written as a release puts it on the wire.

A descriptor is mostly the same for all objects of a segment: the layout of its numbers follows from the release's
table, and the rest (protocol, endpoint, status) is encoded once for each segment and kept in the segment's memo.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from leasehold.base.codes import ReplicaStatus
from leasehold.base.invariants import ensure
from leasehold.index.model import Object, Replica, Segment
from leasehold.wire import messages as m
from leasehold.wire.schema import Record, Scalar, Variant, counted

COMPLETE = int(ReplicaStatus.COMPLETE)
PROCESSING = int(ReplicaStatus.PROCESSING)


def message_of(replica: Replica, size: int) -> m.ReplicaDescriptor:
    """The descriptor as a message, for everything that is not hot."""
    spec = replica.segment.spec
    buffer = m.BufferDescriptor(size, spec.base + replica.offset, spec.protocol, spec.endpoint)
    return m.ReplicaDescriptor(replica.id, m.MemoryReplica(buffer), replica.status)


def readable(found: Object) -> list[Replica]:
    """The replicas that Mooncake's clients can read: complete, and not in a host that speaks only our protocol."""
    return [each for each in found.replicas if each.status == COMPLETE and not each.segment.native]


class DescriptorWriter:
    """Writes memory descriptors of one release. Raises `LengthOverflow` where `width` is too narrow."""

    def __init__(self, release: str, replica: Record) -> None:
        self._release = release
        place, status = replica.fields["place"], replica.fields["status"]
        ensure(isinstance(place, Variant) and list(replica.fields) == ["id", "place", "status"], "a known descriptor")
        assert isinstance(place, Variant)  # for the type checker: the line above has seen to it
        self._alternative = place.index_of[m.MemoryReplica]
        buffer = place.alternatives[self._alternative].fields["buffer"]
        assert isinstance(buffer, Record)
        self._status = status
        self._strings = [member for name, member in buffer.fields.items() if name in ("protocol", "transport_endpoint")]
        layout = self._layout(replica.fields["id"]) + "B"
        layout += self._layout(buffer.fields["size"]) + self._layout(buffer.fields["address"])
        ensure(list(buffer.fields) == ["size", "address", "protocol", "transport_endpoint"], "a known buffer")
        self._numbers = struct.Struct("<" + layout)
        self._memo_names = {
            (status, width): f"{release}/{status}/{width}" for status in range(6) for width in (1, 2, 4, 8)
        }

    @staticmethod
    def _layout(member: object) -> str:
        assert isinstance(member, Scalar)
        return member.layout

    def one(self, replica: Replica, size: int, width: int) -> bytes:
        """One descriptor."""
        segment = replica.segment
        tail = segment.memo.get(self._memo_names[replica.status, width]) or self._tail(segment, replica.status, width)
        return self._numbers.pack(replica.id, self._alternative, size, segment.spec.base + replica.offset) + tail

    def tail_name(self, status: int, width: int) -> str:
        """The name in a segment's memo of what follows the numbers of a replica of this status."""
        return self._memo_names[status, width]

    @property
    def numbers(self) -> Callable[[int, int, int, int], bytes]:
        """Packs id, alternative, size and address: the numbers in front of the tail."""
        return self._numbers.pack

    @property
    def alternative(self) -> int:
        """Which of the variant's alternatives a memory replica is."""
        return self._alternative

    def vector(self, replicas: Sequence[Replica], size: int, width: int) -> bytes:
        """All of them, with their count in front."""
        if len(replicas) == 1:
            return counted(1, width) + self.one(replicas[0], size, width)
        return counted(len(replicas), width) + b"".join([self.one(replica, size, width) for replica in replicas])

    def _tail(self, segment: Segment, status: int, width: int) -> bytes:
        out = bytearray()
        for member, text in zip(self._strings, (segment.spec.protocol, segment.spec.endpoint), strict=True):
            member.write(out, text, width)
        self._status.write(out, status, width)
        segment.remember(self._memo_names[status, width], bytes(out))
        return bytes(out)
