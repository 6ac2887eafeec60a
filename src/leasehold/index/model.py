"""The things that the index holds. Millions of `Object`s: structs without collector, without cycles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from leasehold.base.codes import ReplicaStatus

if TYPE_CHECKING:
    from leasehold.index.allocator import Allocator

PROCESSING = int(ReplicaStatus.PROCESSING)
COMPLETE = int(ReplicaStatus.COMPLETE)

# The protocol of our own storage hosts: Mooncake's clients are never sent there, nor ours to theirs.
NATIVE_PROTOCOL = "leasehold"


class SegmentSpec(Struct, frozen=True):
    """What a storage client says about memory that it lends."""

    id: bytes
    name: str
    base: int
    size: int
    endpoint: str
    protocol: str
    host_id: str = ""


class PutConfig(Struct, frozen=True):
    """What a put asks for. `native` callers speak the protocol `leasehold`, the others do not."""

    replicas: int = 1
    soft_pin: int = 0
    soft_pin_ttl_ms: int | None = None
    hard_pin: bool = False
    preferred_segments: tuple[str, ...] = ()
    preferred_host: str = ""
    group: bytes = b""
    native: bool = False
    data_type: int = 0


class Segment:
    """A mounted segment: what was said, its incarnation (the number of its mount), and its space."""

    __slots__ = (
        "client", "drain_end", "ended_n", "evicted", "incarnation", "memo", "native", "proven", "space", "spec",
        "unmounted",
    )  # fmt: skip

    def __init__(self, spec: SegmentSpec, client: bytes, incarnation: int, space: Allocator[Owner]) -> None:
        self.spec = spec
        self.client = client
        self.incarnation = incarnation
        self.space = space
        self.native = spec.protocol == NATIVE_PROTOCOL
        self.drain_end = 0  # internal time at which a draining segment is unmounted; 0: not draining
        self.unmounted = False
        self.ended_n = 0  # the record that ended it
        self.evicted = False  # something was evicted from it here: another node may still have that (see `doubt`)
        # False after a restart of everything, until its owner has pinged: until then nobody is sent there (H9).
        self.proven = True
        # For the wire: the encoded tail of a descriptor (protocol and endpoint), by release. The index never reads it.
        self.memo: dict[str, bytes] = {}

    @property
    def placeable(self) -> bool:
        """Whether new objects may be put there."""
        return self.proven and not self.drain_end


class Replica(Struct, gc=False, eq=False):
    """One copy of an object in one segment. The number of the record that claimed its space is `id >> 4`."""

    id: int
    segment: Segment
    offset: int
    status: int

    @property
    def address(self) -> int:
        """Where the bytes are, in the owner's address space."""
        return self.segment.spec.base + self.offset

    @property
    def claimed_n(self) -> int:
        return self.id >> 4


class Draft(Struct, gc=False):
    """What is known of a put only until it ends."""

    started: int  # internal time
    soft_pin: int
    soft_pin_ttl_ms: int
    request: int
    in_place: bool


class Object(Struct, gc=False, eq=False):
    """A version of a key. Identity is identity: two objects of one name are two versions.

    Times are internal (see `State.offset`); the commands of `Index` translate.
    """

    key: bytes
    tenant: bytes
    put_seq: int  # the number of its put_start or upsert_start
    changed_n: int  # the number of the last record that changed what a reader sees of it
    size: int
    replicas: tuple[Replica, ...]
    client: bytes
    lease_end: int
    soft_pin_end: int
    hard_pin: bool
    visible: bool  # it has a complete replica
    dirty: bool  # its lease was renewed since the last flush
    group: bytes
    draft: Draft | None  # while the put is unfinished
    checksum: int | None
    data_type: int


class Quarantined(Struct, gc=False, eq=False):
    """Space that has left its object but may still be read or written. Nobody gets it before `end`."""

    segment: Segment
    offset: int
    size: int
    duration_ms: int
    end: int  # internal time
    n: int  # the record that put it here


class CopyJob(Struct, gc=False, eq=False):
    """Copies of an object that are being written. Readers see them when they are complete."""

    tenant: bytes
    key: bytes
    put_seq: int
    size: int
    client: bytes
    started_n: int
    started: int  # internal time
    source: int  # the id of the replica that is copied
    moves: int  # the id of the replica that a move ends, or 0
    replicas: tuple[Replica, ...]


class Client(Struct, gc=False, eq=False):
    """A storage client, alive while it pings."""

    id: bytes
    heard: int  # internal time


class Task(Struct, gc=False, eq=False):
    """A copy or move that a storage client shall do."""

    id: bytes
    kind: int
    tenant: bytes
    key: bytes
    source: str
    targets: tuple[str, ...]
    client: bytes
    created_ms: int
    updated_ms: int
    status: int
    message: str


class Group(Struct, gc=False, eq=False):
    """Objects that share a lease and go together, best effort. Members by key: no cycles."""

    lease_end: int
    members: dict[bytes, None]
    revived: int = -(1 << 62)  # when it was last read after its lease had ended: who was over by then stays so


class RetiredSegment(Struct, gc=False, eq=False):
    """Where a segment was, and which of its bytes somebody may still read or write if it comes back."""

    endpoint: str
    base: int
    size: int
    end: int  # all of it, until then: its client was taken for dead and may not be
    duration_ms: int
    extents: list[RetiredExtent]


class RetiredExtent(Struct, gc=False, eq=False):
    address: int
    size: int
    end: int
    duration_ms: int


Owner = Object | Quarantined | CopyJob
