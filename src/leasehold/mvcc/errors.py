"""The errors that a coordination store answers with: gRPC codes and messages exactly as a real etcd sends them.

All back ends raise the same errors.
"""

from __future__ import annotations

from enum import IntEnum

from leasehold.base.errors import CallerError, LeaseholdError, PeerError


class Code(IntEnum):
    """gRPC status codes."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class StoreError(LeaseholdError):
    """The store answered with an error; nothing was changed."""

    code: Code = Code.UNKNOWN
    message: str = ""

    def __init__(self, message: str | None = None, code: Code | None = None) -> None:
        if message is not None:
            self.message = message
        if code is not None:
            self.code = code
        super().__init__(self.message)


class BadRequest(StoreError, CallerError):
    """A request that the store can never accept (empty key, bad option, too many operations, ...)."""

    code = Code.INVALID_ARGUMENT


class EmptyKey(BadRequest):
    message = "etcdserver: key is not provided"


class ValueProvided(BadRequest):
    message = "etcdserver: value is provided"


class LeaseProvided(BadRequest):
    message = "etcdserver: lease is provided"


class TooManyOps(BadRequest):
    message = "etcdserver: too many operations in txn request"


class DuplicateKey(BadRequest):
    message = "etcdserver: duplicate key given in txn request"


class RequestTooLarge(BadRequest):
    message = "etcdserver: request is too large"


class EmptyWatchRange(BadRequest):
    message = "mvcc: watcher range is empty"


class Compacted(StoreError, CallerError):
    """The requested revision was compacted: list again and continue from there.

    `compact_revision` is the lowest revision that can still be requested, if the store reported it, else 0.
    """

    code = Code.OUT_OF_RANGE
    message = "etcdserver: mvcc: required revision has been compacted"

    def __init__(self, compact_revision: int = 0) -> None:
        self.compact_revision = compact_revision
        super().__init__()


class FutureRevision(StoreError, CallerError):
    code = Code.OUT_OF_RANGE
    message = "etcdserver: mvcc: required revision is a future revision"


class LeaseNotFound(StoreError, CallerError):
    code = Code.NOT_FOUND
    message = "etcdserver: requested lease not found"


class LeaseExists(StoreError, CallerError):
    code = Code.FAILED_PRECONDITION
    message = "etcdserver: lease already exists"


class LeaseTTLTooLarge(StoreError, CallerError):
    code = Code.OUT_OF_RANGE
    message = "etcdserver: too large lease TTL"


class KeyNotFound(StoreError, CallerError):
    code = Code.INVALID_ARGUMENT
    message = "etcdserver: key not found"


class CorruptCluster(StoreError, PeerError):
    """The alarm CORRUPT is active: a client has activated it."""

    code = Code.DATA_LOSS
    message = "etcdserver: corrupt cluster"


class NoSpace(StoreError, PeerError):
    code = Code.RESOURCE_EXHAUSTED
    message = "etcdserver: mvcc: database space exceeded"
