"""Schedules that broke earlier drafts, about space: what rests, who owns a place, and which memory is whose."""

from __future__ import annotations

import pytest
from tests.index.kit import KIB, OTHER, STORAGE, WRITER, T, follow, pair, places, primary, put, spec, standby

from leasehold.index import Code, PutConfig
from leasehold.index.records import Extent, PutStart
from leasehold.index.state import Unappliable


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
