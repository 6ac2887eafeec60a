"""Schedules that broke earlier drafts, about space: quarantine, owners of places, owners of memory."""

from __future__ import annotations

import pytest
from tests.index.kit import KIB, OTHER, STORAGE, WRITER, T, follow, pair, places, primary, put, spec, standby

from leasehold.index import Code, PutConfig
from leasehold.index.errors import Unappliable
from leasehold.index.records import Extent, PutStart
from leasehold.index.replies import View


@pytest.mark.parametrize("leaving", ["remove", "remove_all", "upsert", "move"])
def test_8a_space_under_a_lease_is_quarantined_on_every_node(leaving: str) -> None:
    leader = primary((8 * KIB, 8 * KIB))
    follower = standby()
    entry = put(leader, 0, b"k", 8 * KIB)
    leader.reads.get(1_000, T, b"k")  # until 11,000
    before = [(r.segment.incarnation, r.offset) for r in entry.replicas]
    if leaving == "remove":
        assert leader.removes.remove(2_000, T, b"k", True).code == Code.OK
    elif leaving == "remove_all":
        removed = leader.removes.remove_all(2_000, T, True)
        assert (removed.code, removed.value) == (Code.OK, 1)
    elif leaving == "upsert":
        assert leader.puts.start_upsert(2_000, WRITER, T, b"k", 8 * KIB, PutConfig()).code == Code.OK
        assert leader.puts.end(2_000, WRITER, T, b"k").code == Code.OK
    else:
        target = "seg2" if entry.replicas[0].segment.spec.name == "seg1" else "seg1"
        assert leader.copies.move_start(2_000, WRITER, T, b"k", "", target).code == Code.OK
        assert leader.copies.move_end(2_000, WRITER, T, b"k").code == Code.OK
    follow(follower, leader)
    # The primary dies at an unknown time. Its successor does not hand out the place for a whole term.
    follower.begin(0, 2)
    for now_ms in (0, 5_000, 9_999):
        reply = follower.puts.start(now_ms, WRITER, T, b"new-%d" % now_ms, 8 * KIB, PutConfig())
        code, got = reply.code, reply.value
        assert code == Code.NO_SPACE or (got is not None and places(follower, got.key) != before)
    follower.work(10_000)
    assert not follower.space.quarantine.live()


def test_8b_an_upsert_is_never_in_place_under_a_lease() -> None:
    leader, follower = pair()
    put(leader, 0, b"k")
    leader.reads.get(1, T, b"k")
    before = places(leader, b"k")
    reply = leader.puts.start_upsert(2, WRITER, T, b"k", 4 * KIB, PutConfig())
    code, entry = reply.code, reply.value
    assert code == Code.OK
    assert entry is not None
    assert [(r.segment.incarnation, r.offset) for r in entry.replicas] != before
    assert leader.reads.get(3, T, b"k") is not None  # the old version is readable until the end
    assert leader.puts.end(3, WRITER, T, b"k").code == Code.OK
    assert places(leader, b"k") != before
    follow(follower, leader)
    leader.check()
    follower.check()
    assert leader.digest() == follower.digest()


def test_8b_in_place_only_where_space_is_short_and_no_lease_is_live() -> None:
    leader = primary((4 * KIB,))
    put(leader, 0, b"k", 4 * KIB)
    before = places(leader, b"k")
    leader.reads.get(1, T, b"k")
    assert leader.puts.start_upsert(2, WRITER, T, b"k", 4 * KIB, PutConfig()).code == Code.NO_SPACE
    reply = leader.puts.start_upsert(20_000, WRITER, T, b"k", 4 * KIB, PutConfig())
    code, entry = reply.code, reply.value
    assert code == Code.OK
    assert entry is not None
    assert [(r.segment.incarnation, r.offset) for r in entry.replicas] == before


def test_8c_the_space_of_a_replaced_put_is_quarantined_until_its_writer_has_given_up() -> None:
    leader, follower = primary((8 * KIB,)), standby()
    assert leader.puts.start(0, WRITER, T, b"k", 4 * KIB, PutConfig()).code == Code.OK
    first = places(leader, b"k")
    assert leader.puts.start(29_999, OTHER, T, b"k", 4 * KIB, PutConfig()).code == Code.EXISTS
    assert leader.puts.start(30_000, OTHER, T, b"k", 4 * KIB, PutConfig()).code == Code.OK
    follow(follower, leader)
    follower.begin(0, 2)
    follower.owners.ping(0, STORAGE)
    assert follower.puts.end(1, OTHER, T, b"k").code == Code.OK
    assert follower.puts.end(1, WRITER, T, b"k").code == Code.ILLEGAL_CLIENT
    assert places(follower, b"k") != first
    # Full: the old writer's place is quarantined for its remaining time again, whatever is evicted.
    assert follower.puts.start(569_000, OTHER, T, b"new", 8 * KIB, PutConfig()).code == Code.NO_SPACE
    assert follower.puts.start(570_000, OTHER, T, b"new", 8 * KIB, PutConfig()).code == Code.OK


def test_8d_memory_that_comes_back_after_a_false_death_starts_in_quarantine() -> None:
    leader = primary((8 * KIB,))
    put(leader, 0, b"read", 4 * KIB)
    assert leader.puts.start(1, WRITER, T, b"written", 4 * KIB, PutConfig()).code == Code.OK
    leader.reads.get(9_000, T, b"read")  # until 19,000
    leader.work(10_001)  # the client's pings were held up
    assert leader.catalog.object_count == 0
    assert leader.mounts.remount(10_002, STORAGE, [spec(1, size=8 * KIB)]).code == Code.OK
    assert leader.puts.start(19_000, WRITER, T, b"new", 4 * KIB, PutConfig()).code == Code.NO_SPACE
    leader.owners.ping(19_000, STORAGE)
    assert leader.puts.start(20_001, WRITER, T, b"new", 4 * KIB, PutConfig()).code == Code.OK
    # The other half belongs to a writer that may still be at work.
    assert leader.puts.start(20_001, WRITER, T, b"more", 4 * KIB, PutConfig()).code == Code.NO_SPACE
    leader.check()


def test_11_a_restarted_storage_process_supersedes_itself() -> None:
    leader, follower = pair()
    put(leader, 0, b"a")
    again = spec(7, base=0x1000_0000, endpoint="host1:1")
    assert leader.mounts.mount(1, OTHER, again).code == Code.OK
    assert leader.reads.get(2, T, b"a") is None
    assert leader.reads.miss(T, b"a") == View(Code.NOT_FOUND, leader.log.last_n)
    assert len(leader.space.segments) == 1
    put(leader, 3, b"b")
    follow(follower, leader)
    assert leader.digest() == follower.digest()


def test_h8_only_where_addresses_overlap_too() -> None:
    leader = primary()
    put(leader, 0, b"a")
    beside = spec(7, base=0x9000_0000, endpoint="host1:1")
    assert leader.mounts.mount(1, OTHER, beside).code == Code.OK
    assert len(leader.space.segments) == 2
    assert leader.reads.get(2, T, b"a") is not None


def test_11_an_extent_of_another_incarnation_does_not_fit() -> None:
    leader, follower = pair()
    put(leader, 0, b"a")
    (n, start), *_ = leader.log.take_outbox()
    assert isinstance(start, PutStart)
    follower.apply(n, start)
    wrong = PutStart(1, WRITER, T, b"b", 64, (Extent(999, 0),))
    with pytest.raises(Unappliable):
        follower.apply(n + 1, wrong)
