"""What a request must keep to before the store looks at it: the rules of a real etcd, in its order."""

from __future__ import annotations

from collections.abc import Sequence

from leasehold.base.limits import store_request_bytes_max, store_txn_ops_max
from leasehold.mvcc.errors import (
    DuplicateKey,
    EmptyKey,
    KeyNotFound,
    LeaseProvided,
    RequestTooLarge,
    TooManyOps,
    ValueProvided,
)
from leasehold.mvcc.model import DeleteRange, Op, Put, Range, Txn

# A request is measured as etcd would write it to its log: with an envelope, and about so much around each part.
_ENVELOPE_BYTES = 18
_PART_BYTES = 12

# An operation that says nothing, as can be sent; etcd's answer to it is that a key was not found.
NOTHING = Range(b"")

# (first key, first key beyond): what a transaction deletes
Interval = tuple[bytes, bytes]


def check_range(op: Range) -> None:
    if not op.key:
        raise EmptyKey


def check_put(op: Put) -> None:
    if not op.key:
        raise EmptyKey
    if op.ignore_value and op.value:
        raise ValueProvided
    if op.ignore_lease and op.lease:
        raise LeaseProvided
    _check_size(len(op.key) + len(op.value) + _PART_BYTES)


def check_delete(op: DeleteRange) -> None:
    if not op.key:
        raise EmptyKey
    _check_size(len(op.key) + len(op.range_end) + _PART_BYTES)


def _check_size(size_bytes: int) -> None:
    if size_bytes + _ENVELOPE_BYTES > store_request_bytes_max:
        raise RequestTooLarge


def check_txn(op: Txn, ops_max: int = store_txn_ops_max) -> None:
    """Refuse a transaction that is too long, has a bad part, or could change one key twice."""
    size_bytes, writes = _check_parts(op, ops_max)
    if len(op.success) > 1 or _has_txn(op.success):
        _written(op.success)
    if len(op.failure) > 1 or _has_txn(op.failure):
        _written(op.failure)
    if writes:
        _check_size(size_bytes)


def _has_txn(ops: Sequence[Op]) -> bool:
    return any(type(op) is Txn for op in ops)


def _check_parts(op: Txn, ops_max: int) -> tuple[int, bool]:
    """Check every part; about how many bytes they are, and whether one of them writes."""
    longest = max(len(op.compare), len(op.success), len(op.failure))
    if longest > ops_max:
        raise TooManyOps
    size_bytes = 0
    writes = False
    for compare in op.compare:
        if not compare.key:
            raise EmptyKey
        size_bytes += len(compare.key) + _PART_BYTES
        if isinstance(compare.operand, bytes):
            size_bytes += len(compare.operand)
    for branch in (op.success, op.failure):
        for part in branch:
            if isinstance(part, Txn):
                nested_bytes, nested_writes = _check_parts(part, ops_max - longest)
                size_bytes += nested_bytes
                writes = writes or nested_writes
                continue
            if not part.key:
                raise KeyNotFound if part is NOTHING else EmptyKey
            size_bytes += len(part.key) + _PART_BYTES
            if isinstance(part, Put):
                if part.ignore_value or part.ignore_lease:
                    check_put(part)
                size_bytes += len(part.value)
                writes = True
            elif isinstance(part, DeleteRange):
                writes = True
    return size_bytes, writes


def _written(ops: Sequence[Op]) -> tuple[set[bytes], list[Interval]]:
    """What `ops` may put and delete; refused when a key could be put twice, or both put and deleted.

    A nested transaction's two branches may put the same key, since only one of them is taken. A deletion of
    everything from a key on (`range_end` of one zero byte) is not compared with puts: etcd does not either.
    """
    deleted = [_interval(op) for op in ops if isinstance(op, DeleteRange)]
    put: set[bytes] = set()
    for op in ops:
        if isinstance(op, Txn):
            _written_nested(op, put, deleted)
    for op in ops:
        if isinstance(op, Put):
            _add_put(op.key, put, deleted)
    return put, deleted


def _written_nested(op: Txn, put: set[bytes], deleted: list[Interval]) -> None:
    put_then, deleted_then = _written(op.success)
    put_else, deleted_else = _written(op.failure)
    for key in put_then:
        _add_put(key, put, deleted)
    for key in put_else:
        if key in put_then:
            continue
        _add_put(key, put, deleted)
    deleted += deleted_then
    deleted += deleted_else


def _add_put(key: bytes, put: set[bytes], deleted: list[Interval]) -> None:
    if key in put or any(begin <= key < end for begin, end in deleted):
        raise DuplicateKey
    put.add(key)


def _interval(op: DeleteRange) -> Interval:
    return op.key, op.range_end or op.key + b"\0"
