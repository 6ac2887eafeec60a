"""Where an object's bytes are, written as a release puts it on the wire.

A descriptor is mostly the same for all objects of a segment: the layout of its numbers follows from the release's
table, and the rest (protocol, endpoint, status) is encoded once for each segment and kept in the segment's memo.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from leasehold.base.codes import ReplicaStatus
from leasehold.base.invariants import ensure
from leasehold.index.model import DiskReplica, Object, Replica, Segment
from leasehold.wire import messages as m
from leasehold.wire.schema import Record, Scalar, Variant, counted

COMPLETE = int(ReplicaStatus.COMPLETE)
PROCESSING = int(ReplicaStatus.PROCESSING)


def message_of(replica: Replica, size: int) -> m.ReplicaDescriptor:
    """The descriptor as a message, for everything that is not hot."""
    spec = replica.segment.spec
    buffer = m.BufferDescriptor(size, spec.base + replica.offset, spec.protocol, spec.endpoint)
    return m.ReplicaDescriptor(replica.id, m.MemoryReplica(buffer), replica.status)


def disk_message_of(replica: DiskReplica, size: int) -> m.ReplicaDescriptor:
    """The descriptor of a copy on a client's disk: a reader requests it from that client, by key."""
    return m.ReplicaDescriptor(replica.id, m.LocalDiskReplica(replica.owner, size, replica.endpoint), COMPLETE)


def readable(found: Object) -> list[Replica]:
    """The replicas that Mooncake's clients can read: complete, and not in a host that speaks only our protocol."""
    return [each for each in found.replicas if each.status == COMPLETE and not each.segment.native]


class DescriptorWriter:
    """Writes memory descriptors of one release. Raises `LengthOverflow` where `width` is too narrow."""

    def __init__(self, release: str, replica: Record) -> None:
        self._release = release
        self._replica = replica
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

    def _place(self, number: int, segment: Segment, offset: int, size: int, status: int, width: int) -> bytes:
        """One descriptor."""
        tail = segment.memo.get(self._memo_names[status, width]) or self._tail(segment, status, width)
        return self._numbers.pack(number, self._alternative, size, segment.spec.base + offset) + tail

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

    def own_place(self, made: Object, segment: Segment, status: int, width: int) -> bytes:
        """The only replica of an object that has just its own place (`segment`), with a count in front."""
        return counted(1, width) + self._place(made.put_seq << 4, segment, made.offset, made.size, status, width)

    def started(self, made: Object, width: int) -> bytes:
        """The replicas of an unfinished object, with their count in front."""
        if made.segment is not None:
            return self.own_place(made, made.segment, PROCESSING, width)
        return self.vector(made.replicas, made.size, width)

    def vector(self, replicas: Sequence[Replica], size: int, width: int) -> bytes:
        """All of them, with their count in front."""
        places = [self._place(each.id, each.segment, each.offset, size, each.status, width) for each in replicas]
        return counted(len(replicas), width) + b"".join(places)

    def with_disks(self, replicas: Sequence[Replica], disks: Sequence[DiskReplica], size: int, width: int) -> bytes:
        """Memory replicas first, as the C++ master sends them, then those on disk."""
        out = bytearray(counted(len(replicas) + len(disks), width))
        for replica in replicas:
            out += self._place(replica.id, replica.segment, replica.offset, size, replica.status, width)
        for disk in disks:
            self._replica.write(out, disk_message_of(disk, size), width)
        return bytes(out)

    def _tail(self, segment: Segment, status: int, width: int) -> bytes:
        out = bytearray()
        for member, text in zip(self._strings, (segment.spec.protocol, segment.spec.endpoint), strict=True):
            member.write(out, text, width)
        self._status.write(out, status, width)
        segment.remember(self._memo_names[status, width], bytes(out))
        return bytes(out)
