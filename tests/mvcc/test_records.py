"""Records reproduce a store: after any calls, by replay or by dump and load."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold.mvcc.errors import StoreError
from leasehold.mvcc.hashing import hash_of, hashed_versions
from leasehold.mvcc.model import FROM_KEY, DeleteRange, KeyValue, Op, Put, Range, Txn
from leasehold.mvcc.records import Record
from leasehold.mvcc.store import Store

KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
ENDS = st.sampled_from([b"", b"", b"c", FROM_KEY])
WRITES = st.one_of(
    st.builds(Put, KEYS, st.binary(max_size=3), lease=st.sampled_from([0, 0, 1, 2])),
    st.builds(DeleteRange, KEYS, ENDS),
)
OPS = st.one_of(WRITES, st.builds(Txn, success=st.lists(WRITES, max_size=3).map(tuple)))
STEPS = st.one_of(
    OPS,
    st.tuples(st.just("grant"), st.integers(1, 2), st.integers(1, 9)),
    st.tuples(st.just("revoke"), st.integers(1, 2)),
    st.tuples(st.just("renew"), st.integers(1, 2)),
    st.tuples(st.just("compact"), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.integers(0, 4_000)),
)


def state(store: Store) -> object:
    """Everything that can be seen of a store."""
    keys = store.keys
    past = {
        revision: store.range(Range(b"\0", FROM_KEY, revision=revision)).kvs
        for revision in range(max(store.compact_revision, 1), store.revision + 1)
    }
    leases = [(lease.id, lease.ttl_s, lease.expiry_ms, sorted(lease.keys)) for lease in store.leases_open]
    sizes = (keys.total_bytes, keys.live_bytes, len(keys))
    summary = (store.revision, store.compact_revision, hash_of(hashed_versions(keys, 0)))
    return past, sorted(leases), sizes, summary


def perform(store: Store, steps: list[object]) -> int:
    now_ms = 0
    for step in steps:
        try:
            if isinstance(step, (Put, DeleteRange, Txn, Range)):
                store.execute(step)
            elif isinstance(step, tuple):
                now_ms = _perform(store, now_ms, *step)
        except StoreError:
            pass  # refused: then it must have left no trace
        check_against_itself(store)
    return now_ms


def _perform(store: Store, now_ms: int, verb: str, number: int, ttl_s: int = 0) -> int:
    if verb == "grant":
        store.lease_grant(now_ms, ttl_s, number)
    elif verb == "revoke":
        store.lease_revoke(number)
    elif verb == "renew":
        store.lease_keep_alive(now_ms, number)
    elif verb == "compact":
        store.compact(store.revision - number)
    else:
        now_ms += number
        store.tick(now_ms)
    return now_ms


def check_against_itself(store: Store) -> None:
    """The books agree: sizes, and which key hangs on which lease."""
    keys = store.keys
    versions = [kv for places in keys.log.values() for kv in places if kv is not None]
    assert sorted(map(id, versions)) == sorted(id(kv) for key in keys.all_keys() for kv in keys.versions(key))
    current: list[KeyValue] = list(store.range(Range(b"\0", FROM_KEY)).kvs)
    held = sorted((kv.lease, kv.key) for kv in current if kv.lease)
    assert held == sorted((lease.id, key) for lease in store.leases_open for key in lease.keys)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_replayed_and_copied_stores_are_equal(steps: list[Op | tuple[str, int]]) -> None:
    records: list[Record] = []
    store = Store(journal=records.append)
    now_ms = perform(store, list(steps))
    replayed = Store()
    replayed.load(records)
    assert state(replayed) == state(store)
    copied = Store()
    assert copied.load(store.dump(now_ms)) == now_ms
    assert state(copied) == state(store)


def test_a_key_that_is_put_and_deleted_in_one_revision_hangs_on_no_lease() -> None:
    records: list[Record] = []
    store = Store(journal=records.append)
    store.lease_grant(0, 5, 1)
    store.txn(Txn((), (Put(b"a", lease=1), DeleteRange(b"a", FROM_KEY))))
    replayed = Store()
    replayed.load(records)
    assert state(replayed) == state(store)


def test_a_dump_does_not_show_later_changes() -> None:
    store = Store()
    store.put(Put(b"a", b"1"))
    dump = store.dump(0)
    store.put(Put(b"a", b"2"))
    store.compact(3)
    copied = Store()
    copied.load(dump)
    assert copied.range(Range(b"a")).kvs[0].value == b"1"


def test_every_lease_can_be_given_its_full_term_again() -> None:
    store = Store()
    store.lease_grant(0, 5, 1)
    store.renew_all(4_000)
    assert store.tick(5_000) == ()
    assert store.tick(9_000) == (1,)
