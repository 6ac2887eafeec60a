"""Leases in the pure store: granted, renewed, expired by the time that is passed in."""

from __future__ import annotations

import pytest

from leasehold.mvcc.errors import LeaseExists, LeaseNotFound, LeaseTTLTooLarge
from leasehold.mvcc.model import DeleteRange, EventType, Put, Range, Watch
from leasehold.mvcc.store import Store


def test_a_ttl_below_the_minimum_is_raised() -> None:
    store = Store(lease_ttl_s_min=2)
    assert store.lease_grant(0, 1).ttl_s == 2
    assert store.lease_grant(0, -3).ttl_s == 2
    assert store.lease_grant(0, 5).ttl_s == 5


def test_refusals() -> None:
    store = Store()
    store.lease_grant(0, 5, 7)
    with pytest.raises(LeaseExists):
        store.lease_grant(0, 5, 7)
    with pytest.raises(LeaseTTLTooLarge):
        store.lease_grant(0, 9_000_000_001)
    with pytest.raises(LeaseNotFound):
        store.lease_revoke(8)
    with pytest.raises(LeaseNotFound):
        store.put(Put(b"a", lease=8))
    assert store.lease_keep_alive(0, 8).ttl_s == 0
    assert store.lease_time_to_live(0, 8).ttl_s == -1


def test_expiry_ends_all_keys_in_one_revision() -> None:
    store = Store()
    store.lease_grant(0, 5, 7)
    for key in (b"b", b"a", b"c"):
        store.put(Put(key, lease=7))
    watcher = store.watch(Watch(b"a", b"z"))
    assert store.next_expiry_ms == 5_000
    assert store.tick(4_999) == ()
    assert store.tick(5_000) == (7,)
    assert store.range(Range(b"a", b"z")).count == 0
    batch = store.pull(watcher)
    assert batch is not None
    assert [(event.kv.key, event.kv.mod_revision) for event in batch.events] == [(b"a", 5), (b"b", 5), (b"c", 5)]
    assert all(event.type == EventType.DELETE for event in batch.events)
    assert store.next_expiry_ms is None


def test_an_empty_lease_ends_without_a_revision() -> None:
    store = Store()
    store.lease_grant(0, 5)
    store.tick(5_000)
    assert store.revision == 1


def test_a_renewal_restarts_the_ttl() -> None:
    store = Store()
    store.lease_grant(0, 5, 7)
    store.put(Put(b"a", lease=7))
    assert store.lease_keep_alive(4_000, 7).ttl_s == 5
    assert store.tick(5_000) == ()
    assert store.next_expiry_ms == 9_000
    assert store.lease_time_to_live(5_000, 7, keys=True).keys == (b"a",)
    assert store.lease_time_to_live(5_500, 7).ttl_s == 3
    assert store.tick(9_000) == (7,)


def test_an_ended_lease_is_not_renewed() -> None:
    store = Store()
    store.lease_grant(0, 5, 7)
    assert store.lease_keep_alive(5_000, 7).ttl_s == 0
    assert store.lease_time_to_live(5_000, 7).ttl_s == -1
    assert store.tick(5_000) == (7,)


def test_a_key_hangs_on_the_lease_of_its_last_put() -> None:
    store = Store()
    store.lease_grant(0, 5, 7)
    store.lease_grant(0, 50, 8)
    store.put(Put(b"moved", lease=7))
    store.put(Put(b"moved", lease=8))
    store.put(Put(b"freed", lease=7))
    store.put(Put(b"freed"))
    store.put(Put(b"deleted", lease=7))
    store.delete(DeleteRange(b"deleted"))
    store.put(Put(b"deleted"))
    store.tick(5_000)
    assert [kv.key for kv in store.range(Range(b"a", b"z")).kvs] == [b"deleted", b"freed", b"moved"]
    store.lease_revoke(8)
    assert [kv.key for kv in store.range(Range(b"a", b"z")).kvs] == [b"deleted", b"freed"]


def test_leases_end_in_the_order_of_their_terms() -> None:
    store = Store()
    for lease_id, ttl_s in ((1, 30), (2, 10), (3, 20)):
        store.lease_grant(0, ttl_s, lease_id)
    assert store.leases().leases == (2, 3, 1)
    assert store.tick(60_000) == (2, 3, 1)


def test_an_id_can_be_granted_again() -> None:
    store = Store()
    store.lease_grant(0, 5, 7)
    store.lease_revoke(7)
    store.lease_grant(0, 5, 7)
    assert store.tick(5_000) == (7,)
    store.lease_grant(6_000, 5, 7)
    assert store.tick(10_999) == ()
    assert store.tick(11_000) == (7,)


def test_leases_that_come_and_go_leave_nothing_behind() -> None:
    store = Store()
    for _ in range(20_000):
        store.lease_revoke(store.lease_grant(0, 1_000_000).id)
    assert len(store.leases_open._by_expiry) < 2_000
    kept = store.lease_grant(0, 10)
    assert store.tick(10_000) == (kept.id,)
