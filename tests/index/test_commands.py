"""Commands that the model does not cover: pins, groups, strategies, drains, tasks, repeats, bounds."""

from __future__ import annotations

from random import Random

import pytest
from tests.index.kit import KIB, STORAGE, WRITER, T, follow, primary, put, spec, standby

from leasehold.base.codes import ClientStatus, SoftPin, TaskStatus
from leasehold.index import Code, PutConfig, tasks
from leasehold.index.patterns import BadPattern, compile_pattern
from leasehold.index.replies import Answered
from leasehold.index.space.allocator import Allocator, rounded

OTHER = b"another-client-1"


class Block:
    def __init__(self, size: int) -> None:
        self.size = size


def test_allocator_against_a_map_of_bytes() -> None:
    random = Random(5)
    space: Allocator[Block] = Allocator(1 << 16)
    owned = [0] * (1 << 10)  # one for each 64 bytes
    blocks: dict[int, Block] = {}
    for number in range(1, 20_001):
        if random.random() < 0.55:
            block = Block(random.choice((1, 64, 65, 500, 1000, 4096, random.randrange(1, 9000))))
            offset = space.find(block.size)
            if offset < 0:
                continue
            if random.random() < 0.2:  # a claim of any free place, as on a standby
                start = random.randrange(0, (1 << 16) - rounded(block.size), 64)
                if not space.in_the_way(start, block.size):
                    offset = start
            cells = range(offset // 64, (offset + rounded(block.size)) // 64)
            assert not any(owned[cell] for cell in cells), "P3"
            space.claim(offset, block)
            for cell in cells:
                owned[cell] = number
            blocks[offset] = block
        elif blocks:
            offset = random.choice(list(blocks))
            for cell in range(offset // 64, (offset + rounded(blocks.pop(offset).size)) // 64):
                owned[cell] = 0
            space.release(offset)
        if number % 200 == 0:
            space.check()
        start, size = random.randrange(0, 1 << 15, 64), random.randrange(1, 9000)
        there = {owned[cell] for cell in range(start // 64, (start + rounded(size)) // 64)} - {0}
        assert len(space.in_the_way(start, size)) == len(there)


def test_equal_sizes_leave_no_hole_unused() -> None:
    """Free blocks of just the wanted size are found, though they are in the class below."""
    space: Allocator[Block] = Allocator(64 * 1000 * 17)
    places = []
    while (offset := space.find(1000 * 17)) >= 0:
        space.claim(offset, Block(1000 * 17))
        places.append(offset)
    full = space.used_bytes
    for offset in places[::2]:
        space.release(offset)
    while (offset := space.find(1000 * 17)) >= 0:
        space.claim(offset, Block(1000 * 17))
    assert space.used_bytes == full


def test_soft_pins_go_last_and_hard_pins_never() -> None:
    index = primary((16 * KIB,))
    put(index, 0, b"hard", config=PutConfig(hard_pin=True))
    put(index, 1, b"soft", config=PutConfig(soft_pin=SoftPin.ENABLE))
    put(index, 2, b"plain")
    put(index, 3, b"later")
    put(index, 1_000, b"n1")
    assert index.catalog.lookup(T, b"plain") is None
    put(index, 2_000, b"n2")
    assert index.catalog.lookup(T, b"later") is None
    assert index.catalog.lookup(T, b"soft") is not None
    for key in (b"n1", b"n2"):
        index.reads.get(2_000, T, key)
    put(index, 2_001, b"n3")
    assert index.catalog.lookup(T, b"soft") is None
    assert index.catalog.lookup(T, b"hard") is not None
    kept = primary((8 * KIB,), allow_evict_soft_pinned=False)
    put(kept, 0, b"soft", 8 * KIB, PutConfig(soft_pin=SoftPin.ENABLE, soft_pin_ttl_ms=5_000))
    assert kept.puts.start(4_999, WRITER, T, b"new", 64, PutConfig()).code == Code.NO_SPACE
    assert kept.puts.start(5_300, WRITER, T, b"new", 64, PutConfig()).code == Code.OK


def test_a_group_shares_its_lease_and_goes_together() -> None:
    index = primary((16 * KIB,))
    grouped = PutConfig(group=b"g")
    for number, key in enumerate((b"a", b"b")):
        put(index, number, key, config=grouped)
    put(index, 2, b"c")
    index.reads.get(100, T, b"a")
    assert index.removes.remove(5_000, T, b"b", False).code == Code.HAS_LEASE
    put(index, 10_200, b"d")
    put(index, 10_300, b"e", 8 * KIB)
    gone = [key for key in (b"a", b"b") if index.catalog.lookup(T, key) is None]
    assert gone in ([], [b"a", b"b"])
    assert gone or index.catalog.lookup(T, b"c") is None


def test_one_look_at_a_time_when_everything_was_read() -> None:
    """A million objects read meanwhile must not be one long pause: work is bounded by looks, not by evictions."""
    index = primary((2_000 * 64,), eviction_high_watermark=0.5)
    for number in range(1_500):
        put(index, 0, b"k%d" % number, 64)
    for number in range(1_500):
        index.reads.get(1_000, T, b"k%d" % number)
    assert index.work(2_000, 10)
    assert index.eviction.evicted_count == 0
    assert len(index.catalog.wheel.ripe) == 256 - 10


def test_a_repeated_start_gets_the_same_space() -> None:
    index = primary()
    first = index.puts.start(0, WRITER, T, b"k", 100, PutConfig(), request=7)
    assert index.puts.start(1, WRITER, T, b"k", 100, PutConfig(), request=7) == first
    assert index.puts.start(1, WRITER, T, b"k", 100, PutConfig(), request=8).code == Code.EXISTS
    assert index.puts.start(1, OTHER, T, b"k", 100, PutConfig(), request=7).code == Code.EXISTS


def test_exist_need_not_lease() -> None:
    index = primary(exist_leases=False)
    put(index, 0, b"k")
    assert index.reads.exist(1, T, b"k") is not None
    assert index.reads.exist_many(1, T, [b"k"], 1, 0).value == [1]
    assert index.removes.remove(2, T, b"k", False).code == Code.OK


def test_expiry_gives_the_first_lease_at_the_end_of_a_put() -> None:
    index = primary(eviction_policy="expiry")
    put(index, 0, b"k")
    assert index.removes.remove(9_999, T, b"k", False).code == Code.HAS_LEASE
    assert index.reads.exist(9_999, T, b"k") is not None  # until 19,999
    assert index.reads.get(19_999, T, b"k") is None
    assert index.reads.miss(T, b"k").value == Code.NOT_FOUND
    put(index, 20_000, b"k")  # the name is free


@pytest.mark.parametrize("allocation", ["random", "free-ratio-first"])
def test_replicas_are_on_different_segments_preferred_ones_first(allocation: str) -> None:
    index = primary((64 * KIB,) * 4, allocation=allocation)
    three = put(index, 0, b"three", config=PutConfig(replicas=3))
    assert len({replica.segment.spec.name for replica in three.replicas}) == 3
    for number in range(5):
        wanted = put(index, 0, b"there-%d" % number, config=PutConfig(preferred_segments=("seg3",)))
        assert [replica.segment.spec.name for replica in wanted.replicas] == ["seg3"]
    many = put(index, 0, b"many", config=PutConfig(replicas=9))
    assert len(many.replicas) == 4  # best effort
    index.check()


def test_space_only_to_those_who_speak_its_protocol() -> None:
    index = primary()
    assert index.puts.start(0, WRITER, T, b"ours", 64, PutConfig(native=True)).code == Code.NO_SPACE
    index.mounts.mount(0, OTHER, spec(5, protocol="leasehold"))
    entry = put(index, 0, b"ours", config=PutConfig(native=True, replicas=2))
    assert [replica.segment.spec.protocol for replica in entry.replicas] == ["leasehold"]
    entry = put(index, 0, b"theirs", config=PutConfig(replicas=2))
    assert [replica.segment.spec.protocol for replica in entry.replicas] == ["tcp"]


def test_a_client_is_alive_from_its_mount_and_while_it_pings() -> None:
    index = primary()
    put(index, 0, b"k")
    for second in range(11):  # a master that runs: its own stalls do not count against a client
        index.work(second * 1_000)
    assert index.catalog.lookup(T, b"k") is not None
    index.owners.ping(10_000, STORAGE)
    for second in range(11, 21):
        index.work(second * 1_000)
    assert index.catalog.lookup(T, b"k") is not None
    index.work(20_101)
    assert index.catalog.lookup(T, b"k") is None
    assert index.owners.ping(20_102, STORAGE) == ClientStatus.NEED_REMOUNT
    assert index.mounts.remount(20_103, STORAGE, [spec(1)]).code == Code.OK
    assert index.owners.ping(20_104, STORAGE) == ClientStatus.OK


def test_a_draining_segment_takes_nothing_new_and_ends_in_time() -> None:
    index, follower = primary((64 * KIB, 64 * KIB)), standby()
    assert index.mounts.drain(0, STORAGE, spec(1).id, 5_000).code == Code.OK
    for number in range(4):
        entry = put(index, 1, b"k%d" % number)
        assert entry.replicas[0].segment.spec.name == "seg2"
    index.owners.ping(5_000, STORAGE)
    index.work(5_000)
    assert [segment.spec.name for segment in index.space.segments.values()] == ["seg2"]
    follow(follower, index)
    assert follower.digest() == index.digest()


def test_tasks_from_creation_to_end_on_every_node() -> None:
    index, follower = primary((64 * KIB, 64 * KIB)), standby()
    entry = put(index, 0, b"k")
    here = entry.replicas[0].segment.spec.name
    there = "seg2" if here == "seg1" else "seg1"
    reply = index.tasks.create_copy(1, T, b"k", [there])
    code, task = reply.code, reply.value
    assert code == Code.OK
    (fetched,) = index.tasks.fetch(2, STORAGE, 16).value
    assert (fetched.id, fetched.source, fetched.targets) == (task, here, (there,))
    assert index.tasks.fetch(2, STORAGE, 16).value == []
    copying = index.copies.copy_start(3, STORAGE, T, b"k", here, [there])
    assert copying.code == Code.OK
    assert copying.value is not None
    assert len(entry.replicas) == 1
    assert index.copies.copy_end(4, STORAGE, T, b"k").code == Code.OK
    assert len(entry.replicas) == 2
    assert index.tasks.finish(5, STORAGE, task, TaskStatus.SUCCESS, "done").code == Code.OK
    follow(follower, index)
    known = follower.tasks.query(task).value
    assert known is not None
    assert (known.status, known.message) == (TaskStatus.SUCCESS, "done")
    assert index.tasks.create_copy(6, T, b"absent", [there]).code == Code.NOT_FOUND
    assert index.tasks.create_move(6, T, b"k", here, "nowhere").code == Code.BAD_PARAMS
    assert index.tasks.query(b"?" * 16).code == Code.TASK_NOT_FOUND


def test_tenants_do_not_see_each_other() -> None:
    index = primary()
    put(index, 0, b"k")
    assert index.reads.get(1, b"other", b"k") is None
    assert index.removes.remove_all(20_000, b"other", True).value == 0
    assert index.catalog.lookup(T, b"k") is not None


def test_bad_patterns_are_refused_with_their_position() -> None:
    for pattern, position in ((b"abc[", 3), (b"a**", 1), (b"x{3,2}", 1), (rb"(?=look)", 0), (rb"(a)\1", 3)):
        with pytest.raises(BadPattern) as refused:
            compile_pattern(pattern)
        assert refused.value.position == position, (pattern, str(refused.value))
    index = primary()
    assert index.removes.remove_by_regex(0, T, b"[", False) == Answered(Code.BAD_PARAMS, 0, 0)
    assert index.log.refused == {"bad pattern": 1}


def test_no_pattern_can_stall() -> None:
    index = primary()
    put(index, 0, b"a" * 5_000)
    reply = index.removes.remove_by_regex(20_000, T, b"(a*)*(a*)*(a*)*b", False)
    assert (reply.code, reply.value) == (Code.OK, 0)


def test_eviction_takes_the_oldest_end_first() -> None:
    index = primary((4 * 4 * KIB,))
    for number, key in enumerate((b"a", b"b", b"c", b"d")):
        put(index, number, key)
    index.reads.get(1_000, T, b"a")
    index.owners.ping(29_999, STORAGE)
    index.eviction.start_round(4 * KIB)
    while index.work(30_000, 1):
        pass
    assert [key for key in (b"a", b"b", b"c", b"d") if index.catalog.lookup(T, key) is not None] == [b"a"]


def test_urgent_when_the_standby_knows_an_end_that_is_near() -> None:
    index = primary()
    entry = put(index, 0, b"k")
    index.reads.get(1, T, b"k")
    index.take_renewals(10)
    index.reads.get(5_000, T, b"k")
    assert not index.renewals.urgent
    index.take_renewals(10)
    index.reads.get(14_100, T, b"k")  # it knows 15,000
    assert index.renewals.urgent
    assert index.take_renewals(10)[0] == [(T, b"k", entry.put_seq, 24_100, 0)]
    assert not index.renewals.urgent


def test_how_near_is_urgent_is_a_setting() -> None:
    index = primary(urgent_left_ms=500)
    put(index, 0, b"k")
    index.reads.get(1, T, b"k")
    index.take_renewals(10)
    index.reads.get(9_100, T, b"k")  # it knows 10,001: 901 ms left
    assert not index.renewals.urgent


def test_tasks_that_are_not_carried_out_end_in_time_and_are_forgotten_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A standby never forgot one, and those of a dead client stayed until no more could be created (P6)."""
    monkeypatch.setattr(tasks, "tasks_max", 4)
    index, follower = primary((64 * KIB, 64 * KIB)), standby()
    here = put(index, 1, b"k").replicas[0].segment.spec.name
    there = "seg2" if here == "seg1" else "seg1"
    made = [index.tasks.create_copy(1, T, b"k", [there]).value for _ in range(4)]
    assert index.tasks.create_copy(1, T, b"k", [there]).code == Code.INTERNAL
    (fetched,) = index.tasks.fetch(200_000, STORAGE, 1).value
    assert fetched.id == made[0]
    index.owners.clients[STORAGE].seen = 10**9
    index.work(300_002)
    assert [index.task_table.all[task].status for task in made] == [TaskStatus.PROCESSING] + [TaskStatus.FAILED] * 3
    assert index.task_table.all[made[1]].message == "not fetched in time"
    index.work(500_001)
    assert (index.task_table.all[made[0]].status, index.task_table.all[made[0]].message) == (
        TaskStatus.FAILED,
        "not done in time",
    )
    reply = index.tasks.create_copy(500_001, T, b"k", [there])
    code, last = reply.code, reply.value
    assert code == Code.OK
    follow(follower, index)
    assert list(index.task_table.all) == list(follower.task_table.all) == [last]
    assert list(index.task_table.open[STORAGE]) == list(follower.task_table.open[STORAGE]) == [last]


def test_one_fetch_of_tasks_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "tasks_fetched_max", 2)
    index = primary((64 * KIB, 64 * KIB))
    here = put(index, 1, b"k").replicas[0].segment.spec.name
    for _ in range(3):
        index.tasks.create_copy(1, T, b"k", ["seg2" if here == "seg1" else "seg1"])
    assert [len(index.tasks.fetch(2, STORAGE, 1 << 63).value) for _ in range(3)] == [2, 1, 0]
