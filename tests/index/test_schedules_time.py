"""Schedules that broke earlier drafts, about time: lease ends, grace, and what an epoch inherits from another."""

from __future__ import annotations

from tests.index.kit import STORAGE, WRITER, T, flush, follow, pair, primary, put, standby

from leasehold.index import Code, Index, PutConfig


def test_5_a_standby_evicts_only_by_a_complete_batch_of_the_leader() -> None:
    leader, follower = pair(eviction_policy="expiry")
    put(leader, 0, b"a")
    follow(follower, leader)
    leader.reads.get(2_900, T, b"a")  # the end that the standby knows is 10,000; the true one is 12,900
    assert follower.catalog.lookup(T, b"a") is not None
    flush(leader, follower, 10_500)
    assert follower.catalog.lookup(T, b"a") is not None
    assert leader.reads.get(12_900, T, b"a") is None  # expiry is final: absent from its end on
    flush(leader, follower, 12_901)
    assert follower.catalog.lookup(T, b"a") is None


def test_9_the_maximum_term_is_the_clusters_not_the_nodes() -> None:
    leader = primary(lease_ttl_ms=60_000)
    follower = standby(lease_ttl_ms=10_000)  # restarted with another setting
    put(leader, 0, b"a")
    leader.reads.get(1_000, T, b"a")  # until 61,000, not flushed
    follow(follower, leader)
    follower.begin(0, 2)
    follower.work(0)
    assert follower.removes.remove(59_999, T, b"a", False).code == Code.HAS_LEASE
    assert follower.clock.max_term_ms == 60_000
    follower.owners.ping(59_999, STORAGE)
    follower.work(60_000)
    assert follower.clock.max_term_ms == 10_000  # lowered one old term later
    assert follower.removes.remove(60_000, T, b"a", False).code == Code.OK


def test_9b_grace_survives_a_hand_over() -> None:
    first, second, third = primary(), standby(), standby()
    put(first, 0, b"a")
    first.reads.get(500, T, b"a")  # unflushed
    follow(second, first)
    second.begin(0, 2)  # grace until 10,000
    log = first_log(first, second)
    second.handover(1_000, 0)
    log += second.log.take_outbox()
    for n, record in log:
        third.apply(n, record)
    third.begin(0, 3, handover_ms=1_000, drift_ms=5)
    assert third.removes.remove(9_004, T, b"a", False).code == Code.HAS_LEASE
    assert third.removes.remove(9_006, T, b"a", False).code == Code.OK


def first_log(first: Index, second: Index) -> list:  # type: ignore[type-arg]  # of (n, record)
    """All records so far: of the first leader (rebuilt, since they were taken) and of the second."""
    again = primary()
    log = again.log.take_outbox()
    put(again, 0, b"a")
    log += again.log.take_outbox()
    assert again.log.last_n == first.log.last_n
    return log + second.log.take_outbox()


def test_h2_begin_lifts_older_ends_for_everyone() -> None:
    first = primary(eviction_policy="expiry")
    second, third = standby(eviction_policy="expiry"), standby(eviction_policy="expiry")
    put(first, 0, b"a")
    for n, record in first.log.take_outbox():
        second.apply(n, record)
        third.apply(n, record)
    # The first leader renews, unflushed, and dies. The second's grace is a record: the third has it too.
    second.begin(0, 2)
    for n, record in second.log.take_outbox():
        third.apply(n, record)
    third.observe(1_000)
    assert third.expire_until(1_000) == 0
    assert third.expire_until(10_000) == 0
    assert third.expire_until(10_001) == 1


def test_h3_after_a_gap_no_lease_counts_as_expired_for_a_term() -> None:
    leader, follower = pair(eviction_policy="expiry")
    put(leader, 0, b"a")
    follow(follower, leader)
    leader.reads.get(9_000, T, b"a")
    leader.take_renewals(10)  # lost on the way
    follower.gap_closed(15_000)
    assert follower.expire_until(16_000) == 0
    assert follower.expire_until(25_000) == 0
    assert follower.expire_until(25_001) == 1


def test_h9_no_client_is_sent_to_a_segment_before_its_owner_has_pinged() -> None:
    leader = primary()
    put(leader, 0, b"a")
    leader.owners.distrust()
    found = leader.reads.get(1, T, b"a")
    assert found is not None
    assert leader.owners.must_wait(found)
    assert leader.puts.start(1, WRITER, T, b"b", 64, PutConfig()).code == Code.NO_SPACE
    leader.owners.ping(2, STORAGE)
    assert not leader.owners.unproven
    assert not leader.owners.must_wait(found)
    assert leader.puts.start(3, WRITER, T, b"b", 64, PutConfig()).code == Code.OK
