"""What a failed call means: did the store answer, was nothing done, or is that not known?

etcd tells with a gRPC code and a text; gRPC itself with a code and a text of its own. The texts are the only way to
tell "refused before it was proposed" from "proposed, and then lost", which decides whether a write may be repeated.
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
    NOT_DONE = "it was refused or never sent; asking elsewhere is safe"
    BUSY = "it was refused for now; asking again after a pause is safe"
    TOKEN = "the token is no longer good; nothing was done"
    UNKNOWN = "sent, and no usable answer"


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

# The call was turned away before anything was proposed to the cluster.
_NOT_DONE = (
    "etcdserver: no leader",
    "etcdserver: not leader",
    "etcdserver: rpc not supported for learner",
    "etcdserver: raft proposal dropped",
    "raft proposal dropped",
    "etcdserver: server is not capable",
    "etcdserver: not capable",
)
# gRPC's own, after the call was done: its answer was too large to be sent.
_DONE_MAYBE = ("grpc: trying to send message larger than max",)
_BUSY = ("etcdserver: too many requests",)
_TOKEN = (
    "etcdserver: invalid auth token",
    "etcdserver: revision of auth store is old",
    "etcdserver: user name is empty",
)
# Codes with which nothing but an answer of the store itself comes.
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
    """The kind of error that a store's code and text stand for."""
    kind = _KINDS.get(message)
    if kind is not None:
        return kind()
    if code is Code.INVALID_ARGUMENT:
        return BadRequest(message)
    return StoreError(message, code)


def meaning(error: RpcFailed) -> Failure:
    """What a failed call means for the one who made it."""
    if not error.sent:
        return Failure(Verdict.NOT_DONE, error.code, error.message)
    return classify(error.code, error.message)


def classify(code: Code, message: str) -> Failure:
    """What a code and a text mean, of a call that was sent."""
    if message.startswith(_TOKEN):
        return Failure(Verdict.TOKEN, code, message)
    if message.startswith(_NOT_DONE):
        return Failure(Verdict.NOT_DONE, code, message)
    if message.startswith(_BUSY):
        return Failure(Verdict.BUSY, code, message)
    if code in _ANSWERS and not message.startswith(_DONE_MAYBE):
        return Failure(Verdict.ANSWERED, code, message)
    return Failure(Verdict.UNKNOWN, code, message)
