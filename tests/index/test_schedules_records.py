"""Schedules that broke earlier drafts, about records: what is durable before it is shown, and how it is applied."""

from __future__ import annotations

from tests.index.kit import KIB, OTHER, WRITER, T, flush, follow, pair, places, primary, put, settings

from leasehold.index import Code, PutConfig
from leasehold.index.records import Cause, Remove, RemoveRange
from leasehold.index.replies import Acknowledged, SpaceHandedOut, View


def test_1_space_is_handed_out_only_by_a_record() -> None:
    leader, _ = pair()
    for reply in (
        leader.puts.start(1, WRITER, T, b"put", 100, PutConfig()),
        leader.puts.start_upsert(1, WRITER, T, b"upsert", 100, PutConfig()),
    ):
        assert reply.code == Code.OK
        assert reply.value is not None
        assert reply.after == reply.value.put_seq > leader.log.durable_n
    leader = primary((64 * KIB, 64 * KIB))
    put(leader, 1, b"a")
    leader.log.durable(leader.log.last_n)
    here = leader.reads.get(2, T, b"a")
    assert here is not None
    target = "seg2" if here.replicas[0].segment.spec.name == "seg1" else "seg1"
    copying = leader.copies.copy_start(2, WRITER, T, b"a", "", [target])
    assert (copying.code, copying.after) == (Code.OK, leader.log.last_n)
    assert copying.value is not None
    assert copying.after > leader.log.durable_n


def test_1_a_claim_displaces_an_object_that_the_standby_still_has() -> None:
    leader, follower = pair()
    put(leader, 1, b"stale", 64 * KIB)
    follow(follower, leader)
    put(leader, 2, b"next", 64 * KIB)  # evicts it: no record of that
    assert leader.catalog.lookup(T, b"stale") is None
    assert follower.catalog.lookup(T, b"stale") is not None
    follow(follower, leader)
    assert follower.catalog.lookup(T, b"stale") is None
    assert places(follower, b"next") == places(leader, b"next")
    assert follower.space.displaced_count == 1
    follower.check()


def test_4_a_stale_object_does_not_come_back_after_a_remove() -> None:
    leader, follower = pair()
    for key in (b"one", b"two", b"three"):
        put(leader, 1, key, 16 * KIB)
    follow(follower, leader)
    put(leader, 2, b"big", 64 * KIB)
    leader.puts.revoke(2, WRITER, T, b"big")
    assert leader.catalog.lookup(T, b"one") is None
    records_before = leader.log.last_n
    assert leader.removes.remove(3, T, b"one", False) == Acknowledged(Code.NOT_FOUND, records_before + 1)
    reply = leader.removes.remove_by_regex(3, T, b"^tw", False)
    assert (reply.code, reply.value) == (Code.OK, 0)
    # A standby that has not applied the claim still has both objects: only the removals reach it here.
    removals = [(n, record) for n, record in leader.log.take_outbox() if isinstance(record, (Remove, RemoveRange))]
    for _, record in removals:
        follower.apply(follower.log.last_n + 1, record)
    assert follower.catalog.lookup(T, b"one") is None
    assert follower.catalog.lookup(T, b"two") is None
    assert follower.catalog.lookup(T, b"three") is not None


def test_13_an_answer_that_shows_a_record_by_a_miss_waits_too() -> None:
    leader, _ = pair()
    put(leader, 0, b"a")
    leader.log.durable(leader.log.last_n)
    reply = leader.removes.remove(1, T, b"a", False)
    code, removed_at = reply.code, reply.after
    assert code == Code.OK
    assert leader.reads.get(2, T, b"a") is None
    assert leader.reads.miss(T, b"a") == View(Code.NOT_FOUND, removed_at)
    assert leader.reads.exist_many(2, T, [b"a"], 1, 0) == View([0], removed_at)
    assert leader.reads.get_many(2, T, [b"a"]) == View([None], removed_at)
    leader.log.durable(removed_at)
    assert leader.reads.miss(T, b"a") == View(Code.NOT_FOUND, 0)
    started_at = leader.puts.start(3, WRITER, T, b"a", 64, PutConfig()).after
    assert leader.puts.start(3, OTHER, T, b"a", 64, PutConfig()) == SpaceHandedOut(Code.EXISTS, None, started_at)
    assert leader.reads.exist_many(3, T, [b"a"], 1, 0) == View([0], started_at)
    assert leader.removes.remove_all(3, T, False).after == leader.log.last_n


def test_13_a_standby_remembers_nothing_for_it_has_only_what_is_durable() -> None:
    leader, follower = pair()
    for number in range(10):
        leader.removes.remove(1, T, b"absent-%d" % number, False)
    follow(follower, leader)
    assert not follower.log.removed
    assert not leader.log.removed
    assert follower.log.durable_n == follower.log.last_n


def test_16_renewals_again_change_nothing() -> None:
    leader, follower = pair()
    put(leader, 0, b"a")
    follow(follower, leader)
    leader.reads.get(1_000, T, b"a")
    (renewal,), complete = leader.take_renewals(10)
    assert complete
    for _ in range(3):
        assert follower.apply_renewal(*renewal)
    entry = follower.catalog.lookup(T, b"a")
    assert entry is not None
    assert entry.lease_end - follower.clock.offset == 11_000
    leader.removes.remove(12_000, T, b"a", False)
    put(leader, 12_001, b"a")
    follow(follower, leader)
    assert not follower.apply_renewal(*renewal)  # another version: not its renewal


def test_17_hinted_evictions_are_space_immediately_after_a_failover() -> None:
    leader, follower = pair()
    for number in range(16):
        put(leader, number, b"old-%d" % number)
    follow(follower, leader)
    leader.work(1_000)  # above the watermark: a round of eviction
    assert leader.eviction.evicted_count > 0
    flush(leader, follower, 1_000)
    follower.begin(0, 2)
    put(follower, 1, b"new")  # in grace nothing may be evicted, and yet there is room


def test_h12_objects_that_stay_are_listed_and_the_record_is_small() -> None:
    leader, follower = pair()
    long_key = b"k" * 65_000
    put(leader, 0, long_key, 64)
    leader.reads.get(1, T, long_key)
    leader.puts.start(1, WRITER, T, b"unfinished", 64, PutConfig())
    put(leader, 1, b"goes", 64)
    follow(follower, leader)
    reply = leader.removes.remove_all(2, T, False)
    assert (reply.code, reply.value) == (Code.OK, 1)
    records = leader.log.take_outbox()
    assert all(isinstance(record, RemoveRange) and record.cause == Cause.REMOVE_ALL for _, record in records)
    for n, record in records:
        follower.apply(n, record)
    assert follower.catalog.lookup(T, b"goes") is None
    assert follower.catalog.lookup(T, long_key) is not None
    assert leader.puts.end(3, WRITER, T, b"unfinished").code == Code.OK
    follow(follower, leader)
    assert leader.digest() == follower.digest()


def test_h12_absent_removes_are_bounded_per_caller() -> None:
    leader, _ = pair()
    answers = [
        leader.removes.remove(1, T, b"%03d" % number + b"x" * 64_000, False, b"noisy").code for number in range(8)
    ]
    assert answers.count(Code.NOT_FOUND) == 4
    assert answers.count(Code.TRY_AGAIN) == 4
    assert leader.removes.remove(1, T, b"absent", False, b"quiet").code == Code.NOT_FOUND
    leader.log.durable(leader.log.last_n)
    assert leader.removes.remove(2, T, b"absent", False, b"noisy").code == Code.NOT_FOUND
    assert settings().lease_ttl_ms == 10_000


def test_13_not_now_shows_what_is_being_written() -> None:
    """Refusing because of an upsert or a copy that is not durable shows it: if it is lost, it never was."""
    leader = primary((64 * KIB, 64 * KIB))
    put(leader, 0, b"k")
    put(leader, 0, b"c")
    leader.log.durable(leader.log.last_n)
    upsert_n = leader.puts.start_upsert(1, WRITER, T, b"k", 4 * KIB, PutConfig()).after
    assert leader.removes.remove(2, T, b"k", True) == Acknowledged(Code.NOT_READY, upsert_n)
    assert leader.copies.copy_start(2, OTHER, T, b"k", "", ["seg1", "seg2"]) == SpaceHandedOut(
        Code.NOT_READY, None, upsert_n
    )
    found = leader.catalog.lookup(T, b"c")
    assert found is not None
    target = "seg2" if found.replicas[0].segment.spec.name == "seg1" else "seg1"
    reply = leader.copies.copy_start(3, OTHER, T, b"c", "", [target])
    code, copy_n = reply.code, reply.after
    assert code == Code.OK
    assert leader.puts.start_upsert(4, WRITER, T, b"c", 4 * KIB, PutConfig()) == SpaceHandedOut(
        Code.NOT_READY, None, copy_n
    )
    assert leader.removes.remove(4, T, b"c", True) == Acknowledged(Code.NOT_READY, copy_n)
