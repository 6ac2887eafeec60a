"""Adopted pools: what is taken of another master's listing, and when its objects may be used."""

from __future__ import annotations

import random

import pytest
from tests.index.kit import OTHER, STORAGE, WRITER, T, settings, spec

from leasehold.base.codes import ClientStatus
from leasehold.index import Code, Index, PutConfig, SegmentSpec
from leasehold.index import adoption as a
from leasehold.index.index import Index as WholeIndex
from leasehold.index.space.walk import QuarantineWalk

KIB = 1024
TERMS = a.Terms(lease_ms=10_000, put_release_ms=600_000)
OWN_LEASE_MS = 5_000


def listed(key: bytes, offset: int, size: int, segment: SegmentSpec | None = None) -> a.ListedObject:
    where = segment or spec()
    return a.ListedObject(T, key, (a.Place(where.endpoint, where.base + offset, size),))


def reported(used_bytes: int, segment: SegmentSpec | None = None) -> a.ReportedSegment:
    return a.ReportedSegment(segment or spec(), STORAGE, used_bytes)


def loaded(index: Index) -> Index:
    """The same state on another node, from a snapshot."""
    other = WholeIndex(settings(lease_ttl_ms=OWN_LEASE_MS), lambda choices: 0)
    other.load(index.export.keyless(QuarantineWalk(index.space)), [index.export.tables(0, objects_max=1 << 30)])
    other.log.begin_epoch(0)
    other.check()
    return other


def adopted(objects: list[a.ListedObject], used_bytes: int) -> Index:
    """A primary that began with an adopted pool."""
    index = WholeIndex(settings(lease_ttl_ms=OWN_LEASE_MS), lambda choices: 0)
    a.adopt(index, a.Plan([reported(used_bytes)], objects), TERMS)
    index = loaded(index)
    index.begin(0, 7, owners_unproven=True)
    index.check()
    return index


def remounted(objects: list[a.ListedObject], used_bytes: int) -> Index:
    index = adopted(objects, used_bytes)
    assert index.mounts.remount(1, STORAGE, [spec()]).code == Code.OK
    return index


def test_blocks_that_share_a_cache_line_keep_their_exact_place() -> None:
    chance, at = random.Random(1), 0
    objects: list[a.ListedObject] = []
    while at < 48 * KIB:
        size = chance.randint(1, 700)
        objects.append(listed(b"k%d" % len(objects), at, size))
        at += size + chance.choice((0, 0, 3, 64))
    index = remounted(objects, 0)
    for one in objects:
        found = index.reads.get(2, T, one.key)
        assert found is not None
        assert (found.replicas[0].address, found.size) == (one.places[0].address, one.places[0].size)
    assert loaded(index).digest() == index.digest()
    # Every byte of an object that is removed can be used again, and no other.
    for one in objects[::2]:
        assert index.removes.remove(3, T, one.key, True, WRITER).code == Code.OK
    for now_ms in range(4, 1_000_000, 5_000):
        index.owners.ping(now_ms, STORAGE)
        index.work(now_ms)
    assert index.space.quarantine.count == 0
    index.check()
    for number in range(40):
        index.puts.start(1_000_000, WRITER, T, b"new%d" % number, chance.randint(1, 900), PutConfig())
        index.check()


def test_an_upsert_in_place_does_not_reach_into_its_neighbour() -> None:
    """Both sizes round up to the same multiple of 64, but the neighbour begins in that line."""
    objects = [listed(b"a", 0, 65), listed(b"b", 65, 64 * KIB - 65)]
    index = remounted(objects, 64 * KIB)
    index.owners.ping(20_000, STORAGE)
    assert index.puts.start_upsert(20_000, WRITER, T, b"a", 70, PutConfig()).code != Code.OK or (
        index.reads.get(20_001, T, b"b") is None
    )
    index.check()


def test_aligned_pools_keep_our_alignment() -> None:
    plan = a.Plan([reported(0)], [listed(b"a", 0, 100), listed(b"b", 128, 70)])
    assert (plan.units, plan.unaligned, plan.shared_lines) == ([64], 0, 0)
    plan = a.Plan([reported(0)], [listed(b"a", 0, 100), listed(b"b", 112, 70)])
    assert (plan.units, plan.unaligned, plan.shared_lines) == ([16], 1, 1)


@pytest.mark.parametrize(
    ("more", "reason", "left"),
    [
        (listed(b"x", 50, 10), a.OVERLAPS, 1),
        (listed(b"a", 4096, 10), a.LISTED_TWICE, 2),
        (listed(b"x", 64 * KIB - 5, 10), a.BEYOND_SEGMENT, 2),
        (listed(b"x", 64 * KIB, 10), a.FOREIGN_MEMORY, 2),
        (listed(b"x", 0, 10, spec(2)), a.FOREIGN_MEMORY, 2),
        (listed(b"", 4096, 10), a.TOO_LARGE, 2),
        (a.ListedObject(T, b"x", ()), a.NO_MEMORY_REPLICA, 2),
    ],
)
def test_what_cannot_be_trusted_is_dropped_and_counted(more: a.ListedObject, reason: str, left: int) -> None:
    plan = a.Plan([reported(0)], [listed(b"a", 0, 100), listed(b"b", 100, 70), more])
    assert len(plan.objects) == left
    assert plan.dropped[reason] == 3 - left
    assert plan.examples[reason] in {b"a", b"x", b""}


def test_an_object_is_adopted_with_the_replicas_that_can_be() -> None:
    both = a.ListedObject(T, b"a", (*listed(b"", 0, 100).places, *listed(b"", 0, 100, spec(2)).places))
    plan = a.Plan([reported(0)], [both])
    assert len(plan.objects) == 1
    assert plan.dropped_replicas == {a.FOREIGN_MEMORY: 1}


def test_an_adopted_owner_must_mount_before_anyone_is_sent_there() -> None:
    index = adopted([listed(b"a", 0, 100)], 100)
    found = index.reads.get(1, T, b"a")
    assert found is not None
    assert index.owners.must_wait(found)
    assert index.owners.ping(1, STORAGE) == ClientStatus.NEED_REMOUNT
    assert index.owners.must_wait(found)
    assert index.mounts.remount(2, STORAGE, [spec()]).code == Code.OK
    assert not index.owners.must_wait(found)
    assert index.owners.ping(3, STORAGE) == ClientStatus.OK
    index.check()
    again = loaded(index)
    again.begin(0, 8)
    assert again.owners.ping(1, STORAGE) == ClientStatus.OK  # it is bound by a record, and no longer awaited


@pytest.mark.parametrize("same_client", [True, False])
def test_another_process_at_the_same_endpoint_gets_none_of_the_objects(same_client: bool) -> None:
    """The range, or the ids, differ from what the old master reported."""
    index = adopted([listed(b"a", 0, 100)], 100)
    mounted = spec(size=32 * KIB) if same_client else SegmentSpec(b"new", *_rest(spec()))
    client = STORAGE if same_client else OTHER
    assert index.mounts.remount(2, client, [mounted]).code == Code.OK
    assert index.reads.get(3, T, b"a") is None
    assert not index.owners.unproven
    index.check()
    # Readers of the old master may still read the memory of a live process; a new process has none, but late writers.
    assert index.space.quarantine.bytes == (32 * KIB if same_client else 64 * KIB - 128)


def test_a_segment_that_its_owner_no_longer_lends_is_ended() -> None:
    index = adopted([listed(b"a", 0, 100)], 100)
    assert index.mounts.remount(2, STORAGE, [spec(2)]).code == Code.OK
    assert index.reads.get(3, T, b"a") is None
    assert index.owners.ping(4, STORAGE) == ClientStatus.OK
    index.check()


def test_space_of_unfinished_puts_is_quarantined_for_the_old_release_time() -> None:
    for used_bytes, quarantine_ms in ((100, 10_000), (4096, 600_000)):
        index = remounted([listed(b"a", 0, 100)], used_bytes)
        for now_ms in range(1_000, quarantine_ms, 1_000):
            index.owners.ping(now_ms, STORAGE)
            index.work(now_ms)
        assert index.space.quarantine.bytes == 64 * KIB - 128
        index.work(quarantine_ms + 1)
        assert index.space.quarantine.bytes == 0


def test_the_grace_is_the_longer_term_of_both_masters() -> None:
    index = remounted([listed(b"a", 0, 100)], 100)
    assert index.removes.remove(9_000, T, b"a", False, WRITER).code == Code.HAS_LEASE
    index.owners.ping(9_000, STORAGE)
    assert index.removes.remove(10_001, T, b"a", False, WRITER).code == Code.OK


def test_a_lower_feature_level_ends_segments_that_it_could_not_hold() -> None:
    index = remounted([listed(b"a", 0, 100), listed(b"b", 100, 70)], 170)
    index.set_feature_level(5, 0)
    assert not index.space.segments
    assert index.owners.ping(6, STORAGE) == ClientStatus.NEED_REMOUNT
    assert index.mounts.remount(7, STORAGE, [spec()]).code == Code.OK
    assert loaded(index).space.total_bytes == 64 * KIB


def _rest(segment: SegmentSpec) -> tuple[str, int, int, str, str, str]:
    return segment.name, segment.base, segment.size, segment.endpoint, segment.protocol, segment.host_id
