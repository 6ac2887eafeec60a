"""The rows of the index: plain data in the tables of its parts.

There may be millions of `Object`s: they are structs outside of the garbage collector's sight, without cycles. A row is
written only by the part that owns its table (`ROWS` in scripts/structure.py). A `Segment` has methods for its changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from leasehold.base.codes import ReplicaStatus

if TYPE_CHECKING:
    from leasehold.index.space.allocator import Allocator

PROCESSING = int(ReplicaStatus.PROCESSING)
COMPLETE = int(ReplicaStatus.COMPLETE)

LONG_AGO = -(1 << 62)

# The protocol of our own storage hosts. Mooncake's clients never get replicas there, nor ours replicas on theirs.
NATIVE_PROTOCOL = "leasehold"


class SegmentSpec(Struct, frozen=True):
    """Memory that a storage client lends, as the client describes it."""

    id: bytes
    name: str
    base: int
    size: int
    endpoint: str
    protocol: str
    host_id: str = ""


class PutConfig(Struct, frozen=True):
    """The options of a put. `native` callers speak the protocol `leasehold`, the others do not."""

    replicas: int = 1
    soft_pin: int = 0
    soft_pin_ttl_ms: int | None = None
    hard_pin: bool = False
    preferred_segments: tuple[str, ...] = ()
    preferred_host: str = ""
    host: str = ""  # of the writer, for the strategy `local-first`
    group: bytes = b""
    native: bool = False
    data_type: int = 0


class Segment:
    """A mounted segment. Its incarnation is the number of the record that mounted it."""

    __slots__ = (
        "allocator", "awaits_mount", "client", "drain_end", "draining", "ended_n", "evicted", "incarnation", "joined",
        "memo", "native", "proven", "spec", "unmounted",
    )  # fmt: skip

    def __init__(
        self,
        spec: SegmentSpec,
        client: bytes,
        incarnation: int,
        allocator: Allocator[Owner],
        drain_end: int = 0,
        evicted: bool = False,
        joined: int = LONG_AGO,
        awaits_mount: bool = False,
    ) -> None:
        self.spec = spec
        self.client = client
        self.incarnation = incarnation
        self.allocator = allocator
        self.native = spec.protocol == NATIVE_PROTOCOL
        self.drain_end = drain_end  # internal time at which a draining segment is unmounted; 0: not draining
        self.draining = False  # a drain job empties it, or has emptied it (see `Drains`)
        self.unmounted = False
        self.ended_n = 0  # the record that ended it
        self.evicted = evicted  # this node evicted from it; another node may still have the object (see `Space`)
        self.awaits_mount = awaits_mount  # adopted from another master, and not yet mounted here by its owner
        self.joined = joined  # internal time of its mount; unknown from a snapshot
        # False after a complete restart, until the owner's first ping. Until then no client is sent there (H9).
        self.proven = True
        # For the wire: the encoded end of a descriptor (protocol and endpoint), by release. The index never reads it.
        self.memo: dict[str, bytes] = {}

    def drain(self, end: int) -> None:
        """No new objects here; the segment is to be unmounted at `end`."""
        self.drain_end = end

    def set_draining(self, draining: bool) -> None:
        """A drain job empties it, or no longer."""
        self.draining = draining

    def unmount(self, n: int) -> None:
        """Record `n` unmounted it."""
        self.unmounted = True
        self.ended_n = n

    def set_evicted(self) -> None:
        """This node evicted an object from it."""
        self.evicted = True

    def set_proven(self, proven: bool) -> None:
        """Whether its owner has pinged since the last complete restart (H9)."""
        self.proven = proven

    def bind(self, spec: SegmentSpec, client: bytes) -> None:
        """Its owner has mounted this adopted segment: the same bytes, perhaps under another id or name."""
        self.spec = spec
        self.client = client
        self.awaits_mount = False
        self.memo = {}

    def remember(self, name: str, tail: bytes) -> None:
        """Keep the encoded end of a descriptor under this name in `memo`."""
        self.memo[name] = tail

    @property
    def placeable(self) -> bool:
        """Whether new objects may be put there."""
        return self.proven and not self.drain_end and not self.draining


class Replica(Struct, gc=False, eq=False):
    """One copy of an object in one segment. The number of the record that claimed its space is `id >> 4`."""

    id: int
    segment: Segment
    offset: int
    status: int

    @property
    def address(self) -> int:
        """The address of the bytes, in the owner's address space."""
        return self.segment.spec.base + self.offset

    @property
    def claimed_n(self) -> int:
        return self.id >> 4


class Draft(Struct, gc=False):
    """Data of a put that is needed only until it ends."""

    started: int  # internal time
    soft_pin: int
    soft_pin_ttl_ms: int
    request: int
    in_place: bool


class Extra(Struct, gc=False, eq=False):
    """Data that few objects have: `Object.extra` is None for the others."""

    draft: Draft | None = None  # while the put is unfinished
    group: bytes = b""
    soft_pin_end: int = 0
    hard_pin: bool = False
    checksum: int | None = None
    data_type: int = 0
    replicas: tuple[Replica, ...] = ()  # all of them, unless the object has just its own place

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in it, so that the object does not need it."""
        has_any = self.group or self.soft_pin_end or self.hard_pin or self.data_type or self.replicas
        return not has_any and self.draft is None and self.checksum is None


class Object(Struct, gc=False, eq=False):
    """A version of a key. Two objects of one name are two versions.

    There may be millions, so the usual one is small: with one replica, which its own put claimed, no group and no pin,
    it is one struct and a few numbers. Such a replica is not a struct of its own: `segment` and `offset` are its place,
    its number is `put_seq << 4`, and it is complete when the object is visible. An object with other replicas has
    `segment` None and all of them in `extra`. The properties do not show the difference.

    Times are internal (see `LeaderClock`); the commands translate. Twelve fields fill an allocation of 112 bytes.
    """

    key: bytes
    tenant: bytes
    put_seq: int  # the number of its put_start or upsert_start
    changed_n: int  # the last record that changed what a reader sees of it
    size: int
    client: bytes
    lease_end: int
    visible: bool = False  # it has a complete replica
    dirty: bool = False  # its lease was renewed since the last flush
    segment: Segment | None = None  # of its own place
    offset: int = 0
    extra: Extra | None = None

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """All replicas. The one at the object's own place is made for this answer: it is to be read, not written."""
        if self.segment is not None:
            status = COMPLETE if self.visible else PROCESSING
            return (Replica(self.put_seq << 4, self.segment, self.offset, status),)
        return () if self.extra is None else self.extra.replicas

    @property
    def replica_count(self) -> int:
        if self.segment is not None:
            return 1
        return 0 if self.extra is None else len(self.extra.replicas)

    @property
    def draft(self) -> Draft | None:
        """While the put is unfinished."""
        return None if self.extra is None else self.extra.draft

    @property
    def group(self) -> bytes:
        return b"" if self.extra is None else self.extra.group

    @property
    def soft_pin_end(self) -> int:
        return 0 if self.extra is None else self.extra.soft_pin_end

    @property
    def hard_pin(self) -> bool:
        return self.extra is not None and self.extra.hard_pin

    @property
    def checksum(self) -> int | None:
        return None if self.extra is None else self.extra.checksum

    @property
    def data_type(self) -> int:
        return 0 if self.extra is None else self.extra.data_type

    def set_replicas(self, replicas: tuple[Replica, ...]) -> None:
        """Give it these replicas instead of those it has."""
        if len(replicas) == 1 and replicas[0].id == self.put_seq << 4:
            self.segment, self.offset = replicas[0].segment, replicas[0].offset
            replicas = ()
        else:
            self.segment = None
        if self.extra is not None:
            self.extra.replicas = replicas
            self.drop_empty_extra()
        elif replicas:
            self.extra = Extra(replicas=replicas)

    def set_soft_pin_end(self, end: int) -> None:
        """Pin it softly until `end`; 0: not at all."""
        if self.extra is not None:
            self.extra.soft_pin_end = end
            self.drop_empty_extra()
        elif end:
            self.extra = Extra(soft_pin_end=end)

    def drop_empty_extra(self) -> None:
        """Free the extra data if there is none left."""
        if self.extra is not None and self.extra.is_empty:
            self.extra = None


class Quarantined(Struct, gc=False, eq=False):
    """Space that has left its object but may still be read or written. It is not handed out before `end`."""

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


class DiskReplica(Struct, frozen=True, gc=False):
    """One copy of a version on a disk: the owner finds it by key; the place distinguishes versions of a key."""

    id: int
    owner: bytes
    endpoint: str
    bucket: int
    offset: int
    key_size: int

    def is_at(self, bucket: int, offset: int, key_size: int) -> bool:
        return (self.bucket, self.offset, self.key_size) == (bucket, offset, key_size)


class DiskVersion(Struct, gc=False, eq=False):
    """A version of a key that is on disks. `row` is what a reader gets if no memory replica is left."""

    row: Object
    replicas: tuple[DiskReplica, ...]  # the newest first
    promotion: int = 0  # the number of the promotion under way, or 0
    promoter: bytes = b""
    cooling_until: int = 0  # internal time: no other promotion before


class DiskOwner(Struct, gc=False, eq=False):
    """A storage client that lends its disk."""

    client: bytes
    since_n: int  # its first mount: replicas of an earlier time were forgotten
    connected: bool
    changed_n: int  # the record that connected or disconnected it
    newest_bucket: int = 0  # of its files that were reported: numbers grow, so a repeated notice is known by it
    replicas: int = 0
    used_bytes: int = 0


class Client(Struct, gc=False, eq=False):
    """A storage client, alive while it pings."""

    id: bytes
    seen: int  # internal time of its last ping


class Task(Struct, gc=False, eq=False):
    """A copy or move for a storage client to carry out."""

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
    revived: int = LONG_AGO  # when it was last read after its lease had expired: members expired by then stay so


class RetiredSegment(Struct, gc=False, eq=False):
    """The memory of an unmounted segment, and its bytes that may still be read or written if it is mounted again."""

    endpoint: str
    base: int
    size: int
    end: int  # until then all of it: its client was declared dead and may be alive
    duration_ms: int
    extents: list[RetiredExtent]


class RetiredExtent(Struct, gc=False, eq=False):
    address: int
    size: int
    end: int
    duration_ms: int


Owner = Object | Quarantined | CopyJob
