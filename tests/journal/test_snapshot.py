"""Snapshots as files: both versions, on the way over a state that goes on."""

from __future__ import annotations

import pytest

from leasehold.index.index import Index
from leasehold.index.model import PutConfig, SegmentSpec
from leasehold.index.records import Record
from leasehold.index.settings import IndexSettings
from leasehold.journal.snapshot import SLICES, SnapshotTaker, UnreadableSnapshot, load_snapshot

CLIENT, TENANT = b"writer", b"default"


def index_with(count: int) -> Index:
    index = Index(IndexSettings(), lambda choices: 0)
    index.begin(0, 5)
    index.mount(0, b"storage", SegmentSpec(b"s" * 16, "s", 1 << 40, 1 << 24, "h:1", "tcp"))
    put(index, range(count))
    return index


def put(index: Index, numbers: range) -> None:
    for number in numbers:
        index.put_start(1, CLIENT, TENANT, b"key-%d" % number, 64, PutConfig())
        index.put_end(1, CLIENT, TENANT, b"key-%d" % number)


def replayed(raw: bytes, records: list[tuple[int, Record]]) -> Index:
    loaded = load_snapshot(raw, "c")
    index = Index(IndexSettings(), lambda choices: 0)
    index.load(loaded.keyless, loaded.slices)
    for n, record in records:
        if n > index.last_n:
            index.apply(n, record)
    index.check()
    return index


@pytest.mark.parametrize("version", [1, 2])
def test_a_snapshot_of_either_version_and_the_records_since_give_the_same_state(version: int) -> None:
    """A neighbouring release writes, and is given, version 1."""
    leader = index_with(500)
    taker, parts, step = SnapshotTaker(leader, "c", version), [], 0
    while not taker.sliced:
        parts.append(taker.slices(SLICES[version] // 16))
        leader.remove(2, TENANT, b"key-%d" % (step * 7), True)
        put(leader, range(1_000 + step, 1_001 + step))
        step += 1
    leader.remove_by_regex(3, TENANT, b"key-4.$", True)
    parts.append(taker.keyless())
    put(leader, range(2_000, 2_020))
    follower = replayed(b"".join(parts), leader.take_outbox())
    assert follower.digest() == leader.digest()
    assert follower.object_count == leader.object_count


def test_a_snapshot_of_a_version_to_come_is_refused_by_name() -> None:
    leader = index_with(3)
    taker = SnapshotTaker(leader, "c", 1)
    raw = taker.slices(256) + taker.keyless()
    with pytest.raises(UnreadableSnapshot, match="cluster 'c', version 1"):
        load_snapshot(raw, "another")
    with pytest.raises(UnreadableSnapshot, match="not complete"):
        load_snapshot(taker_without_its_end(leader), "c")
    with pytest.raises(UnreadableSnapshot):
        load_snapshot(b"", "c")


def taker_without_its_end(index: Index) -> bytes:
    return SnapshotTaker(index, "c", 2).slices(1_024)


@pytest.mark.parametrize(("objects", "at_least", "at_most"), [(10, 16, 16), (40_000, 70, 90)])
def test_a_step_is_bounded_by_objects_and_not_by_slices_alone(objects: int, at_least: int, at_most: int) -> None:
    """Slice by slice a small index took as many steps as a large one: the floor followed seconds late."""
    taker, steps = SnapshotTaker(index_with(objects), "c", 2), 0
    while not taker.sliced:
        taker.slices(64)
        steps += 1
    assert at_least <= steps <= at_most
