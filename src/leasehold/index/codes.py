"""Answers as numbers: those of Mooncake's wire, so that nothing has to be translated on the way out."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """What a command says when there is nothing more to say. Zero is good, negative is a refusal."""

    OK = 0
    INTERNAL = -1
    SEGMENT_NOT_FOUND = -101
    SEGMENT_EXISTS = -102
    NO_SPACE = -200
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
    TASK_NOT_FOUND = -1400
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
