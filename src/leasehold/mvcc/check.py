"""Validation of requests before they reach the store: the rules of a real etcd, in its order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from leasehold.base.errors import InvalidArgument
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
from leasehold.mvcc.keyspace import VERSION_OVERHEAD_BYTES
from leasehold.mvcc.model import DeleteRange, Op, Put, Range, Txn

# Request sizes as etcd's log counts them: an envelope, and an estimated overhead per part.
_ENVELOPE_BYTES = 18
_PART_BYTES = 12

# An empty operation can be sent over the wire. etcd answers it with KeyNotFound.
NOTHING = Range(b"")

# (first key, first key beyond) that a transaction deletes
Interval = tuple[bytes, bytes]


def _not_bytes(op: Op) -> InvalidArgument:
    return InvalidArgument(f"keys and values are bytes, leases whole numbers: encode texts first, in {op!r}")


def check_range(op: Range) -> None:
    if type(op.key) is not bytes:
        raise _not_bytes(op)
    if not op.key:
        raise EmptyKey


def check_put(op: Put) -> None:
    # A str would be accepted in memory, and be unreadable in the log.
    if type(op.key) is not bytes or type(op.value) is not bytes or type(op.lease) is not int:
        raise _not_bytes(op)
    if not op.key:
        raise EmptyKey
    _check_kept(op)
    _check_size(len(op.key) + len(op.value) + _PART_BYTES)


def _check_kept(op: Put) -> None:
    """Reject a put that gives what it also wants to keep."""
    if op.ignore_value and op.value:
        raise ValueProvided
    if op.ignore_lease and op.lease:
        raise LeaseProvided


def check_delete(op: DeleteRange) -> None:
    if type(op.key) is not bytes:
        raise _not_bytes(op)
    if not op.key:
        raise EmptyKey
    _check_size(len(op.key) + len(op.range_end) + _PART_BYTES)


def _check_size(size_bytes: int) -> None:
    if size_bytes + _ENVELOPE_BYTES > store_request_bytes_max:
        raise RequestTooLarge


def check_txn(op: Txn, ops_max: int = store_txn_ops_max) -> bool:
    """Reject a transaction that is too long, is invalid, or could change a key twice. Returns whether it is nested."""
    size_bytes, writes, nested = _check_parts(op, ops_max)
    if writes > 1 or nested:  # a single write cannot conflict
        _written(op.success)
        _written(op.failure)
    if writes:
        _check_size(size_bytes)
    return nested


def _check_parts(op: Txn, ops_max: int) -> tuple[int, int, bool]:
    """Check every part. Returns their approximate size, the number of writes, and whether one is a transaction."""
    longest = max(len(op.compare), len(op.success), len(op.failure))
    if longest > ops_max:
        raise TooManyOps
    size_bytes = _PART_BYTES * (len(op.compare) + len(op.success) + len(op.failure))
    writes, nested = 0, False
    for compare in op.compare:
        if not compare.key:
            raise EmptyKey
        size_bytes += len(compare.key)
        if type(compare.operand) is bytes:
            size_bytes += len(compare.operand)
    for branch in (op.success, op.failure):
        for part in branch:
            if isinstance(part, Txn):
                inner_bytes, inner_writes, _ = _check_parts(part, ops_max - longest)
                size_bytes += inner_bytes - _PART_BYTES
                writes += inner_writes
                nested = True
                continue
            if type(part.key) is not bytes:
                raise _not_bytes(part)
            if not part.key:
                raise KeyNotFound if part is NOTHING else EmptyKey
            size_bytes += len(part.key)
            if type(part) is Put:
                if type(part.value) is not bytes or type(part.lease) is not int:
                    raise _not_bytes(part)
                if part.ignore_value or part.ignore_lease:
                    _check_kept(part)  # without its size: that is checked last, for the whole transaction
                size_bytes += len(part.value)
                writes += 1
            elif type(part) is DeleteRange:
                writes += 1
    return size_bytes, writes, nested


def _written(ops: Sequence[Op]) -> tuple[set[bytes], list[Interval]]:
    """The keys that `ops` may put and delete. Rejects a key that could be put twice, or both put and deleted.

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


def taken(op: Txn, path: Iterator[bool]) -> list[Op]:
    """The operations on the path that is taken, without the transactions themselves."""
    parts: list[Op] = []
    for part in op.success if next(path) else op.failure:
        if isinstance(part, Txn):
            parts += taken(part, path)
        else:
            parts.append(part)
    return parts


def writes(op: Txn) -> bool:
    """Whether any branch puts or deletes."""
    return any(writes(part) if type(part) is Txn else type(part) is not Range for part in (*op.success, *op.failure))


def cost_bytes(op: Txn) -> int:
    """Bytes that the larger branch could add to the store; 0 if it only reads and deletes."""

    return max(_added_bytes(op.success), _added_bytes(op.failure))


def _added_bytes(ops: Iterable[Op]) -> int:
    total = 0
    for part in ops:
        if type(part) is Put:
            total += len(part.key) + len(part.value) + VERSION_OVERHEAD_BYTES
        elif type(part) is Txn:
            total += cost_bytes(part)
    return total
