"""The events that a node's machine handles, each together with the time."""

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
    """Why a store request has no result. It decides whether a retry is safe."""

    REFUSED = "refused"  # the store rejected it; nothing was changed (`error` has the reason)
    UNAVAILABLE = "unavailable"  # no server could be reached; nothing was changed
    UNKNOWN = "unknown"  # sent and not answered: it may have been executed, or may still be


class Started(Struct, frozen=True):
    """The node's shell is running. The first event, once. The machine answers with `ReadSnapshot`."""


class Ticked(Struct, frozen=True):
    """`machine.wake_at_ms` was reached. Ticking early or often is harmless."""


class StoreAnswered(Struct, frozen=True):
    """The end of one `StoreRequest` or `GrantLease`: exactly one of `result` and `failure` is set."""

    request: int
    result: StoreResult | None = None
    failure: Failure | None = None
    error: StoreError | None = None


class WatchDelivered(Struct, frozen=True):
    watch: int
    batch: WatchBatch


class WatchBroken(Struct, frozen=True):
    """The watch cannot continue without loss (compacted, or its reader was too slow): list again."""

    watch: int
    reason: str = ""


class LeaseLost(Struct, frozen=True):
    """The store reported that a lease under `KeepLease` no longer exists."""

    lease: int


class Decided(Struct, frozen=True):
    """`machine.index` executed commands: there may be records to commit."""


class SwitchoverRequested(Struct, frozen=True):
    """An operator wants another node to lead; `target` may name it."""

    target: str = ""


class ForceRequested(Struct, frozen=True):
    """An operator allows this node to lead despite quarantined records or an unreachable buffer."""


class FeatureLevelRequested(Struct, frozen=True):
    """An operator switches the cluster to this feature level."""

    level: int


class BufferPushed(Struct, frozen=True):
    """The buffer holds every record up to `n`."""

    n: int


class BufferDrained(Struct, frozen=True):
    """The old epochs are sealed and read: finished batches, byte for byte, in the order of their numbers."""

    batches: tuple[bytes, ...] = ()


class BufferFailed(Struct, frozen=True):
    """The buffer could not be reached. A push may be repeated; a drain is skipped only if an operator forces it."""

    reason: str


class SnapshotStored(Struct, frozen=True):
    """A snapshot's file is complete, verified and on disk."""

    snapshot: int


class SnapshotFailed(Struct, frozen=True):
    """A snapshot's file could not be written: it does not count, and another one is due."""

    snapshot: int


class SnapshotRead(Struct, frozen=True):
    """The newest readable snapshot, or None; from the node named `peer`, or from the local disk if that is empty."""

    raw: bytes | None
    peer: str = ""

    @property
    def local(self) -> bool:
        return not self.peer

    @property
    def source(self) -> str:
        """For people: where the snapshot came from."""
        return self.peer or "disk"


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
    | FeatureLevelRequested
    | BufferPushed
    | BufferDrained
    | BufferFailed
    | SnapshotFailed
    | SnapshotStored
    | SnapshotRead
)
