"""Mooncake's numbers, in one place: answers, states and kinds as they are on its wire.

The index answers with them, so that nothing has to be translated on the way out; the wire's tables and the client name
them to people.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Code(IntEnum):
    """What a command says when there is nothing more to say. Zero is good, negative is a refusal."""

    OK = 0
    INTERNAL = -1
    SEGMENT_NOT_FOUND = -101
    SEGMENT_EXISTS = -102
    NO_SPACE = -200
    VERSION_MISMATCH = -300
    BAD_KEY = -400
    BAD_PARAMS = -600
    ILLEGAL_CLIENT = -601
    INVALID_WRITE = -700
    NOT_READY = -703
    NOT_FOUND = -704
    EXISTS = -705
    HAS_LEASE = -706
    LEASE_EXPIRED = -707
    COPY_UNDER_WAY = -708
    NO_COPY_UNDER_WAY = -709
    NO_REPLICA_THERE = -710
    RPC_FAILED = -900  # said by clients themselves, as is the next
    RPC_TIMED_OUT = -901
    NO_MASTER = -1010
    TASK_NOT_FOUND = -1400
    NO_DFS = -1601  # what a master without a distributed file system says to a replica there
    # Never on the wire: wait until `after` is durable, then call again (the bound on absent removes, H12).
    TRY_AGAIN = -9999


class ReplicaStatus(IntEnum):
    """As on the wire."""

    UNDEFINED = 0
    INITIALIZED = 1
    PROCESSING = 2
    COMPLETE = 3
    REMOVED = 4
    FAILED = 5


class ReplicaKind(IntEnum):
    """Which replicas a `put_end` or `put_revoke` speaks of; as on the wire."""

    MEMORY = 0
    DISK = 1
    LOCAL_DISK = 2
    NOF = 3
    ALL = 4
    DFS = 100


class SoftPin(IntEnum):
    """What a put asks for its soft pin."""

    PRESERVE = 0
    ENABLE = 1
    DISABLE = 2


class ClientStatus(IntEnum):
    """What a ping answers."""

    OK = 1
    NEED_REMOUNT = 2


class TaskKind(IntEnum):
    COPY = 0
    MOVE = 1


class TaskStatus(IntEnum):
    PENDING = 0
    PROCESSING = 1
    FAILED = 2
    SUCCESS = 3


CODE_NAMES: Final[dict[int, str]] = {
    Code.INTERNAL: "internal error",
    Code.SEGMENT_NOT_FOUND: "segment not found",
    Code.SEGMENT_EXISTS: "segment exists already",
    Code.NO_SPACE: "no space",
    Code.VERSION_MISMATCH: "version mismatch",
    Code.BAD_KEY: "bad key",
    Code.BAD_PARAMS: "bad parameters",
    Code.ILLEGAL_CLIENT: "illegal client",
    Code.INVALID_WRITE: "invalid write",
    Code.NOT_READY: "replica not ready",
    Code.NOT_FOUND: "object not found",
    Code.EXISTS: "object exists already",
    Code.HAS_LEASE: "object has a lease",
    Code.LEASE_EXPIRED: "lease expired",
    Code.RPC_FAILED: "rpc failed",
    Code.RPC_TIMED_OUT: "rpc timed out",
    Code.NO_MASTER: "no master elected",
    Code.TASK_NOT_FOUND: "task not found",
}
"""What a refusal means, for people."""
