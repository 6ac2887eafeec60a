"""A snapshot is loaded part by part, in any order, with the same result."""

from __future__ import annotations

from itertools import combinations
from random import Random
from zlib import crc32

import pytest
from tests.index.kit import KIB, STORAGE, WRITER, T, pair, primary, put, spec, standby

from leasehold.base.limits import snapshot_step_objects
from leasehold.index import Code, Index
from leasehold.index.model import COMPLETE
from leasehold.index.snapshot_format import SavedObject, SavedReplica, Slice
from leasehold.index.tables import TABLES

_UNIT = 64
_HALF = TABLES // 2


def saved(number: int, n: int, first: int, beyond: int, incarnation: int) -> SavedObject:
    """A finished object of record `n` on the units from `first` up to `beyond`."""
    replica = SavedReplica(n << 4, incarnation, first * _UNIT, COMPLETE)
    size = (beyond - first) * _UNIT
    return SavedObject(T, b"key-%d" % number, n, n, size, (replica,), WRITER, 5, 0, False, b"", None, 0)


def halves(objects: list[SavedObject], n: int) -> list[Slice]:
    """Two slices with these objects."""
    low = tuple(one for one in objects if crc32(one.key) & 16383 < _HALF)
    high = tuple(one for one in objects if one not in low)
    return [Slice(0, _HALF, 1, n, low, ()), Slice(_HALF, _HALF, 1, n, high, ())]


@pytest.mark.parametrize("seed", range(200))
def test_a_claim_is_valid_if_no_newer_one_overlaps_it_in_whatever_order_they_are_met(seed: int) -> None:
    """Also not one that is void itself: it was there, so whatever is older had left by then (P3)."""
    random, leader = Random(seed), primary()
    keyless, last_n = leader.export.keyless(), leader.log.last_n
    (incarnation,) = (segment.incarnation for segment in leader.space.segments.values())
    spans = {}
    for number in range(random.randrange(2, 12)):
        first = random.randrange(40)
        spans[number] = first, first + random.randrange(1, 8)
    order = random.sample(sorted(spans), len(spans))  # the age of each
    # Every record of the objects precedes the snapshot.
    numbers = {number: place - 100 for place, number in enumerate(order)}
    objects = [saved(number, numbers[number], *spans[number], incarnation) for number in spans]
    random.shuffle(objects)
    slices = halves(objects, last_n)
    random.shuffle(slices)
    fresh = standby()
    fresh.load(keyless, slices)
    wanted = set(spans)
    for one, other in combinations(spans, 2):
        if spans[one][0] < spans[other][1] and spans[other][0] < spans[one][1]:
            wanted.discard(min(one, other, key=lambda number: numbers[number]))
    assert {entry.key for entry in fresh.catalog.objects()} == {b"key-%d" % number for number in wanted}
    fresh.space.check()


def test_no_step_loads_more_than_its_share() -> None:
    """A slice is a whole number of tables, and with ten million objects a table has six hundred."""
    leader = primary((4_096 * KIB,))
    count = 3 * snapshot_step_objects
    for number in range(count):
        put(leader, 0, b"key-%d" % number, 64)
    keyless = leader.export.keyless()
    (whole,) = [leader.export.tables(0, objects_max=10 * count)]
    assert len(whole.objects) == count
    fresh = standby()
    counts = [fresh.catalog.object_count for _ in fresh.loading(keyless, [whole])]
    grown = [after - before for before, after in zip([0, *counts], counts, strict=False)]
    assert max(grown) <= snapshot_step_objects
    assert sum(grown) == count
    assert fresh.digest() == leader.digest()


def evicted_everywhere(count: int) -> tuple[Index, Index]:
    """A leader, and a standby with `count` free stretches in a segment from which it has evicted."""
    leader, follower = pair()
    size = 64
    assert leader.mounts.mount(0, STORAGE, spec(7, size=4 * count * size)).code == Code.OK
    keys = [b"k-%d" % number for number in range(2 * count)]
    for key in keys:
        put(leader, 0, key, size)
    for n, record in leader.log.take_outbox():
        follower.apply(n, record)
    for key in keys[::2]:
        entry = follower.catalog.lookup(T, key)
        assert entry is not None
        follower.eviction.evict(entry)
    return leader, follower


def test_free_space_becomes_suspect_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold.index.apply._STEP_STRETCHES", 50)
    leader, follower = evicted_everywhere(400)
    leader.begin(0, 2)
    ((n, record),) = leader.log.take_outbox()
    follower.apply(n, record)
    steps = []
    while follower.finish_some():
        steps.append(sum(len(stretches) for stretches in follower.space.suspect.values()))
    assert len(steps) >= 3
    assert max(after - before for before, after in zip([50, *steps], steps, strict=False)) <= 50
    whole = {
        segment.incarnation: [(start, start + length) for start, length in segment.allocator.free_blocks()]
        for segment in follower.space.segments.values()
        if segment.evicted
    }
    assert follower.space.suspect == whole


def test_the_next_record_waits_for_the_work_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold.index.apply._STEP_STRETCHES", 50)
    leader, follower = evicted_everywhere(400)
    leader.begin(0, 2)
    put(leader, 1, b"new", 64)
    for n, record in leader.log.take_outbox():
        follower.apply(n, record)
    assert sum(len(stretches) for stretches in follower.space.suspect.values()) > 200
    assert not follower.finish_some()
    follower.check()
