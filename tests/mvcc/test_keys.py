"""Keys, versions and revisions, one rule a test; each was also seen on a real etcd by the differential fuzzer."""

from __future__ import annotations

import pytest

from leasehold.mvcc.errors import (
    Compacted,
    EmptyKey,
    FutureRevision,
    KeyNotFound,
    LeaseProvided,
    NoSpace,
    RequestTooLarge,
    ValueProvided,
)
from leasehold.mvcc.model import (
    FROM_KEY,
    DeleteRange,
    KeyValue,
    Put,
    Range,
    SortOrder,
    SortTarget,
    prefix_end,
)
from leasehold.mvcc.store import Store


def put(store: Store, key: bytes, value: bytes = b"") -> int:
    return store.put(Put(key, value)).header.revision


def get(store: Store, key: bytes, revision: int = 0) -> KeyValue | None:
    kvs = store.range(Range(key, revision=revision)).kvs
    return kvs[0] if kvs else None


def keys(store: Store, **options: object) -> list[bytes]:
    request = Range(b"\0", FROM_KEY, **options)  # type: ignore[arg-type]  # the options are Range's own
    return [kv.key for kv in store.range(request).kvs]


def test_a_new_store_is_at_revision_1() -> None:
    assert Store().range(Range(b"a")).header.revision == 1


def test_each_write_is_a_revision() -> None:
    store = Store()
    assert [put(store, b"a"), put(store, b"b"), put(store, b"a")] == [2, 3, 4]


def test_a_delete_of_nothing_is_no_revision() -> None:
    store = Store()
    assert store.delete(DeleteRange(b"a")).header.revision == 1


def test_a_version_counts_from_creation() -> None:
    store = Store()
    put(store, b"a", b"1")
    put(store, b"a", b"2")
    assert get(store, b"a") == KeyValue(b"a", b"2", create_revision=2, mod_revision=3, version=2)
    store.delete(DeleteRange(b"a"))
    assert get(store, b"a") is None
    put(store, b"a", b"3")
    assert get(store, b"a") == KeyValue(b"a", b"3", create_revision=5, mod_revision=5, version=1)


def test_the_past_can_be_read() -> None:
    store = Store()
    put(store, b"a", b"1")
    put(store, b"b", b"1")
    store.delete(DeleteRange(b"a"))
    assert keys(store) == [b"b"]
    assert keys(store, revision=3) == [b"a", b"b"]
    assert keys(store, revision=2) == [b"a"]
    assert keys(store, revision=1) == []
    with pytest.raises(FutureRevision):
        keys(store, revision=5)


def test_ranges() -> None:
    store = Store()
    for key in (b"a", b"b", b"ba", b"c", b"\xff\xff"):
        put(store, key)
    assert [kv.key for kv in store.range(Range(b"b", b"c")).kvs] == [b"b", b"ba"]
    assert [kv.key for kv in store.range(Range(b"b", prefix_end(b"b"))).kvs] == [b"b", b"ba"]
    assert [kv.key for kv in store.range(Range(b"c", FROM_KEY)).kvs] == [b"c", b"\xff\xff"]
    assert [kv.key for kv in store.range(Range(b"\xff", prefix_end(b"\xff"))).kvs] == [b"\xff\xff"]
    assert store.range(Range(b"c", b"a")).kvs == ()
    assert store.range(Range(b"c", b"c")).kvs == ()


def test_limit_sets_more_and_counts_all() -> None:
    store = Store()
    for key in (b"a", b"b", b"c"):
        put(store, key)
    answer = store.range(Range(b"\0", FROM_KEY, limit=2))
    assert (len(answer.kvs), answer.more, answer.count) == (2, True, 3)
    answer = store.range(Range(b"\0", FROM_KEY, limit=3))
    assert (len(answer.kvs), answer.more, answer.count) == (3, False, 3)
    counted = store.range(Range(b"\0", FROM_KEY, count_only=True, limit=1))
    assert (counted.kvs, counted.more, counted.count) == ((), False, 3)


def test_filters_do_not_change_the_count() -> None:
    store = Store()
    for key in (b"a", b"b", b"c"):
        put(store, key)
    answer = store.range(Range(b"\0", FROM_KEY, min_mod_revision=3, max_create_revision=3))
    assert ([kv.key for kv in answer.kvs], answer.count) == ([b"b"], 3)


def test_sorting() -> None:
    store = Store()
    for key, value in ((b"c", b"1"), (b"a", b"3"), (b"b", b"2"), (b"c", b"0")):
        put(store, key, value)
    assert keys(store, sort_order=SortOrder.DESCEND) == [b"c", b"b", b"a"]
    assert keys(store, sort_order=SortOrder.ASCEND, sort_target=SortTarget.CREATE) == [b"c", b"a", b"b"]
    assert keys(store, sort_order=SortOrder.DESCEND, sort_target=SortTarget.MOD) == [b"c", b"b", b"a"]
    assert keys(store, sort_order=SortOrder.ASCEND, sort_target=SortTarget.VALUE) == [b"c", b"b", b"a"]
    assert keys(store, sort_order=SortOrder.ASCEND, sort_target=SortTarget.VERSION) == [b"a", b"b", b"c"]


def test_a_target_without_an_order_sorts_what_the_limit_left() -> None:
    store = Store()
    for key, value in ((b"a", b"3"), (b"b", b"2"), (b"c", b"1")):
        put(store, key, value)
    # One more than the limit is fetched, in the order of keys; "c" is never looked at.
    assert keys(store, sort_target=SortTarget.VALUE, limit=1) == [b"b"]
    assert keys(store, sort_target=SortTarget.VALUE) == [b"c", b"b", b"a"]


def test_keys_only_hides_values() -> None:
    store = Store()
    put(store, b"a", b"secret")
    (kv,) = store.range(Range(b"a", keys_only=True)).kvs
    assert (kv.value, kv.version) == (b"", 1)


def test_previous_versions_are_returned() -> None:
    store = Store()
    put(store, b"a", b"1")
    before = store.put(Put(b"a", b"2", prev_kv=True)).prev_kv
    assert before is not None
    assert before.value == b"1"
    assert store.put(Put(b"a", b"3")).prev_kv is None
    deleted = store.delete(DeleteRange(b"a", prev_kv=True))
    assert (deleted.deleted, deleted.prev_kvs[0].value) == (1, b"3")


def test_ignoring_value_or_lease() -> None:
    store = Store()
    store.lease_grant(0, 60, 7)
    with pytest.raises(KeyNotFound):
        store.put(Put(b"a", ignore_value=True))
    with pytest.raises(ValueProvided):
        store.put(Put(b"a", b"1", ignore_value=True))
    with pytest.raises(LeaseProvided):
        store.put(Put(b"a", lease=7, ignore_lease=True))
    store.put(Put(b"a", b"1", lease=7))
    store.put(Put(b"a", b"2", ignore_lease=True))
    kv = get(store, b"a")
    assert kv is not None
    assert (kv.value, kv.lease) == (b"2", 7)
    store.put(Put(b"a", ignore_value=True))
    kv = get(store, b"a")
    assert kv is not None
    assert (kv.value, kv.lease) == (b"2", 0)


def test_bad_requests() -> None:
    store = Store()
    with pytest.raises(EmptyKey):
        store.put(Put(b""))
    with pytest.raises(EmptyKey):
        store.range(Range(b""))
    with pytest.raises(EmptyKey):
        store.delete(DeleteRange(b""))
    with pytest.raises(RequestTooLarge):
        store.put(Put(b"a", bytes(1536 * 1024)))
    assert store.revision == 1


def test_compaction_keeps_what_is_current() -> None:
    store = Store()
    put(store, b"a", b"1")  # 2
    put(store, b"a", b"2")  # 3
    put(store, b"b", b"1")  # 4
    store.delete(DeleteRange(b"b"))  # 5
    put(store, b"c", b"1")  # 6
    store.compact(5)
    assert keys(store) == [b"a", b"c"]
    assert keys(store, revision=5) == [b"a"]
    with pytest.raises(Compacted) as caught:
        keys(store, revision=4)
    assert caught.value.compact_revision == 5
    with pytest.raises(Compacted):
        store.compact(5)
    with pytest.raises(FutureRevision):
        store.compact(7)
    store.compact(6)
    assert store.keys.versions(b"b") == []
    assert store.keys.total_bytes == store.keys.live_bytes


def test_a_full_store_still_reads_and_deletes() -> None:
    store = Store(quota_bytes=2_000)
    for number in range(4):
        put(store, b"%d" % number, bytes(200))
    with pytest.raises(NoSpace):
        put(store, b"more", bytes(200))
    with pytest.raises(NoSpace):
        put(store, b"more", bytes(2_000))
    assert len(keys(store)) == 4
    store.delete(DeleteRange(b"0"))
    put(store, b"more", bytes(200))
