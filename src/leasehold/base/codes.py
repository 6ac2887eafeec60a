"""Mooncake's numeric codes, as they appear on its wire: results, states and kinds.

The index returns these codes directly, so the wire layer translates nothing. The client turns them into words.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Code(IntEnum):
    """Result of a command: zero for success, negative for an error."""

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
    RPC_FAILED = -900  # this code and the next are set by clients, never by a master
    RPC_TIMED_OUT = -901
    NO_MASTER = -1010
    NOT_NOW = -1012  # the state of the cluster, segment or job does not allow it
    NO_OFFLOAD = -1300  # the disk tier is off
    TASK_NOT_FOUND = -1400
    JOB_NOT_FOUND = -1402
    NO_DFS = -1601  # the master has no distributed file system for this replica
    TENANT_QUOTA_EXCEEDED = -1700
    TENANT_NOT_REGISTERED = -1701  # quotas are enforced, and this tenant has none
    TENANT_NOT_EMPTY = -1702
    # Never sent: wait until record `after` is durable, then call again (the bound on removes of absent keys, H12).
    TRY_AGAIN = -9999


class ReplicaStatus(IntEnum):
    """State of one replica; as on the wire."""

    UNDEFINED = 0
    INITIALIZED = 1
    PROCESSING = 2
    COMPLETE = 3
    REMOVED = 4
    FAILED = 5


class ReplicaKind(IntEnum):
    """The replicas that a `put_end` or `put_revoke` applies to; as on the wire."""

    MEMORY = 0
    DISK = 1
    LOCAL_DISK = 2
    NOF = 3
    ALL = 4
    DFS = 100


class SoftPin(IntEnum):
    """How a put changes the soft pin of its object."""

    PRESERVE = 0
    ENABLE = 1
    DISABLE = 2


class ClientStatus(IntEnum):
    """Answer to a ping."""

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
"""Error codes in words."""


UNKNOWN_RELEASE = "a release without a table here"  # of a client that is newer than this release
