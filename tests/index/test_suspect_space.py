"""Objects that one node has and another lacks, when these nodes lead one after the other.

An eviction has no record. So a new leader may rightly serve, under a lease, an object that its predecessor evicted. A
node that has evicted it, or has applied the hint, or was built from a snapshot without it, treats its space as free.
"""

from __future__ import annotations

from tests.index.kit import KIB, STORAGE, WRITER, T, all_slices, flush, follow, primary, put, spec, standby

from leasehold.index import Code, Index, PutConfig
from leasehold.index.replies import View


def _evict(index: Index, key: bytes) -> None:
    entry = index.catalog.lookup(T, key)
    assert entry is not None
    index.eviction.evict(entry)


def _served_by_a_successor() -> tuple[Index, Index]:
    """The first leader has evicted `k` (its hint is lost) and handed over; the second serves `k` under a lease."""
    first, second = primary((8 * KIB,)), standby()
    put(first, 0, b"k", 8 * KIB)
    follow(second, first)
    _evict(first, b"k")
    first.handover(100, 0)
    follow(second, first)
    second.begin(0, 2, handover_ms=100, drift_ms=5)
    follow(first, second)
    assert second.reads.get(10, T, b"k") is not None  # until 10,010, not flushed
    return first, second


def test_space_of_an_object_that_a_node_lacks_is_quarantined_when_it_leads_next() -> None:
    first, _ = _served_by_a_successor()
    first.begin(0, 3)  # the second has died: the first leads again
    assert first.puts.start(9_900, WRITER, T, b"new", 8 * KIB, PutConfig()).code == Code.NO_SPACE
    first.check()
    assert first.puts.start(10_000, WRITER, T, b"new", 8 * KIB, PutConfig()).code == Code.OK
    first.check()


def test_space_that_was_quarantined_as_suspect_is_suspect_again_under_the_next_leader() -> None:
    """It is not free when the next leader begins, only when its quarantine expires: it was treated as certain then."""
    first, second = _served_by_a_successor()
    first.begin(0, 3)
    first.handover(100, 0)
    follow(second, first)
    assert second.catalog.lookup(T, b"k") is not None, "it follows, and does not learn of another node's quarantine"
    second.begin(0, 4, handover_ms=100, drift_ms=5)
    follow(first, second)
    while first.observe(20_000):
        pass
    assert first.space.quarantine.totals() == (0, 0)
    assert second.reads.get(20_000, T, b"k") is not None  # until 30,000, not flushed
    first.begin(0, 5)  # the second has died again
    assert first.puts.start(9_900, WRITER, T, b"new", 8 * KIB, PutConfig()).code == Code.NO_SPACE
    first.check()
    assert first.puts.start(10_000, WRITER, T, b"new", 8 * KIB, PutConfig()).code == Code.OK


def test_space_that_is_suspect_for_two_reasons_is_quarantined_once() -> None:
    """Free when the leader began, and in quarantine in its snapshot. Found by seed 71 of the simulation."""
    first, _ = _served_by_a_successor()
    (((start, end),),) = first.space.suspect.values()
    first.space.suspect = {
        number: [(start, end), (start + 4 * KIB, end), (start, 4 * KIB)] for number in first.space.suspect
    }
    first.begin(0, 3)
    while first.work(0):
        first.check()
    assert first.space.quarantine.totals()[1] == 8 * KIB
    first.check()


def _fragmented() -> tuple[Index, int]:
    """A node that leads next, with 50 free places in one segment, each of them suspect; and their bytes."""
    first, second = primary((400 * KIB,)), standby()
    for number in range(100):
        put(first, 0, b"k%02d" % number)
    for number in range(0, 100, 2):
        _evict(first, b"k%02d" % number)
    follow(second, first)
    first.handover(100, 0)
    follow(second, first)
    second.begin(0, 2, handover_ms=100, drift_ms=5)
    follow(first, second)
    return first, 50 * 4 * KIB


def test_suspect_space_is_settled_between_requests_a_few_stretches_at_a_time() -> None:
    first, suspect_bytes = _fragmented()
    first.begin(0, 3)
    assert first.space.quarantine.totals() == (0, 0), "an epoch begins without going through them"
    steps = 1
    while first.work(1, budget=7):
        steps += 1
        first.check()
    assert steps >= 50 // 7
    assert first.space.quarantine.totals() == (50, suspect_bytes)
    assert first.puts.start(9_999, WRITER, T, b"new", 4 * KIB, PutConfig()).code == Code.NO_SPACE
    assert first.puts.start(10_000, WRITER, T, b"new", 4 * KIB, PutConfig()).code == Code.OK
    first.check()


def test_suspect_space_that_is_not_settled_by_the_end_of_the_grace_is_free() -> None:
    first, _ = _fragmented()
    first.begin(0, 3)
    while first.work(10_000, budget=7):
        first.check()
    assert first.space.quarantine.totals() == (0, 0)
    put(first, 10_000, b"new")


def test_a_snapshot_has_the_suspect_space_that_its_leader_has_not_settled() -> None:
    first, _ = _fragmented()
    first.begin(0, 3)
    assert first.work(1, budget=7)
    built = _after_a_snapshot(first)
    built.begin(0, 4)
    assert built.puts.start(9_900, WRITER, T, b"new", 4 * KIB, PutConfig()).code == Code.NO_SPACE
    while built.work(9_900):
        built.check()
    built.check()
    assert built.space.quarantine.totals()[0] == 50
    put(built, 10_000, b"new")


def test_a_snapshot_has_the_suspect_space() -> None:
    first, second = _served_by_a_successor()
    for source in (first, _after_a_snapshot(first)):
        built = _after_a_snapshot(source)
        built.begin(0, 3)
        assert built.puts.start(9_900, WRITER, T, b"new", 8 * KIB, PutConfig()).code == Code.NO_SPACE
    assert second.catalog.lookup(T, b"k") is not None


def test_hints_are_sent_soon_when_half_of_the_free_space_would_look_used_to_a_standby() -> None:
    """Once a second was too slow: a small pool turned over, and its successor had no space for puts."""
    index = primary((64 * KIB,))
    for number in range(8):
        put(index, 0, b"k%d" % number, 4 * KIB)
    for number in range(4):  # 32 KiB are free, and 16 more will be
        assert not index.renewals.urgent
        _evict(index, b"k%d" % number)
    assert not index.renewals.urgent
    for number in range(4, 8):
        _evict(index, b"k%d" % number)
    assert not index.renewals.urgent, "32 of 64 KiB: not more than half"
    put(index, 0, b"again", 4 * KIB)
    _evict(index, b"again")
    assert index.renewals.urgent
    index.take_renewals(10)
    assert not index.renewals.urgent


def test_space_that_the_present_leader_evicted_or_never_used_is_free_immediately() -> None:
    first, second = primary((16 * KIB,)), standby()
    put(first, 0, b"k", 8 * KIB)
    follow(second, first)
    _evict(first, b"k")
    flush(first, second, 100)  # the hint has arrived: the leader of this epoch evicted it
    second.begin(0, 2)
    put(second, 1, b"new", 8 * KIB)
    put(second, 1, b"unused", 8 * KIB)


def test_a_hand_over_leaves_only_space_within_a_grace_suspect() -> None:
    first, second = _served_by_a_successor()
    second.handover(20_000, 1)
    follow(first, second)
    first.begin(0, 3, handover_ms=20_000, drift_ms=5)  # it has every renewal, and none that it did not know
    put(first, 1, b"new", 8 * KIB)


def _after_a_snapshot(index: Index) -> Index:
    fresh = standby()
    fresh.load(index.export.keyless(), all_slices(index))
    return fresh


def test_a_renewal_counts_on_a_node_that_has_seen_more_of_the_old_epoch() -> None:
    """A leader that had missed an hour of unlogged batches begins; another node knows lease ends of that hour."""
    first, informed, behind = primary(), standby(), standby()
    put(first, 0, b"a")
    for n, record in first.log.take_outbox():
        informed.apply(n, record)
        behind.apply(n, record)
    first.log.durable(first.log.last_n)
    first.reads.get(3_600_000, T, b"a")
    flush(first, informed, 3_600_000)
    behind.begin(0, 2)
    follow(informed, behind)
    assert behind.reads.get(100_000, T, b"a") is not None  # until 110,000
    flush(behind, informed, 100_100)
    behind.handover(101_000, 1)
    follow(informed, behind)
    informed.begin(0, 3, handover_ms=101_000, drift_ms=5)
    assert informed.removes.remove(8_000, T, b"a", False).code == Code.HAS_LEASE
    assert informed.removes.remove(9_100, T, b"a", False).code == Code.OK


def test_memory_that_is_unmounted_and_mounted_again_is_quarantined_while_a_lease_may_be_live() -> None:
    leader = primary((8 * KIB,))
    put(leader, 0, b"k", 8 * KIB)
    assert leader.reads.get(100, T, b"k") is not None
    leader.mounts.unmount(200, STORAGE, spec(1).id)
    assert leader.mounts.mount(300, STORAGE, spec(1, size=8 * KIB)).code == Code.OK
    assert leader.puts.start(9_000, WRITER, T, b"new", 8 * KIB, PutConfig()).code == Code.NO_SPACE
    assert leader.puts.start(10_201, WRITER, T, b"new", 8 * KIB, PutConfig()).code == Code.OK


def test_13_a_batch_that_misses_an_expired_object_waits_for_its_record_too() -> None:
    """Policy `expiry`, a store that is slower than a lease is long: the version before was there until that record."""
    leader = primary(eviction_policy="expiry", lease_ttl_ms=1_000)
    put(leader, 0, b"k")
    leader.log.durable(leader.log.last_n)
    assert leader.puts.start_upsert(10, WRITER, T, b"k", 4 * KIB, PutConfig()).code == Code.OK
    assert leader.puts.end(20, WRITER, T, b"k").code == Code.OK
    undurable_n = leader.log.last_n
    assert leader.reads.get_many(1_500, T, [b"k"]) == View([None], undurable_n)
    assert leader.reads.exist_many(1_500, T, [b"k"], 1, 0) == View([0], undurable_n)
