"""What a node's machine wants done. Data only: the shell on asyncio and the simulator both carry it out.

Effects are done in the order of the list. Requests to the store may overlap each other; where one must be
decided before another is sent, the machine itself waits for the answer.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from leasehold.mvcc.model import DeleteRange, Put, Range, Txn
from leasehold.wire.answers import Waiting


class Role(Enum):
    FOLLOWER = "follower"  # knows nothing yet, or is rebuilding
    CATCHING_UP = "catching up"  # has a base, not yet the durable tail
    STANDBY = "standby"  # has applied the durable tail
    PROMOTING = "promoting"  # has won the election, may not answer yet
    PRIMARY = "primary"  # answers while `may_serve`
    STEPPING_DOWN = "stepping down"  # will never answer again in this epoch


class StoreRequest(Struct, frozen=True):
    """Put `op` to the store; answer with `StoreAnswered` of the same number, within `timeout_ms`.

    Never repeated by the shell: a repeat is the machine's decision, with the same bytes. A request that was sent and
    not answered in time ends in `Failure.UNKNOWN`, also if it was a read.
    """

    request: int
    op: Range | Put | DeleteRange | Txn
    timeout_ms: int


class GrantLease(Struct, frozen=True):
    """Ask for a lease with an id of the store's own choice (ids are never reused). `StoreAnswered` tells it."""

    request: int
    ttl_s: int
    timeout_ms: int


class KeepLease(Struct, frozen=True):
    """Renew the lease every third of its TTL until `DropLease`; `LeaseLost` when the store says that it is gone.

    This alone gives no right to serve: keep-alives go on succeeding after the key was deleted.
    """

    lease: int
    ttl_s: int
    granted_sent_ms: int


class DropLease(Struct, frozen=True):
    """Stop renewing. With `revoke`, also tell the store, once, without waiting for its answer."""

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
    """One readable sentence for the log. `grave` asks for a person's attention."""

    sentence: str
    serious: bool = False


class ChangeRole(Struct, frozen=True):
    """The role has changed; `sentence` is the reason.

    Law: when the new role is not PRIMARY, the shell closes its clients' connections *before* it does anything else:
    no answer held back may leave afterwards. When it is PRIMARY, `begin` is durable already.
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
    """Store one finished batch in the buffer (durability `buffered`); `BufferPushed(last_n)` when it outlives us."""

    epoch: int
    last_n: int
    batch: bytes


class ForgetBuffer(Struct, frozen=True):
    """Batches up to `last_n` are in the store: the buffer may let them go."""

    epoch: int
    last_n: int


class DrainBuffer(Struct, frozen=True):
    """Seal every epoch before `before_epoch` (a later push to them fails), then read them: `BufferDrained`."""

    before_epoch: int


class ReadSnapshot(Struct, frozen=True):
    """Read the newest complete snapshot: `SnapshotRead`. With `peer`, stream it from there, else from the disk."""

    peer: str = ""


class WriteSnapshot(Struct, frozen=True):
    """Write one part of a snapshot's file; after the `last`: fsync, read back, `SnapshotStored`.

    Law: the last part is handed out only when everything the snapshot shows is durable in the journal.
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
