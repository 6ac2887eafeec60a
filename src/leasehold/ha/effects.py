"""The effects that a node's machine requests, as data. The asyncio shell and the simulator both carry them out.

Effects are carried out in the order of the list. Requests to the store may overlap; where one must be decided before
another is sent, the machine itself waits for the answer.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from leasehold.mvcc.model import DeleteRange, Put, Range, Txn
from leasehold.wire.answers import Waiting


class Role(Enum):
    FOLLOWER = "follower"  # has no state yet, or is rebuilding it
    CATCHING_UP = "catching up"  # has a starting state, not yet the durable tail
    STANDBY = "standby"  # has applied the durable tail
    PROMOTING = "promoting"  # has won the election, may not answer yet
    PRIMARY = "primary"  # answers while `may_serve`
    STEPPING_DOWN = "stepping down"  # never answers again in this epoch


class StoreRequest(Struct, frozen=True):
    """Send `op` to the store; answer with `StoreAnswered` of the same number within `timeout_ms`.

    The shell never repeats it: a retry is the machine's decision, with the same bytes. A request that was sent and not
    answered in time ends in `Failure.UNKNOWN`, also if it was a read.
    """

    request: int
    op: Range | Put | DeleteRange | Txn
    timeout_ms: int


class GrantLease(Struct, frozen=True):
    """Request a lease; the store chooses an id that it never reuses. `StoreAnswered` carries it."""

    request: int
    ttl_s: int
    timeout_ms: int


class KeepLease(Struct, frozen=True):
    """Renew the lease every third of its TTL until `DropLease`; `LeaseLost` when the store reports that it expired.

    A renewed lease is not the leader lease: keep-alives still succeed after the leader key was deleted.
    """

    lease: int
    ttl_s: int
    granted_sent_ms: int


class DropLease(Struct, frozen=True):
    """Stop renewing. With `revoke`, also revoke the lease, once, without waiting for the answer."""

    lease: int
    revoke: bool = False


class OpenWatch(Struct, frozen=True):
    """Watch a range; `WatchDelivered` in order, without loss or duplicate, or `WatchBroken`."""

    watch: int
    key: bytes
    range_end: bytes
    start_revision: int


class CloseWatch(Struct, frozen=True):
    watch: int


class Say(Struct, frozen=True):
    """One sentence for the log. `serious` logs it as a warning for the operator."""

    sentence: str
    serious: bool = False


class ChangeRole(Struct, frozen=True):
    """The role has changed; `sentence` is the reason.

    Law: when the new role is not PRIMARY, the shell closes its clients' connections *before* it does anything else, so
    that no waiting answer is sent afterwards. When it is PRIMARY, `begin` is already durable.
    """

    role: Role
    sentence: str


class SendAnswers(Struct, frozen=True):
    """The outbox has released these answers.

    Law: their records are durable (or may be acknowledged, see `durability`), and the leader lease held at the time of
    the event. The shell sends them in this turn, after all effects before this one.
    """

    answers: list[Waiting]


class PushBuffer(Struct, frozen=True):
    """Store one batch in the buffer (durability `buffered`); `BufferPushed(last_n)` once it survives this process."""

    epoch: int
    last_n: int
    batch: bytes


class ForgetBuffer(Struct, frozen=True):
    """Batches up to `last_n` are in the store: the buffer may delete them."""

    epoch: int
    last_n: int


class DrainBuffer(Struct, frozen=True):
    """Seal every epoch before `before_epoch` (later pushes to it fail), then read their batches: `BufferDrained`."""

    before_epoch: int


class ReadSnapshot(Struct, frozen=True):
    """Read the newest complete snapshot from the node named `peer`, or from the local disk: `SnapshotRead`."""

    peer: str = ""


class WriteSnapshot(Struct, frozen=True):
    """Write one part of a snapshot's file; after the `last`: fsync, read back, `SnapshotStored`.

    Law: the machine emits the last part only when every record in the snapshot is durable in the journal.
    The newest two complete files are kept.
    """

    snapshot: int
    part: bytes
    first: bool
    last: bool


NodeEffect: TypeAlias = (
    StoreRequest
    | GrantLease
    | KeepLease
    | DropLease
    | OpenWatch
    | CloseWatch
    | Say
    | ChangeRole
    | SendAnswers
    | PushBuffer
    | ForgetBuffer
    | DrainBuffer
    | ReadSnapshot
    | WriteSnapshot
)
