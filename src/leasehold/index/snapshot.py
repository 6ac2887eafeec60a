"""A fuzzy snapshot.

Slices of key hashes, written one after the other while the state goes on, and a last one for the rest.
"""

from __future__ import annotations

from msgspec import Struct

from leasehold.index.model import SegmentSpec


class SavedReplica(Struct, array_like=True, frozen=True, gc=False):
    id: int
    incarnation: int
    offset: int
    status: int


class SavedObject(Struct, array_like=True, frozen=True, gc=False):
    """Ends are leader time of the slice's epoch (they may be negative: older than the epoch)."""

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
    # of an unfinished put: (started, soft pin action, soft pin ttl, request, in place)
    draft: tuple[int, int, int, int, bool] | None = None
    pending: bool = False  # an unfinished upsert beside the readable version


class Slice(Struct, array_like=True, frozen=True, gc=False):
    """All objects whose key hash is `number`, as of record `n` of `epoch`."""

    number: int
    epoch: int
    n: int
    objects: tuple[SavedObject, ...]


class SavedSegment(Struct, array_like=True, frozen=True, gc=False):
    spec: SegmentSpec
    client: bytes
    incarnation: int
    drain_end_ms: int


class SavedLimbo(Struct, array_like=True, frozen=True, gc=False):
    incarnation: int
    offset: int
    size: int
    duration_ms: int
    end_ms: int
    n: int


class SavedGrave(Struct, array_like=True, frozen=True, gc=False):
    endpoint: str
    base: int
    size: int
    end_ms: int
    extents: tuple[tuple[int, int, int], ...]  # address, size, end_ms


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
    """What has no key: segments, clients, limbo, graves, tasks, maximum term, grace, epoch. The last slice."""

    epoch: int
    n: int
    latest_ms: int
    max_term_ms: int
    older_than_ms: int
    floor_ms: int
    epoch_start_ms: int
    segments: tuple[SavedSegment, ...]
    clients: tuple[bytes, ...]
    limbo: tuple[SavedLimbo, ...]
    graves: tuple[SavedGrave, ...]
    tasks: tuple[SavedTask, ...]
