"""What happens to a node: everything that its machine is told, always together with the time."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from leasehold.mvcc.errors import StoreError
from leasehold.mvcc.model import (
    DeleteResult,
    LeaseGrantResult,
    LeaseRevokeResult,
    PutResult,
    RangeResult,
    TxnResult,
    WatchBatch,
)

StoreResult: TypeAlias = RangeResult | PutResult | DeleteResult | TxnResult | LeaseGrantResult | LeaseRevokeResult


class Failure(Enum):
    """Why a store request has no result. It decides whether a repeat is safe."""

    REFUSED = "refused"  # the store said no; nothing was changed (`error` says why)
    UNAVAILABLE = "unavailable"  # nobody could be asked; nothing was changed
    UNKNOWN = "unknown"  # sent and not answered: it may have happened, or may still happen


class Started(Struct, frozen=True):
    """The node's shell is up. The first event, once. The local snapshot, if any, was asked for by an effect."""


class Ticked(Struct, frozen=True):
    """`machine.wake_at_ms` has been reached. Ticking early or often is harmless."""


class StoreAnswered(Struct, frozen=True):
    """The end of one `StoreRequest`, `GrantLease` or `RevokeLease`: exactly one of `result` and `failure`."""

    request: int
    result: StoreResult | None = None
    failure: Failure | None = None
    error: StoreError | None = None


class WatchDelivered(Struct, frozen=True):
    watch: int
    batch: WatchBatch


class WatchBroken(Struct, frozen=True):
    """The watch cannot go on without loss (compacted, or its reader was too slow): list again."""

    watch: int
    reason: str = ""


class LeaseLost(Struct, frozen=True):
    """The store said that a lease under `KeepLease` is gone."""

    lease: int


class Decided(Struct, frozen=True):
    """Commands were put to `machine.index`: there may be records to commit."""


class SwitchoverRequested(Struct, frozen=True):
    """An operator wants another node to lead; `target` may name it."""

    target: str = ""


class ForceRequested(Struct, frozen=True):
    """An operator's word: lead in spite of records set aside, or of a buffer that cannot be reached."""


class BufferPushed(Struct, frozen=True):
    """Everything up to record `n` stands in the buffer."""

    n: int


class BufferDrained(Struct, frozen=True):
    """The old epochs are sealed and read: finished batches, byte for byte, in the order of their numbers."""

    batches: tuple[bytes, ...] = ()


class BufferFailed(Struct, frozen=True):
    """The buffer could not be reached. A push may be repeated; a drain needs an operator's word to go on."""

    reason: str


class SnapshotStored(Struct, frozen=True):
    """A snapshot's file is complete, checked and on the disk."""

    snapshot: int


class SnapshotFailed(Struct, frozen=True):
    """A snapshot's file could not be written: nothing of it counts, and another one is due."""

    snapshot: int


class SnapshotRead(Struct, frozen=True):
    """The newest readable snapshot, from the disk or from a peer; None where there is none."""

    raw: bytes | None
    source: str = "disk"


NodeEvent: TypeAlias = (
    Started
    | Ticked
    | StoreAnswered
    | WatchDelivered
    | WatchBroken
    | LeaseLost
    | Decided
    | SwitchoverRequested
    | ForceRequested
    | BufferPushed
    | BufferDrained
    | BufferFailed
    | SnapshotFailed
    | SnapshotStored
    | SnapshotRead
)
