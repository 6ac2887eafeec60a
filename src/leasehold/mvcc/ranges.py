"""Range reads and compares, with the filters and the order of a real etcd."""

from __future__ import annotations

from leasehold.mvcc.keyspace import KeySpace
from leasehold.mvcc.model import (
    Compare,
    CompareResult,
    CompareTarget,
    Header,
    KeyValue,
    Range,
    RangeResult,
    SortOrder,
    SortTarget,
)

_ABSENT = KeyValue(b"")


def read_range(keys: KeySpace, op: Range, header: Header) -> RangeResult:
    """Answer a range read; the revision has been checked."""
    if op.count_only:
        return RangeResult(header, (), False, keys.count(op.key, op.range_end, op.revision))
    if not op.range_end and op.sort_order == SortOrder.NONE and not _filters(op):
        kvs, total = keys.select(op.key, b"", op.revision)
        return RangeResult(header, tuple(_without_values(kvs) if op.keys_only else kvs), False, total)
    # Sorted and filtered reads need the whole range. But a target without an order sorts only the keys within the
    # limit (plus one, to set `more`), as etcd does.
    whole = op.sort_order != SortOrder.NONE or _filters(op)
    fetch = 0 if whole or op.limit <= 0 else op.limit + 1
    kvs, total = keys.select(op.key, op.range_end, op.revision, fetch)
    if _filters(op):
        kvs = [kv for kv in kvs if _passes(op, kv)]
    kvs = _sorted(kvs, op)
    more = 0 < op.limit < len(kvs)
    if more:
        kvs = kvs[: op.limit]
    if op.keys_only:
        kvs = _without_values(kvs)
    return RangeResult(header, tuple(kvs), more, total)


def _filters(op: Range) -> bool:
    return bool(op.min_mod_revision or op.max_mod_revision or op.min_create_revision or op.max_create_revision)


def _passes(op: Range, kv: KeyValue) -> bool:
    return not (
        (op.max_mod_revision and kv.mod_revision > op.max_mod_revision)
        or (op.min_mod_revision and kv.mod_revision < op.min_mod_revision)
        or (op.max_create_revision and kv.create_revision > op.max_create_revision)
        or (op.min_create_revision and kv.create_revision < op.min_create_revision)
    )


def _without_values(kvs: list[KeyValue]) -> list[KeyValue]:
    return [
        KeyValue(kv.key, b"", kv.create_revision, kv.mod_revision, kv.version, kv.lease) if kv.value else kv
        for kv in kvs
    ]


_SORT_FIELD = {
    SortTarget.KEY: "key",
    SortTarget.VERSION: "version",
    SortTarget.CREATE: "create_revision",
    SortTarget.MOD: "mod_revision",
    SortTarget.VALUE: "value",
}


def _sorted(kvs: list[KeyValue], op: Range) -> list[KeyValue]:
    if op.sort_order == SortOrder.NONE and op.sort_target == SortTarget.KEY:
        return kvs
    field = _SORT_FIELD[op.sort_target]
    if op.sort_order == SortOrder.DESCEND:
        # Stable like the ascending sort: equal values stay in key order.
        return sorted(kvs, key=lambda kv: getattr(kv, field), reverse=True)
    if field == "key":
        return kvs
    return sorted(kvs, key=lambda kv: getattr(kv, field))


def holds(keys: KeySpace, compare: Compare) -> bool:
    """Whether the compare holds for the key, or for every key of its range."""
    if not compare.range_end:
        kv = keys.current(compare.key)
        if kv is None:
            return _holds_absent(compare)
        return _holds_for(compare, kv)
    kvs, _ = keys.select(compare.key, compare.range_end)
    if not kvs:
        return _holds_absent(compare)
    return all(_holds_for(compare, kv) for kv in kvs)


def _holds_absent(compare: Compare) -> bool:
    # On the wire an absent value equals an empty one, so a compare of values never holds for an absent key.
    return compare.target != CompareTarget.VALUE and _holds_for(compare, _ABSENT)


_COMPARE_FIELD = {
    CompareTarget.VERSION: "version",
    CompareTarget.CREATE: "create_revision",
    CompareTarget.MOD: "mod_revision",
    CompareTarget.VALUE: "value",
    CompareTarget.LEASE: "lease",
}


def _holds_for(compare: Compare, kv: KeyValue) -> bool:
    actual = getattr(kv, _COMPARE_FIELD[compare.target])
    result = compare.result
    if result == CompareResult.EQUAL:
        return bool(actual == compare.operand)
    if result == CompareResult.NOT_EQUAL:
        return bool(actual != compare.operand)
    if result == CompareResult.GREATER:
        return bool(actual > compare.operand)
    return bool(actual < compare.operand)
