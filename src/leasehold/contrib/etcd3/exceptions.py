"""The errors of python-etcd3, and how Leasehold's errors become these.

Etcd3Exception
├── WatchTimedOut            the watch was not created, or had no event, in time
├── InternalServerError      the store failed
├── ConnectionFailedError    no store answered; nothing was changed
├── ConnectionTimeoutError   sent and not answered: it may or may not have happened
├── PreconditionFailedError
├── RevisionCompactedError   the watched revision was compacted
├── RpcError                 any other answer of the store; also a `grpc.RpcError`, if that package is installed
├── LockTimeout              `with lock`: the lock was not acquired (python-etcd3 enters the block without it)
└── LockLost                 `with lock`: the lease may have expired while the block ran
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leasehold.base.errors import LeaseholdError, Unavailable, UnknownOutcome
from leasehold.etcd.transport.failures import RpcFailed
from leasehold.mvcc.errors import Code, Compacted, StoreError

if TYPE_CHECKING:
    GrpcError = Exception
else:
    try:  # programs written for python-etcd3 catch this one
        from grpc import RpcError as GrpcError
    except ImportError:
        GrpcError = Exception


class Etcd3Exception(Exception):
    """Base class of all errors here."""


class WatchTimedOut(Etcd3Exception):
    """The watch was not created, or had no event, in time."""


class InternalServerError(Etcd3Exception):
    """The store failed."""


class ConnectionFailedError(Etcd3Exception):
    """No store answered. Nothing was changed."""

    def __str__(self) -> str:
        return "etcd connection failed"


class ConnectionTimeoutError(Etcd3Exception):
    """The request was sent and not answered: it may or may not have happened."""

    def __str__(self) -> str:
        return "etcd connection timeout"


class PreconditionFailedError(Etcd3Exception):
    """The store refused: a precondition does not hold."""


class RevisionCompactedError(Etcd3Exception):
    """The revision to watch from was compacted: list again, then watch from `compacted_revision`."""

    def __init__(self, compacted_revision: int) -> None:
        self.compacted_revision = compacted_revision
        super().__init__()


class RpcError(Etcd3Exception, GrpcError):
    """Any other error that the store answered with."""

    def __init__(self, code: Code, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self._code = code
        self._details = details

    def code(self) -> Code:
        """The gRPC status code."""
        return self._code

    def details(self) -> str:
        """The message of the store."""
        return self._details


class LockTimeout(Etcd3Exception):
    """The lock was not acquired in time, so the block was not entered."""


class LockLost(Etcd3Exception):
    """The lease of the lock may have expired: what the block did may have overlapped with another holder."""


_BY_CODE: dict[Code, type[Etcd3Exception]] = {
    Code.INTERNAL: InternalServerError,
    Code.UNAVAILABLE: ConnectionFailedError,
    Code.DEADLINE_EXCEEDED: ConnectionTimeoutError,
    Code.FAILED_PRECONDITION: PreconditionFailedError,
}


def translate(error: LeaseholdError) -> Exception:
    """The error of python-etcd3 for one of ours. Errors that it does not have stay as they are."""
    if isinstance(error, Unavailable):
        return ConnectionFailedError(str(error))
    if isinstance(error, UnknownOutcome):
        return ConnectionTimeoutError(str(error))
    if isinstance(error, Compacted) and error.compact_revision:
        return RevisionCompactedError(error.compact_revision)
    if isinstance(error, StoreError | RpcFailed):
        kind = _BY_CODE.get(error.code)
        return kind(error.message) if kind else RpcError(error.code, error.message)
    return error


@contextmanager
def translated() -> Iterator[None]:
    """Raise the errors of python-etcd3 in place of ours."""
    try:
        yield
    except LeaseholdError as error:
        raise translate(error) from error
