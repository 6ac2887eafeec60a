"""Snapshot files: slices of a state that keeps changing."""

from __future__ import annotations

import pytest

from leasehold.index.index import Index
from leasehold.index.model import PutConfig, SegmentSpec
from leasehold.index.records import Record
from leasehold.index.settings import IndexSettings
from leasehold.index.snapshot_format import Slice
from leasehold.index.snapshot_load import BadSnapshot
from leasehold.index.tables import TABLES
from leasehold.journal.snapshot_file import SnapshotTaker, UnreadableSnapshot, load_snapshot

CLIENT, TENANT = b"writer", b"default"


def index_with(count: int) -> Index:
    index = Index(IndexSettings(), lambda choices: 0)
    index.begin(0, 5)
    index.mounts.mount(0, b"storage", SegmentSpec(b"s" * 16, "s", 1 << 40, 1 << 24, "h:1", "tcp"))
    put(index, range(count))
    return index


def put(index: Index, numbers: range) -> None:
    for number in numbers:
        index.puts.start(1, CLIENT, TENANT, b"key-%d" % number, 64, PutConfig())
        index.puts.end(1, CLIENT, TENANT, b"key-%d" % number)


def replayed(raw: bytes, records: list[tuple[int, Record]]) -> Index:
    loaded = load_snapshot(raw, "c")
    index = Index(IndexSettings(), lambda choices: 0)
    index.load(loaded.keyless, loaded.slices)
    for n, record in records:
        if n > index.log.last_n:
            index.apply(n, record)
    index.check()
    return index


def test_a_snapshot_and_the_records_since_give_the_same_state() -> None:
    leader = index_with(500)
    taker, parts, step = SnapshotTaker(leader, "c"), [], 0
    while not taker.sliced:
        parts.append(taker.slice(TABLES // 16))
        leader.removes.remove(2, TENANT, b"key-%d" % (step * 7), True)
        put(leader, range(1_000 + step, 1_001 + step))
        step += 1
    leader.removes.remove_by_regex(3, TENANT, b"key-4.$", True)
    parts.append(taker.keyless())
    put(leader, range(2_000, 2_020))
    follower = replayed(b"".join(parts), leader.log.take_outbox())
    assert follower.digest() == leader.digest()
    assert follower.catalog.object_count == leader.catalog.object_count


def test_a_snapshot_of_another_cluster_or_version_or_an_incomplete_one_is_refused() -> None:
    leader = index_with(3)
    with pytest.raises(UnreadableSnapshot, match="belongs to cluster 'c'; this is cluster 'another'"):
        load_snapshot(whole(SnapshotTaker(leader, "c")), "another")
    newer = index_with(3)
    newer.features.switch(99, 1)
    with pytest.raises(UnreadableSnapshot, match=r"feature level 99; this release reads up to .*: upgrade this node"):
        load_snapshot(whole(SnapshotTaker(newer, "c")), "c")
    taker = SnapshotTaker(leader, "c")
    first = taker.slice(TABLES // 2)
    with pytest.raises(UnreadableSnapshot, match="incomplete"):
        load_snapshot(first + taker.slice(), "c")
    with pytest.raises(UnreadableSnapshot, match="incomplete"):
        load_snapshot(first + taker.keyless(), "c")
    with pytest.raises(UnreadableSnapshot):
        load_snapshot(b"", "c")


def whole(taker: SnapshotTaker) -> bytes:
    parts = []
    while not taker.sliced:
        parts.append(taker.slice())
    return b"".join([*parts, taker.keyless()])


@pytest.mark.parametrize(
    ("spans", "why"),
    [
        ([(0, TABLES - 1)], "table 16383 is in no slice"),
        ([(0, 10), (9, TABLES - 9)], "in two slices"),
        ([(0, TABLES), (0, TABLES)], "in two slices"),
        ([(1, TABLES)], "begins at 1"),
        ([(-1, TABLES)], "begins at -1"),
        ([(0, 0)], "begins at 0"),
    ],
)
def test_slices_must_cover_every_table_exactly_once(spans: list[tuple[int, int]], why: str) -> None:
    leader = index_with(3)
    slices = [Slice(first, count, leader.log.epoch, leader.log.last_n, ()) for first, count in spans]
    with pytest.raises(BadSnapshot, match=why):
        Index(IndexSettings(), lambda choices: 0).load(leader.export.keyless(), slices)


@pytest.mark.parametrize(("objects", "at_least", "at_most"), [(10, 2, 2), (40_000, 190, 240)])
def test_a_slice_has_as_many_tables_as_make_a_short_step(objects: int, at_least: int, at_most: int) -> None:
    """One table per step would take a small index as many steps as a large one, and delay truncation by seconds."""
    taker, steps = SnapshotTaker(index_with(objects), "c"), 0
    while not taker.sliced:
        taker.slice()
        steps += 1
    assert at_least <= steps <= at_most


def test_many_tenants_do_not_make_a_step_longer() -> None:
    """Each tenant has tables of its own, and empty ones are visited as well."""
    index = index_with(1)
    for number in range(320):
        index.puts.start(1, CLIENT, b"tenant-%d" % number, b"key", 64, PutConfig())
    assert index.export.tables(0).table_count < 100
    assert index.export.tables(0, 5).table_count == 5
