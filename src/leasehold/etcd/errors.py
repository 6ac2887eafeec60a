"""Classify a failed call: the store answered, nothing was done, or the outcome is unknown.

etcd reports a gRPC code and a text, and so does gRPC itself. Only the texts distinguish "refused before it was
proposed" from "proposed, then lost", which decides whether a write may be retried.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from leasehold.coord.errors import AuthenticationFailed, PermissionDenied
from leasehold.etcd.transport.failures import RpcFailed
from leasehold.mvcc.errors import (
    BadRequest,
    Code,
    Compacted,
    FutureRevision,
    KeyNotFound,
    LeaseExists,
    LeaseNotFound,
    LeaseTTLTooLarge,
    NoSpace,
    StoreError,
)


class Verdict(Enum):
    ANSWERED = "the store answered with an error; nothing was changed"
    NOT_DONE = "it was refused or never sent; a retry elsewhere is safe"
    BUSY = "it was refused for now; a retry after a pause is safe"
    TOKEN = "the token was refused; nothing was done"
    UNKNOWN = "it was sent, and there is no usable answer"


class Failure(Struct, frozen=True):
    verdict: Verdict
    code: Code
    message: str

    def to_error(self) -> StoreError:
        return store_error(self.code, self.message)


_KINDS: dict[str, type[StoreError]] = {
    kind.message: kind
    for kind in (
        AuthenticationFailed,
        Compacted,
        FutureRevision,
        KeyNotFound,
        LeaseExists,
        LeaseNotFound,
        LeaseTTLTooLarge,
        NoSpace,
        PermissionDenied,
    )
}

# The call was rejected before it was proposed to the cluster.
_NOT_DONE = (
    "etcdserver: no leader",
    "etcdserver: not leader",
    "etcdserver: rpc not supported for learner",
    "etcdserver: raft proposal dropped",
    "raft proposal dropped",
    "etcdserver: server is not capable",
    "etcdserver: not capable",
)
# From gRPC itself, after the call was done: the answer was too large to send.
_DONE_MAYBE = ("grpc: trying to send message larger than max",)
_BUSY = ("etcdserver: too many requests",)
_TOKEN = (
    "etcdserver: invalid auth token",
    "etcdserver: revision of auth store is old",
    "etcdserver: user name is empty",
)
# Codes that only the store itself answers with.
_ANSWERS = {
    Code.INVALID_ARGUMENT,
    Code.NOT_FOUND,
    Code.ALREADY_EXISTS,
    Code.PERMISSION_DENIED,
    Code.RESOURCE_EXHAUSTED,
    Code.FAILED_PRECONDITION,
    Code.OUT_OF_RANGE,
    Code.UNIMPLEMENTED,
    Code.DATA_LOSS,
    Code.UNAUTHENTICATED,
}


def store_error(code: Code, message: str) -> StoreError:
    """The error class for a store's code and text."""
    kind = _KINDS.get(message)
    if kind is not None:
        return kind()
    if code is Code.INVALID_ARGUMENT:
        return BadRequest(message)
    return StoreError(message, code)


def meaning(error: RpcFailed) -> Failure:
    """Classify a failed call."""
    if not error.sent:
        return Failure(Verdict.NOT_DONE, error.code, error.message)
    return classify(error.code, error.message)


def classify(code: Code, message: str) -> Failure:
    """Classify the code and text of a call that was sent."""
    if message.startswith(_TOKEN):
        return Failure(Verdict.TOKEN, code, message)
    if message.startswith(_NOT_DONE):
        return Failure(Verdict.NOT_DONE, code, message)
    if message.startswith(_BUSY):
        return Failure(Verdict.BUSY, code, message)
    if code in _ANSWERS and not message.startswith(_DONE_MAYBE):
        return Failure(Verdict.ANSWERED, code, message)
    return Failure(Verdict.UNKNOWN, code, message)
