"""Transactions: one step, one revision, everything checked before the first change."""

from __future__ import annotations

import pytest

from leasehold.mvcc.errors import (
    Compacted,
    DuplicateKey,
    EmptyKey,
    FutureRevision,
    KeyNotFound,
    LeaseNotFound,
    NoSpace,
    TooManyOps,
)
from leasehold.mvcc.model import (
    FROM_KEY,
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRange,
    DeleteResult,
    Op,
    Put,
    PutResult,
    Range,
    RangeResult,
    Txn,
    TxnResult,
)
from leasehold.mvcc.store import Store

EQUAL, GREATER, LESS, NOT_EQUAL = (
    CompareResult.EQUAL,
    CompareResult.GREATER,
    CompareResult.LESS,
    CompareResult.NOT_EQUAL,
)


def version(key: bytes, result: CompareResult, operand: int, range_end: bytes = b"") -> Compare:
    return Compare(key, CompareTarget.VERSION, result, operand, range_end)


def do(store: Store, *ops: Op) -> TxnResult:
    return store.txn(Txn((), ops))


def test_all_writes_share_one_revision() -> None:
    store = Store()
    result = do(store, Put(b"a"), Put(b"b"), Range(b"a"), DeleteRange(b"c"))
    assert result.header.revision == 2
    assert [part.header.revision for part in result.results] == [2, 2, 2, 2]
    assert [kv.mod_revision for kv in store.range(Range(b"a", b"c")).kvs] == [2, 2]


def test_reading_only_is_no_revision() -> None:
    store = Store()
    result = do(store, Range(b"a"), DeleteRange(b"a"))
    assert (result.header.revision, store.revision) == (1, 1)


def test_reads_see_the_writes_before_them() -> None:
    store = Store()
    before, _, after = do(store, Range(b"a"), Put(b"a", b"1"), Range(b"a")).results
    assert isinstance(before, RangeResult)
    assert isinstance(after, RangeResult)
    assert (before.header.revision, before.kvs) == (1, ())
    assert (after.header.revision, after.kvs[0].value) == (2, b"1")


def test_the_branch_follows_the_compares() -> None:
    store = Store()
    absent = Txn((version(b"a", EQUAL, 0),), (Put(b"a"),), (Range(b"a"),))
    first, second = store.txn(absent), store.txn(absent)
    assert first.succeeded
    assert isinstance(first.results[0], PutResult)
    assert not second.succeeded
    assert isinstance(second.results[0], RangeResult)


@pytest.mark.parametrize(
    ("target", "operand"),
    [
        (CompareTarget.VERSION, 2),
        (CompareTarget.CREATE, 2),
        (CompareTarget.MOD, 3),
        (CompareTarget.VALUE, b"v"),
        (CompareTarget.LEASE, 7),
    ],
)
def test_every_target_with_every_result(target: CompareTarget, operand: int | bytes) -> None:
    store = Store()
    store.lease_grant(0, 60, 7)
    store.put(Put(b"a"))
    store.put(Put(b"a", b"v", 7))
    lower: int | bytes = b"u" if isinstance(operand, bytes) else operand - 1
    assert store.txn(Txn((Compare(b"a", target, EQUAL, operand),))).succeeded
    assert not store.txn(Txn((Compare(b"a", target, NOT_EQUAL, operand),))).succeeded
    assert store.txn(Txn((Compare(b"a", target, GREATER, lower),))).succeeded
    assert not store.txn(Txn((Compare(b"a", target, LESS, lower),))).succeeded


def test_a_value_of_an_absent_key_never_compares() -> None:
    store = Store()
    for result in CompareResult:
        assert not store.txn(Txn((Compare(b"a", CompareTarget.VALUE, result, b""),))).succeeded
    assert store.txn(Txn((version(b"a", LESS, 1),))).succeeded


def test_range_compares_hold_for_every_key() -> None:
    store = Store()
    do(store, Put(b"a"), Put(b"b"))
    store.put(Put(b"b"))
    assert store.txn(Txn((version(b"a", GREATER, 0, FROM_KEY),))).succeeded
    assert not store.txn(Txn((version(b"a", EQUAL, 1, FROM_KEY),))).succeeded
    assert store.txn(Txn((version(b"x", EQUAL, 0, FROM_KEY),))).succeeded


def test_nested_compares_are_decided_before_anything_changes() -> None:
    store = Store()
    inner = Txn((version(b"a", EQUAL, 0),), (Put(b"b", b"absent"),), (Put(b"b", b"there"),))
    _, nested = do(store, Put(b"a"), inner).results
    assert isinstance(nested, TxnResult)
    assert nested.succeeded
    assert store.range(Range(b"b")).kvs[0].value == b"absent"
    assert store.revision == 2


def test_one_key_is_not_put_twice() -> None:
    store = Store()
    for ops in (
        (Put(b"a"), Put(b"a")),
        (Put(b"a"), DeleteRange(b"a")),
        (DeleteRange(b"a", b"c"), Put(b"b")),
        (Put(b"a"), Txn((), (Put(b"a"),))),
        (Txn((), (Put(b"a"),)), Txn((), (), (Put(b"a"),))),
        (DeleteRange(b"a"), Txn((), (), (Put(b"a"),))),
        (Txn((), (DeleteRange(b"a"),)), Put(b"a")),
    ):
        with pytest.raises(DuplicateKey):
            store.txn(Txn((), ops))
        with pytest.raises(DuplicateKey):
            store.txn(Txn((), (), ops))
    assert store.revision == 1


def test_what_may_be_repeated() -> None:
    store = Store()
    do(store, Txn((), (Put(b"a"),), (Put(b"a"),)))  # only one branch is taken
    do(store, DeleteRange(b"a"), DeleteRange(b"a"))
    deleted, put = do(store, DeleteRange(b"\0", FROM_KEY), Put(b"a")).results  # not compared, as in etcd
    assert isinstance(deleted, DeleteResult)
    assert isinstance(put, PutResult)
    (kv,) = store.range(Range(b"a")).kvs
    assert (kv.version, kv.create_revision) == (1, store.revision)


def test_limits() -> None:
    store = Store()
    many = tuple(Put(b"%d" % number) for number in range(129))
    with pytest.raises(TooManyOps):
        do(store, *many)
    do(store, *many[:128])
    with pytest.raises(TooManyOps):  # operations of the outer transaction count against the inner one
        do(store, *many[:100], Txn((), many[100:]))
    with pytest.raises(EmptyKey):
        store.txn(Txn((version(b"", EQUAL, 0),)))
    with pytest.raises(EmptyKey):
        do(store, Put(b""))


def test_nothing_is_changed_when_a_part_is_refused() -> None:
    store = Store(quota_bytes=10_000)
    store.put(Put(b"z"))
    store.put(Put(b"z"))
    store.compact(3)
    with pytest.raises(LeaseNotFound):
        do(store, Put(b"a"), Put(b"b", lease=9))
    with pytest.raises(KeyNotFound):
        do(store, Put(b"a"), Put(b"b", ignore_value=True))
    with pytest.raises(FutureRevision):
        do(store, Put(b"a"), Range(b"b", revision=4))
    with pytest.raises(Compacted):
        do(store, Put(b"a"), Range(b"b", revision=2))
    with pytest.raises(NoSpace):
        do(store, Put(b"a"), Put(b"b", bytes(10_000)))
    assert store.range(Range(b"a", b"c")).count == 0
    assert store.revision == 3


def test_a_branch_that_is_not_taken_is_not_checked_against_the_store() -> None:
    store = Store()
    assert store.txn(Txn((), (Put(b"a"),), (Put(b"b", lease=9),))).succeeded
