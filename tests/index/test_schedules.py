"""The schedules that broke earlier drafts, as far as they concern the pure state: one test each, named by number."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import pytest
from tests.index.kit import (
    KIB,
    STORAGE,
    WRITER,
    T,
    flush,
    follow,
    primary,
    put,
    settings,
    spec,
    standby,
)

from leasehold.index import Code, Index, PutConfig
from leasehold.index.records import Cause, Extent, PutStart, Record, Remove, RemoveRange
from leasehold.index.state import SHARDS, Unappliable

OTHER = b"another-client-1"


def pair(eviction_policy: str = "pressure") -> tuple[Index, Index]:
    leader, follower = primary(eviction_policy=eviction_policy), standby(eviction_policy=eviction_policy)
    follow(follower, leader)
    return leader, follower


def places(index: Index, key: bytes) -> list[tuple[int, int]]:
    entry = index.lookup(T, key)
    assert entry is not None
    return [(replica.segment.incarnation, replica.offset) for replica in entry.replicas]


def test_1_space_is_handed_out_only_by_a_record() -> None:
    leader, _ = pair()
    for code, entry, after in (
        leader.put_start(1, WRITER, T, b"put", 100, PutConfig()),
        leader.upsert_start(1, WRITER, T, b"upsert", 100, PutConfig()),
    ):
        assert code == Code.OK
        assert entry is not None
        assert after == entry.put_seq > leader.durable_n
    leader = primary((64 * KIB, 64 * KIB))
    put(leader, 1, b"a")
    leader.durable(leader.last_n)
    here = leader.get(2, T, b"a")
    assert here is not None
    target = "seg2" if here.replicas[0].segment.spec.name == "seg1" else "seg1"
    code, copied, after = leader.copy_start(2, WRITER, T, b"a", "", [target])
    assert (code, after) == (Code.OK, leader.last_n)
    assert copied is not None
    assert after > leader.durable_n


def test_1_a_claim_displaces_what_the_standby_still_believes() -> None:
    leader, follower = pair()
    put(leader, 1, b"ghost", 64 * KIB)
    follow(follower, leader)
    put(leader, 2, b"next", 64 * KIB)  # evicts the ghost: no record of that
    assert leader.lookup(T, b"ghost") is None
    assert follower.lookup(T, b"ghost") is not None
    follow(follower, leader)
    assert follower.lookup(T, b"ghost") is None
    assert places(follower, b"next") == places(leader, b"next")
    assert follower.displaced_count == 1
    follower.check()


def test_4_a_ghost_does_not_come_back_after_a_remove() -> None:
    leader, follower = pair()
    for key in (b"one", b"two", b"three"):
        put(leader, 1, key, 16 * KIB)
    follow(follower, leader)
    put(leader, 2, b"big", 64 * KIB)
    leader.put_revoke(2, WRITER, T, b"big")
    assert leader.lookup(T, b"one") is None
    records_before = leader.last_n
    assert leader.remove(3, T, b"one", False) == (Code.NOT_FOUND, records_before + 1)
    assert leader.remove_by_regex(3, T, b"^tw", False)[:2] == (Code.OK, 0)
    # The ghosts live on at a standby that has not seen the claim: only the removals reach it here.
    removals = [(n, record) for n, record in leader.take_outbox() if isinstance(record, (Remove, RemoveRange))]
    for _, record in removals:
        follower.apply(follower.last_n + 1, record)
    assert follower.lookup(T, b"one") is None
    assert follower.lookup(T, b"two") is None
    assert follower.lookup(T, b"three") is not None


def test_5_a_standby_evicts_only_by_the_leaders_complete_word() -> None:
    leader, follower = pair(eviction_policy="expiry")
    put(leader, 0, b"a")
    follow(follower, leader)
    leader.get(2_900, T, b"a")  # the end that the standby knows is 10,000; the true one is 12,900
    assert follower.lookup(T, b"a") is not None
    flush(leader, follower, 10_500)
    assert follower.lookup(T, b"a") is not None
    assert leader.get(12_900, T, b"a") is None  # expiry is final: absent from its end on
    flush(leader, follower, 12_901)
    assert follower.lookup(T, b"a") is None


@pytest.mark.parametrize("leaving", ["remove", "remove_all", "upsert", "move"])
def test_8a_space_under_a_lease_rests_on_every_node(leaving: str) -> None:
    leader = primary((8 * KIB, 8 * KIB))
    follower = standby()
    entry = put(leader, 0, b"k", 8 * KIB)
    leader.get(1_000, T, b"k")  # until 11,000
    before = [(r.segment.incarnation, r.offset) for r in entry.replicas]
    if leaving == "remove":
        assert leader.remove(2_000, T, b"k", True)[0] == Code.OK
    elif leaving == "remove_all":
        assert leader.remove_all(2_000, T, True)[:2] == (Code.OK, 1)
    elif leaving == "upsert":
        assert leader.upsert_start(2_000, WRITER, T, b"k", 8 * KIB, PutConfig())[0] == Code.OK
        assert leader.upsert_end(2_000, WRITER, T, b"k")[0] == Code.OK
    else:
        target = "seg2" if entry.replicas[0].segment.spec.name == "seg1" else "seg1"
        assert leader.move_start(2_000, WRITER, T, b"k", "", target)[0] == Code.OK
        assert leader.move_end(2_000, WRITER, T, b"k")[0] == Code.OK
    follow(follower, leader)
    # The primary dies; nobody knows how long ago. Its successor gives the place to nobody for a whole term.
    follower.begin(0, 2)
    for now_ms in (0, 5_000, 9_999):
        code, got, _ = follower.put_start(now_ms, WRITER, T, b"new-%d" % now_ms, 8 * KIB, PutConfig())
        assert code == Code.NO_SPACE or (got is not None and places(follower, got.key) != before)
    follower.work(10_000)
    assert not follower._live_limbo()


def test_8b_an_upsert_is_never_in_place_under_a_lease() -> None:
    leader, follower = pair()
    put(leader, 0, b"k")
    leader.get(1, T, b"k")
    before = places(leader, b"k")
    code, entry, _ = leader.upsert_start(2, WRITER, T, b"k", 4 * KIB, PutConfig())
    assert code == Code.OK
    assert entry is not None
    assert [(r.segment.incarnation, r.offset) for r in entry.replicas] != before
    assert leader.get(3, T, b"k") is not None  # the old version is readable until the end
    assert leader.upsert_end(3, WRITER, T, b"k")[0] == Code.OK
    assert places(leader, b"k") != before
    follow(follower, leader)
    leader.check()
    follower.check()
    assert leader.digest() == follower.digest()


def test_8b_in_place_only_where_space_is_short_and_nobody_reads() -> None:
    leader = primary((4 * KIB,))
    put(leader, 0, b"k", 4 * KIB)
    before = places(leader, b"k")
    leader.get(1, T, b"k")
    assert leader.upsert_start(2, WRITER, T, b"k", 4 * KIB, PutConfig())[0] == Code.NO_SPACE
    code, entry, _ = leader.upsert_start(20_000, WRITER, T, b"k", 4 * KIB, PutConfig())
    assert code == Code.OK
    assert entry is not None
    assert [(r.segment.incarnation, r.offset) for r in entry.replicas] == before


def test_8c_the_space_of_a_replaced_put_rests_until_its_writer_has_given_up() -> None:
    leader, follower = primary((8 * KIB,)), standby()
    assert leader.put_start(0, WRITER, T, b"k", 4 * KIB, PutConfig())[0] == Code.OK
    first = places(leader, b"k")
    assert leader.put_start(29_999, OTHER, T, b"k", 4 * KIB, PutConfig())[0] == Code.EXISTS
    assert leader.put_start(30_000, OTHER, T, b"k", 4 * KIB, PutConfig())[0] == Code.OK
    follow(follower, leader)
    follower.begin(0, 2)
    follower.ping(0, STORAGE)
    assert follower.put_end(1, OTHER, T, b"k")[0] == Code.OK
    assert follower.put_end(1, WRITER, T, b"k")[0] == Code.ILLEGAL_CLIENT
    assert places(follower, b"k") != first
    # Full: the old writer's place is in limbo for its remaining time anew, whatever is evicted.
    assert follower.put_start(569_000, OTHER, T, b"new", 8 * KIB, PutConfig())[0] == Code.NO_SPACE
    assert follower.put_start(570_000, OTHER, T, b"new", 8 * KIB, PutConfig())[0] == Code.OK


def test_8d_memory_that_comes_back_after_a_false_death_starts_in_limbo() -> None:
    leader = primary((8 * KIB,))
    put(leader, 0, b"read", 4 * KIB)
    assert leader.put_start(1, WRITER, T, b"written", 4 * KIB, PutConfig())[0] == Code.OK
    leader.get(9_000, T, b"read")  # until 19,000
    leader.work(10_001)  # the client's pings were held up
    assert leader.object_count == 0
    assert leader.remount(10_002, STORAGE, [spec(1, size=8 * KIB)])[0] == Code.OK
    assert leader.put_start(19_000, WRITER, T, b"new", 4 * KIB, PutConfig())[0] == Code.NO_SPACE
    leader.ping(19_000, STORAGE)
    assert leader.put_start(20_001, WRITER, T, b"new", 4 * KIB, PutConfig())[0] == Code.OK
    # The other half belongs to a writer that may still be at work.
    assert leader.put_start(20_001, WRITER, T, b"more", 4 * KIB, PutConfig())[0] == Code.NO_SPACE
    leader.check()


def test_9_the_maximum_term_is_the_clusters_not_the_nodes() -> None:
    leader = primary(lease_ttl_ms=60_000)
    follower = standby(lease_ttl_ms=10_000)  # restarted with another setting
    put(leader, 0, b"a")
    leader.get(1_000, T, b"a")  # until 61,000, not flushed
    follow(follower, leader)
    follower.begin(0, 2)
    follower.work(0)
    assert follower.remove(59_999, T, b"a", False)[0] == Code.HAS_LEASE
    assert follower.max_term_ms == 60_000
    follower.ping(59_999, STORAGE)
    follower.work(60_000)
    assert follower.max_term_ms == 10_000  # lowered one old term later
    assert follower.remove(60_000, T, b"a", False)[0] == Code.OK


def test_9b_grace_survives_a_hand_over() -> None:
    first, second, third = primary(), standby(), standby()
    put(first, 0, b"a")
    first.get(500, T, b"a")  # unflushed
    follow(second, first)
    second.begin(0, 2)  # grace until 10,000
    log = first_log(first, second)
    second.handover(1_000, 0)
    log += second.take_outbox()
    for n, record in log:
        third.apply(n, record)
    third.begin(0, 3, handover_ms=1_000, drift_ms=5)
    assert third.remove(9_004, T, b"a", False)[0] == Code.HAS_LEASE
    assert third.remove(9_006, T, b"a", False)[0] == Code.OK


def first_log(first: Index, second: Index) -> list:  # type: ignore[type-arg]  # of (n, record)
    """All records so far: of the first leader (rebuilt, since they were taken) and of the second."""
    again = primary()
    log = again.take_outbox()
    put(again, 0, b"a")
    log += again.take_outbox()
    assert again.last_n == first.last_n
    return log + second.take_outbox()


def test_11_a_restarted_storage_process_supersedes_itself() -> None:
    leader, follower = pair()
    put(leader, 0, b"a")
    again = spec(7, base=0x1000_0000, endpoint="host1:1")
    assert leader.mount(1, OTHER, again)[0] == Code.OK
    assert leader.get(2, T, b"a") is None
    assert leader.miss(T, b"a") == (Code.NOT_FOUND, leader.last_n)
    assert len(leader.segments) == 1
    put(leader, 3, b"b")
    follow(follower, leader)
    assert leader.digest() == follower.digest()


def test_h8_only_where_addresses_overlap_too() -> None:
    leader = primary()
    put(leader, 0, b"a")
    beside = spec(7, base=0x9000_0000, endpoint="host1:1")
    assert leader.mount(1, OTHER, beside)[0] == Code.OK
    assert len(leader.segments) == 2
    assert leader.get(2, T, b"a") is not None


def test_11_an_extent_of_another_incarnation_does_not_fit() -> None:
    leader, follower = pair()
    put(leader, 0, b"a")
    (n, start), *_ = leader.take_outbox()
    assert isinstance(start, PutStart)
    follower.apply(n, start)
    wrong = PutStart(1, WRITER, T, b"b", 64, (Extent(999, 0),))
    with pytest.raises(Unappliable):
        follower.apply(n + 1, wrong)


def test_13_what_shows_an_effect_by_not_showing_it_waits_too() -> None:
    leader, _ = pair()
    put(leader, 0, b"a")
    leader.durable(leader.last_n)
    code, removed_at = leader.remove(1, T, b"a", False)
    assert code == Code.OK
    assert leader.get(2, T, b"a") is None
    assert leader.miss(T, b"a") == (Code.NOT_FOUND, removed_at)
    assert leader.exist_many(2, T, [b"a"], 1, 0) == ([0], removed_at)
    assert leader.get_many(2, T, [b"a"]) == ([None], removed_at)
    leader.durable(removed_at)
    assert leader.miss(T, b"a") == (Code.NOT_FOUND, 0)
    _, _, started_at = leader.put_start(3, WRITER, T, b"a", 64, PutConfig())
    assert leader.put_start(3, OTHER, T, b"a", 64, PutConfig()) == (Code.EXISTS, None, started_at)
    assert leader.exist_many(3, T, [b"a"], 1, 0) == ([0], started_at)
    assert leader.get_by_regex(3, T, b".")[2] == leader.last_n
    assert leader.remove_all(3, T, False)[2] == leader.last_n


def test_13_a_standby_remembers_nothing_for_it_has_only_what_is_durable() -> None:
    leader, follower = pair()
    for number in range(10):
        leader.remove(1, T, b"absent-%d" % number, False)
    follow(follower, leader)
    assert not follower.removed
    assert not leader.removed
    assert follower.durable_n == follower.last_n


def test_16_renewals_again_change_nothing() -> None:
    leader, follower = pair()
    put(leader, 0, b"a")
    follow(follower, leader)
    leader.get(1_000, T, b"a")
    (renewal,), complete = leader.take_renewals(10)
    assert complete
    for _ in range(3):
        assert follower.apply_renewal(*renewal)
    entry = follower.lookup(T, b"a")
    assert entry is not None
    assert entry.lease_end - follower.offset == 11_000
    leader.remove(12_000, T, b"a", False)
    put(leader, 12_001, b"a")
    follow(follower, leader)
    assert not follower.apply_renewal(*renewal)  # another version: not its renewal


def test_17_hinted_evictions_are_space_at_once_after_a_failover() -> None:
    leader, follower = pair()
    for number in range(16):
        put(leader, number, b"old-%d" % number)
    follow(follower, leader)
    leader.work(1_000)  # above the watermark: a round of eviction
    assert leader.evicted_count > 0
    flush(leader, follower, 1_000)
    follower.begin(0, 2)
    put(follower, 1, b"new")  # in grace nothing may be evicted, and yet there is room


def test_h2_begin_lifts_older_ends_for_everyone() -> None:
    first = primary(eviction_policy="expiry")
    second, third = standby(eviction_policy="expiry"), standby(eviction_policy="expiry")
    put(first, 0, b"a")
    for n, record in first.take_outbox():
        second.apply(n, record)
        third.apply(n, record)
    # The first leader renews, unflushed, and dies. The second's grace is a record: the third has it too.
    second.begin(0, 2)
    for n, record in second.take_outbox():
        third.apply(n, record)
    third.observe(1_000)
    assert third.expire_until(1_000) == 0
    assert third.expire_until(10_000) == 0
    assert third.expire_until(10_001) == 1


def test_h3_after_a_gap_nothing_counts_as_ended_for_a_term() -> None:
    leader, follower = pair(eviction_policy="expiry")
    put(leader, 0, b"a")
    follow(follower, leader)
    leader.get(9_000, T, b"a")
    leader.take_renewals(10)  # lost on the way
    follower.gap_closed(15_000)
    assert follower.expire_until(16_000) == 0
    assert follower.expire_until(25_000) == 0
    assert follower.expire_until(25_001) == 1


def test_h7_limbo_is_in_the_last_slice() -> None:
    leader = primary((8 * KIB,))
    assert leader.put_start(0, WRITER, T, b"k", 8 * KIB, PutConfig())[0] == Code.OK
    assert leader.put_revoke(1, WRITER, T, b"k")[0] == Code.OK
    fresh = standby()
    fresh.load(leader.export_keyless(), [leader.export_slice(number) for number in range(SHARDS)])
    fresh.begin(0, 2)
    assert fresh.put_start(1, WRITER, T, b"new", 4 * KIB, PutConfig())[0] == Code.NO_SPACE
    fresh.check()


def test_h9_nobody_is_sent_to_a_segment_before_its_owner_was_heard() -> None:
    leader = primary()
    put(leader, 0, b"a")
    leader.distrust_owners()
    found = leader.get(1, T, b"a")
    assert found is not None
    assert leader.must_wait(found)
    assert leader.put_start(1, WRITER, T, b"b", 64, PutConfig())[0] == Code.NO_SPACE
    leader.ping(2, STORAGE)
    assert not leader.unproven
    assert not leader.must_wait(found)
    assert leader.put_start(3, WRITER, T, b"b", 64, PutConfig())[0] == Code.OK


def test_h12_what_stays_is_listed_and_small() -> None:
    leader, follower = pair()
    long_key = b"k" * 65_000
    put(leader, 0, long_key, 64)
    leader.get(1, T, long_key)
    leader.put_start(1, WRITER, T, b"unfinished", 64, PutConfig())
    put(leader, 1, b"goes", 64)
    follow(follower, leader)
    assert leader.remove_all(2, T, False)[:2] == (Code.OK, 1)
    records = leader.take_outbox()
    assert all(isinstance(record, RemoveRange) and record.cause == Cause.REMOVE_ALL for _, record in records)
    for n, record in records:
        follower.apply(n, record)
    assert follower.lookup(T, b"goes") is None
    assert follower.lookup(T, long_key) is not None
    assert leader.put_end(3, WRITER, T, b"unfinished")[0] == Code.OK
    follow(follower, leader)
    assert leader.digest() == follower.digest()


def test_h12_absent_removes_are_bounded_per_caller() -> None:
    leader, _ = pair()
    answers = [leader.remove(1, T, b"%03d" % number + b"x" * 64_000, False, b"noisy")[0] for number in range(8)]
    assert answers.count(Code.NOT_FOUND) == 4
    assert answers.count(Code.TRY_AGAIN) == 4
    assert leader.remove(1, T, b"absent", False, b"quiet")[0] == Code.NOT_FOUND
    leader.durable(leader.last_n)
    assert leader.remove(2, T, b"absent", False, b"noisy")[0] == Code.NOT_FOUND
    assert settings().lease_ttl_ms == 10_000


def test_15_two_owners_of_one_place_the_higher_number_wins() -> None:
    leader = primary((4 * KIB,))
    put(leader, 1, b"K", 4 * KIB)
    early = {number: leader.export_slice(number) for number in range(SHARDS)}
    put(leader, 2, b"L", 4 * KIB)  # K is evicted: no record
    late = {number: leader.export_slice(number) for number in range(SHARDS)}
    holder = {b"K": next(n for n, s in early.items() if s.objects), b"L": next(n for n, s in late.items() if s.objects)}
    assert holder[b"K"] != holder[b"L"]
    mixed = [late[n] if n == holder[b"L"] else early[n] for n in range(SHARDS)]
    fresh = standby()
    fresh.load(leader.export_keyless(), mixed)
    assert fresh.lookup(T, b"K") is None
    assert fresh.lookup(T, b"L") is not None
    for n, record in leader.take_outbox():
        if n > fresh.last_n:
            fresh.apply(n, record)
    fresh.check()
    assert fresh.digest() == leader.digest()
    assert fresh.slice_n is None


def _fuzzy(leader: Index, early: bytes, meanwhile: Callable[[], None]) -> Index:
    """A node built from a snapshot: the slice of the key `early`, then something happens, then all the others."""
    log: list[tuple[int, Record]] = leader.take_outbox()
    first = crc32(early) % SHARDS
    slices = [leader.export_slice(first)]
    meanwhile()
    log += leader.take_outbox()
    slices += [leader.export_slice(number) for number in range(SHARDS) if number != first]
    built = standby()
    built.load(leader.export_keyless(), slices)
    for n, record in log:
        if n > built.last_n:
            built.apply(n, record)
    built.check()
    return built


def test_15_a_place_given_away_between_two_slices_is_not_resolved_to_its_old_owner() -> None:
    """`old` is in its slice; then it is evicted, its space is given to `new`, `new` is removed, and has no slice."""
    leader = primary((8 * KIB,))
    put(leader, 1, b"old", 8 * KIB)

    def meanwhile() -> None:
        put(leader, 2, b"new", 8 * KIB)  # evicts `old`: no record of that
        assert leader.remove(3, T, b"new", False)[0] == Code.OK

    assert crc32(b"old") % SHARDS != crc32(b"new") % SHARDS
    built = _fuzzy(leader, b"old", meanwhile)
    assert built.lookup(T, b"new") is None
    assert built.lookup(T, b"old") is None, "P3: its bytes are those of `new`"


def test_15_an_object_that_is_moved_between_two_slices_is_not_lost() -> None:
    """Its slice has it at its old place, which rests in the last slice. Found by seed 146 of the replay."""
    leader = primary((8 * KIB, 8 * KIB))
    put(leader, 1, b"k", 8 * KIB)
    found = leader.get(2, T, b"k")
    assert found is not None
    here = found.replicas[0].segment.spec.name
    there = "seg2" if here == "seg1" else "seg1"
    assert leader.move_start(3, WRITER, T, b"k", here, there)[0] == Code.OK

    def meanwhile() -> None:
        assert leader.move_end(4, WRITER, T, b"k")[0] == Code.OK

    built = _fuzzy(leader, b"k", meanwhile)
    assert places(built, b"k") == places(leader, b"k")
    built.begin(0, 2)
    assert built.put_start(9_000, WRITER, T, b"new", 8 * KIB, PutConfig())[0] == Code.NO_SPACE  # the old place rests


def test_13_not_now_shows_what_is_being_written() -> None:
    """Refusing because of an upsert or a copy that is not durable shows it: if it is lost, it never was."""
    leader = primary((64 * KIB, 64 * KIB))
    put(leader, 0, b"k")
    put(leader, 0, b"c")
    leader.durable(leader.last_n)
    upsert_n = leader.upsert_start(1, WRITER, T, b"k", 4 * KIB, PutConfig())[2]
    assert leader.remove(2, T, b"k", True) == (Code.NOT_READY, upsert_n)
    assert leader.copy_start(2, OTHER, T, b"k", "", ["seg1", "seg2"]) == (Code.NOT_READY, None, upsert_n)
    found = leader.lookup(T, b"c")
    assert found is not None
    target = "seg2" if found.replicas[0].segment.spec.name == "seg1" else "seg1"
    code, _, copy_n = leader.copy_start(3, OTHER, T, b"c", "", [target])
    assert code == Code.OK
    assert leader.upsert_start(4, WRITER, T, b"c", 4 * KIB, PutConfig()) == (Code.NOT_READY, None, copy_n)
    assert leader.remove(4, T, b"c", True) == (Code.NOT_READY, copy_n)
