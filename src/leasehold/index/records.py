"""Records: decisions of the primary, in a dense chain. The same records give the same state on every node.

A record does not contain its number: `n` is its place in the chain and travels beside it. Numbers are dense and
continue across epochs. Times (`at_ms`) are leader time (milliseconds of the epoch on the leader's clock). Durations
(`quarantine_ms`) count from `at_ms`.

Records are packed as arrays with an integer tag, so that each costs few bytes. New fields are added at the end, with
a default, so that a neighbouring release can read them. A new kind gets the next tag and a level (`features.LEVELS`).
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

NEVER_MS = -1


class Cause(IntEnum):
    """Why something was deleted, for people and for tests."""

    REMOVE = 0
    REMOVE_BY_REGEX = 1
    REMOVE_ALL = 2
    PUT_REVOKE = 3
    UNMOUNT = 4
    SUPERSEDED = 5
    CLIENT_GONE = 6
    PUT_TIMEOUT = 7
    DRAINED = 8


class Extent(Struct, array_like=True, frozen=True, gc=False):
    """A place: the mount of a segment, and an offset in it. The length is the object's."""

    incarnation: int
    offset: int


class Begin(Struct, tag=0, array_like=True, frozen=True, gc=False):
    """The first record of every epoch, durable before any answer.

    With `handover_ms == NEVER_MS` every older lease end, and every end in quarantine, is lifted to at least
    `at_ms + grace_ms` (in quarantine: or to its own duration again).
    `shift_ms` is the place on the old epoch's clock where the new one starts, for times that are not promises (soft
    pins). It is in the record because not every node has seen the same last moment of the old epoch.
    After a hand-over at leader time `handover_ms` of the epoch before, older ends are mapped to
    `end - handover_ms + drift_ms` instead.
    `unproven_before_n`: owners of segments mounted before this record are unproven until their first ping (H9);
    0: none.
    """

    at_ms: int
    epoch: int
    max_term_ms: int
    grace_ms: int
    handover_ms: int = NEVER_MS
    drift_ms: int = 0
    shift_ms: int = 0
    unproven_before_n: int = 0


class Handover(Struct, tag=1, array_like=True, frozen=True, gc=False):
    """The last record of an epoch that ends by plan; names the last unlogged batch, which a successor must have."""

    at_ms: int
    epoch: int
    last_unlogged: int


class MaxTerm(Struct, tag=2, array_like=True, frozen=True, gc=False):
    """The longest lease that may be granted from now on. Raised before the first longer grant."""

    at_ms: int
    max_term_ms: int


class MountSegment(Struct, tag=3, array_like=True, frozen=True, gc=False):
    """A segment is lent. Its incarnation is this record's number. `supersedes`: incarnations that end with it."""

    at_ms: int
    client: bytes
    segment: bytes
    name: str
    base: int
    size: int
    endpoint: str
    protocol: str
    host_id: str
    supersedes: tuple[int, ...] = ()


class UnmountSegment(Struct, tag=4, array_like=True, frozen=True, gc=False):
    """Segments are unmounted, and every replica in them is lost."""

    at_ms: int
    incarnations: tuple[int, ...]
    cause: Cause


class DrainSegment(Struct, tag=5, array_like=True, frozen=True, gc=False):
    """No new space from this segment; it will be unmounted after `grace_ms`."""

    at_ms: int
    incarnation: int
    grace_ms: int


class ClientGone(Struct, tag=6, array_like=True, frozen=True, gc=False):
    """A client has not pinged for the client TTL and is dead; `incarnations` are its segments, which end with it."""

    at_ms: int
    client: bytes
    incarnations: tuple[int, ...]


class PutStart(Struct, tag=7, array_like=True, frozen=True, gc=False):
    """Space is handed to a writer. Durable before it is answered, always (P3).

    `discards` is the number of an unfinished put of the same key that it replaces; the extents of that put are
    quarantined for `quarantine_ms`. `upsert`: a finished object of this name stays readable until the end.
    `in_place`: the extents of that object are written over.
    """

    at_ms: int
    client: bytes
    tenant: bytes
    key: bytes
    size: int
    extents: tuple[Extent, ...]
    soft_pin: int = 0
    soft_pin_ttl_ms: int = 0
    hard_pin: bool = False
    group: bytes = b""
    request: int = 0
    upsert: bool = False
    in_place: bool = False
    discards: int = 0
    quarantine_ms: int = 0
    data_type: int = 0


class PutEnd(Struct, tag=8, array_like=True, frozen=True, gc=False):
    """A put or upsert is complete. `lease_ms`: the first lease (policy `expiry`), 0 for none.

    `quarantine_ms`: for the extents of the version that it replaces.
    """

    at_ms: int
    tenant: bytes
    key: bytes
    put_seq: int
    lease_ms: int = 0
    quarantine_ms: int = 0
    checksum: int | None = None


class PutRevoke(Struct, tag=9, array_like=True, frozen=True, gc=False):
    """An unfinished put or upsert is given back; its extents are quarantined until its writer must have given up."""

    at_ms: int
    tenant: bytes
    key: bytes
    put_seq: int
    quarantine_ms: int
    cause: Cause = Cause.PUT_REVOKE


class Remove(Struct, tag=10, array_like=True, frozen=True, gc=False):
    """One key is removed, whether the primary had it or not (a standby may have an object that the primary evicted)."""

    at_ms: int
    tenant: bytes
    key: bytes
    quarantine_ms: int
    cause: Cause = Cause.REMOVE


class RemoveRange(Struct, tag=11, array_like=True, frozen=True, gc=False):
    """Remove the objects of a tenant, in a span of tables (of key hashes), that are older than this record and match.

    `stays` lists by put number the objects that stay (leased, unfinished). An empty pattern matches all.
    """

    at_ms: int
    tenant: bytes
    pattern: bytes
    first_table: int
    last_table: int
    stays: tuple[int, ...]
    quarantine_ms: int
    cause: Cause


class ReplicaClear(Struct, tag=12, array_like=True, frozen=True, gc=False):
    """Replicas of one object are taken away by id."""

    at_ms: int
    tenant: bytes
    key: bytes
    put_seq: int
    replicas: tuple[int, ...]
    quarantine_ms: int


class CopyStart(Struct, tag=13, array_like=True, frozen=True, gc=False):
    """Space for more replicas of a finished object.

    `moves` is the replica that ends when a move is done (0: a copy). `size` is the object's (0: not known), for nodes
    that have evicted the object.
    """

    at_ms: int
    client: bytes
    tenant: bytes
    key: bytes
    put_seq: int
    extents: tuple[Extent, ...]
    source: int
    moves: int = 0
    size: int = 0


class CopyEnd(Struct, tag=14, array_like=True, frozen=True, gc=False):
    """The copies begun by record `started` are complete; a moved replica is quarantined for `quarantine_ms`."""

    at_ms: int
    tenant: bytes
    key: bytes
    put_seq: int
    started: int
    quarantine_ms: int


class CopyRevoke(Struct, tag=15, array_like=True, frozen=True, gc=False):
    """The copies begun by record `started` are given back."""

    at_ms: int
    tenant: bytes
    key: bytes
    put_seq: int
    started: int
    quarantine_ms: int


class TaskCreate(Struct, tag=16, array_like=True, frozen=True, gc=False):
    """A copy or move for a storage client to carry out. Its id is (epoch, number of this record)."""

    at_ms: int
    kind: int
    tenant: bytes
    key: bytes
    source: str
    targets: tuple[str, ...]
    client: bytes
    created_ms: int


class TaskDone(Struct, tag=17, array_like=True, frozen=True, gc=False):
    """A task has finished, as its client reports."""

    at_ms: int
    task: bytes
    status: int
    message: str


class PutEnds(Struct, tag=19, array_like=True, frozen=True, gc=False):
    """Several puts of one call are complete: plain ones, without a checksum and without an older version to replace.

    A put number names the put, so there are no keys here. Each object is judged by the slice of its own key.
    """

    at_ms: int
    put_seqs: tuple[int, ...]
    lease_ms: int = 0


class FeatureLevel(Struct, tag=18, array_like=True, frozen=True, gc=False):
    """The cluster's feature level from now on. Nodes that cannot read the level are refused by this record.

    The only kind that may be written at a lower level than its own (1): it is the switch.
    """

    at_ms: int
    level: int


class SetQuota(Struct, tag=40, array_like=True, frozen=True, gc=False):
    """The bytes of memory that a tenant may use; 0: its quota is deleted."""

    at_ms: int
    tenant: bytes
    requested_bytes: int


class DrainStart(Struct, tag=41, array_like=True, frozen=True, gc=False):
    """Empty these segments: no new objects there, and the objects are moved away. The job's id is (epoch, number)."""

    at_ms: int
    segments: tuple[str, ...]
    targets: tuple[str, ...]
    concurrency: int
    created_ms: int


class DrainEnd(Struct, tag=42, array_like=True, frozen=True, gc=False):
    """A drain job has finished, or was cancelled."""

    at_ms: int
    job: bytes
    status: int
    message: str


class AdoptSegment(Struct, tag=60, array_like=True, frozen=True, gc=False):
    """A segment of another master, with the objects there, is taken over; its owner must mount it here.

    Its incarnation is this record's number. Its blocks are multiples of `unit`.
    """

    at_ms: int
    client: bytes
    segment: bytes
    name: str
    base: int
    size: int
    endpoint: str
    protocol: str
    unit: int


class AdoptEnd(Struct, tag=61, array_like=True, frozen=True, gc=False):
    """All objects of the other master are here: the rest of its segments is quarantined (incarnation, duration)."""

    at_ms: int
    quarantine: tuple[tuple[int, int], ...]


class BindSegment(Struct, tag=62, array_like=True, frozen=True, gc=False):
    """The owner of an adopted segment has mounted it: its objects may be read from now on."""

    at_ms: int
    incarnation: int
    client: bytes
    segment: bytes
    name: str
    protocol: str
    host_id: str


class DiskMount(Struct, tag=50, array_like=True, frozen=True, gc=False):
    """A storage client lends its disk, or returns after an absence: its disk replicas are readable."""

    at_ms: int
    client: bytes


class DiskGone(Struct, tag=51, array_like=True, frozen=True, gc=False):
    """A client is silent: its disk replicas are kept, and no reader is sent there."""

    at_ms: int
    client: bytes


class DiskUnmount(Struct, tag=52, array_like=True, frozen=True, gc=False):
    """A client takes its disk back, or did not return in time: its disk replicas are forgotten."""

    at_ms: int
    client: bytes


class DiskItem(Struct, array_like=True, frozen=True, gc=False):
    """A version of a key on a disk. It stands alone: a node that has evicted the object knows nothing else of it.

    `previous`: the owner whose replica at the same place this one replaces (empty: none).
    """

    tenant: bytes
    key: bytes
    put_seq: int
    size: int
    bucket: int
    offset: int
    key_size: int
    writer: bytes
    checksum: int | None = None
    data_type: int = 0
    previous: bytes = b""


class DiskStored(Struct, tag=53, array_like=True, frozen=True, gc=False):
    """Versions are on the disk of a client, and readable at its endpoint."""

    at_ms: int
    client: bytes
    endpoint: str
    items: tuple[DiskItem, ...]


class DiskEvict(Struct, tag=54, array_like=True, frozen=True, gc=False):
    """The owner deletes its copy of a version."""

    at_ms: int
    tenant: bytes
    key: bytes
    put_seq: int
    client: bytes


class PromoteStart(Struct, tag=55, array_like=True, frozen=True, gc=False):
    """Space for a version that is only on disk. It is handed out as by a `PutStart` (P3); the disk replica stays.

    `source` is the put number of the version that is read. When the promotion ends, its number is this record's.
    """

    at_ms: int
    client: bytes
    tenant: bytes
    key: bytes
    source: int
    size: int
    extents: tuple[Extent, ...]


class PromoteEnd(Struct, tag=56, array_like=True, frozen=True, gc=False):
    """The bytes of a promotion are written: the version is in memory again, under the number `put_seq`."""

    at_ms: int
    tenant: bytes
    key: bytes
    put_seq: int
    source: int
    lease_ms: int = 0


Record = (
    Begin
    | Handover
    | MaxTerm
    | MountSegment
    | UnmountSegment
    | DrainSegment
    | ClientGone
    | PutStart
    | PutEnd
    | PutRevoke
    | Remove
    | RemoveRange
    | ReplicaClear
    | CopyStart
    | CopyEnd
    | CopyRevoke
    | TaskCreate
    | TaskDone
    | FeatureLevel
    | SetQuota
    | DrainStart
    | DrainEnd
    | PutEnds
    | AdoptSegment
    | AdoptEnd
    | BindSegment
    | DiskMount
    | DiskGone
    | DiskUnmount
    | DiskStored
    | DiskEvict
    | PromoteStart
    | PromoteEnd
)
