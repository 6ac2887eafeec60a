"""A fuzzy snapshot: slices of key hashes, written one after the other while the state changes, and a last slice.

A slice is a run of tables. Their number depends on the objects in them, so that every slice is a short step.

All times are leader time of the snapshot's epoch. Times before the epoch are negative.
"""

from __future__ import annotations

from msgspec import Struct

from leasehold.index.drains import DrainJob
from leasehold.index.model import SegmentSpec


class SavedReplica(Struct, array_like=True, frozen=True, gc=False):
    id: int
    incarnation: int
    offset: int
    status: int


class SavedDraft(Struct, array_like=True, frozen=True, gc=False):
    """Of an unfinished put."""

    started_ms: int
    soft_pin: int
    soft_pin_ttl_ms: int
    request: int
    in_place: bool
    beside: bool  # an unfinished upsert beside the readable version


class SavedObject(Struct, array_like=True, frozen=True, gc=False):
    tenant: bytes
    key: bytes
    put_seq: int
    changed_n: int
    size: int
    replicas: tuple[SavedReplica, ...]
    client: bytes
    lease_end_ms: int
    soft_pin_end_ms: int
    hard_pin: bool
    group: bytes
    checksum: int | None
    data_type: int
    draft: SavedDraft | None = None


class SavedCopy(Struct, array_like=True, frozen=True, gc=False):
    tenant: bytes
    key: bytes
    put_seq: int
    size: int
    client: bytes
    started_n: int
    started_ms: int
    source: int
    moves: int
    replicas: tuple[SavedReplica, ...]


class SavedDiskReplica(Struct, array_like=True, frozen=True, gc=False):
    id: int
    owner: bytes
    endpoint: str
    bucket: int
    offset: int
    key_size: int


class SavedDiskVersion(Struct, array_like=True, frozen=True, gc=False):
    tenant: bytes
    key: bytes
    put_seq: int
    changed_n: int
    size: int
    writer: bytes
    lease_end_ms: int
    checksum: int | None
    data_type: int
    replicas: tuple[SavedDiskReplica, ...]
    promotion: int = 0
    promoter: bytes = b""
    cooling_until_ms: int | None = None


class Slice(Struct, array_like=True, frozen=True, gc=False, tag=1):
    """All objects of consecutive tables, as of record `n` of `epoch`."""

    first_table: int
    table_count: int
    epoch: int
    n: int
    objects: tuple[SavedObject, ...]
    copies: tuple[SavedCopy, ...] = ()


class DiskSlice(Slice, array_like=True, frozen=True, gc=False, tag=3):
    """A slice of keys of which some are on disk."""

    disk: tuple[SavedDiskVersion, ...] = ()


class SavedSegment(Struct, array_like=True, frozen=True, gc=False):
    spec: SegmentSpec
    client: bytes
    incarnation: int
    drain_end_ms: int | None
    evicted: bool = False


class SavedQuarantine(Struct, array_like=True, frozen=True, gc=False):
    incarnation: int
    offset: int
    size: int
    duration_ms: int
    end_ms: int
    n: int


class QuarantineSlice(Struct, array_like=True, frozen=True, gc=False, tag=2):
    """Extents in quarantine when the walk met them; some may have left it since (see `QuarantineWalk`)."""

    quarantine: tuple[SavedQuarantine, ...]


class SavedRetired(Struct, array_like=True, frozen=True, gc=False):
    endpoint: str
    base: int
    size: int
    end_ms: int
    duration_ms: int
    extents: tuple[tuple[int, int, int, int], ...]  # address, size, end_ms, duration_ms


class SavedTask(Struct, array_like=True, frozen=True, gc=False):
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


class Keyless(Struct, array_like=True, frozen=True, gc=False):
    """The last slice: segments, clients, retired segments, tasks, maximum term, grace, epoch (H7).

    Of the quarantine it has the extents that are in no `QuarantineSlice` before it. A new field is added at the end,
    with a default, and is listed in `features.LEVELS`: nodes of an older release would ignore it.
    """

    epoch: int
    n: int
    latest_ms: int
    max_term_ms: int
    older_than_ms: int
    grace_end_ms: int
    epoch_start_ms: int
    segments: tuple[SavedSegment, ...]
    clients: tuple[bytes, ...]
    quarantine: tuple[SavedQuarantine, ...]
    retired: tuple[SavedRetired, ...]
    tasks: tuple[SavedTask, ...]
    suspect: tuple[tuple[int, list[tuple[int, int]]], ...] = ()  # incarnation, stretches (start, end)
    unproven_before_n: int = 0
    level: int = 0
    switched_n: int = 0
    quotas: tuple[tuple[bytes, int], ...] = ()  # tenant, requested bytes
    drains: tuple[tuple[DrainJob, tuple[int, ...]], ...] = ()  # job, the mounts that it drains
    adopted: tuple[tuple[int, int, bool], ...] = ()  # incarnation, unit of its blocks, whether its owner must mount it
    disk_owners: tuple[tuple[bytes, int, bool, int, int], ...] = ()  # client, first mount, connected, record, bucket
