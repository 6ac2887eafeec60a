"""Schedules that broke earlier drafts, about snapshots that are taken while the state goes on."""

from __future__ import annotations

from zlib import crc32

import pytest
from tests.index.kit import KIB, STORAGE, WRITER, T, all_slices, fuzzy, places, primary, put, spec, standby

from leasehold.base.errors import InvariantBroken
from leasehold.index import Code, Index, PutConfig
from leasehold.index.snapshot_format import QuarantineSlice
from leasehold.index.space.walk import QuarantineWalk
from leasehold.index.tables import TABLES


def test_h7_quarantine_is_in_the_last_slice() -> None:
    leader = primary((8 * KIB,))
    assert leader.puts.start(0, WRITER, T, b"k", 8 * KIB, PutConfig()).code == Code.OK
    assert leader.puts.revoke(1, WRITER, T, b"k").code == Code.OK
    fresh = standby()
    fresh.load(leader.export.keyless(), all_slices(leader))
    fresh.begin(0, 2)
    assert fresh.puts.start(1, WRITER, T, b"new", 4 * KIB, PutConfig()).code == Code.NO_SPACE
    fresh.check()


EXTENTS = 40


def _quarantined(count: int = EXTENTS) -> tuple[Index, list[QuarantineSlice], QuarantineWalk]:
    """A full pool, all of it in quarantine until 10,001; a snapshot's walk has passed half of it."""
    leader = primary((count * KIB,))
    for number in range(count):
        put(leader, 1, b"key-%d" % number, KIB)
        leader.reads.get(1, T, b"key-%d" % number)
    assert leader.removes.remove_all(2, T, True).value == count
    walk = QuarantineWalk(leader.space)
    written = [leader.export.quarantine(walk, 5) for _ in range(count // 10)]
    assert sum(len(one.quarantine) for one in written) == count // 2
    return leader, written, walk


def _rest_of(leader: Index, walk: QuarantineWalk) -> list[QuarantineSlice]:
    written = []
    while not walk.is_short(5):
        written.append(leader.export.quarantine(walk, 5))
        assert len(written[-1].quarantine) <= 5
    return written


def test_h7_an_extent_in_quarantine_throughout_or_since_is_written_once() -> None:
    leader, written, walk = _quarantined()
    leader.owners.ping(10_002, STORAGE)
    while leader.work(10_002):
        pass
    for number in range(7):
        put(leader, 10_003, b"late-%d" % number, KIB)
        leader.reads.get(10_003, T, b"late-%d" % number)
        assert leader.removes.remove(10_004, T, b"late-%d" % number, True).code == Code.OK
    written += _rest_of(leader, walk)
    keyless = leader.export.keyless(walk)
    assert leader.space.quarantine.watched is None
    everything = [*keyless.quarantine, *(one for part in written for one in part.quarantine)]
    late = [one for one in everything if one.end_ms > 10_002]
    assert len(late) == len({one.offset for one in late}) == 7 == leader.space.quarantine.totals()[0]


def test_h7_an_extent_that_was_handed_out_during_the_walk_is_its_new_owners() -> None:
    leader, written, walk = _quarantined()
    leader.owners.ping(10_002, STORAGE)
    while leader.work(10_002):
        pass
    put(leader, 10_003, b"large", EXTENTS * KIB // 4)
    put(leader, 10_003, b"small", KIB)
    put(leader, 10_003, b"gone", KIB)
    assert leader.removes.remove(10_004, T, b"gone", False).code == Code.OK
    written += _rest_of(leader, walk)
    fresh = standby()
    fresh.load(leader.export.keyless(walk), [*all_slices(leader), *written])
    fresh.check()
    assert fresh.digest() == leader.digest()
    assert fresh.space.quarantine.totals()[0] > 0, "this node does not know yet that the quarantine has expired"
    while fresh.observe(10_004):
        pass
    assert fresh.space.quarantine.totals() == leader.space.quarantine.totals() == (0, 0)
    fresh.check()


def test_h7_the_quarantine_of_a_segment_that_is_unmounted_during_the_walk_is_in_its_retired_segment() -> None:
    leader, written, walk = _quarantined()
    leader.mounts.unmount(3, STORAGE, spec(1).id)
    assert leader.mounts.mount(4, STORAGE, spec(1, size=EXTENTS * KIB)).code == Code.OK
    written += _rest_of(leader, walk)
    fresh = standby()
    fresh.load(leader.export.keyless(walk), [*all_slices(leader), *written])
    fresh.check()
    assert fresh.space.quarantine.totals() == leader.space.quarantine.totals()
    fresh.begin(0, 2)
    assert fresh.puts.start(9_900, WRITER, T, b"new", KIB, PutConfig()).code == Code.NO_SPACE
    assert fresh.puts.start(10_500, WRITER, T, b"new", KIB, PutConfig()).code == Code.OK


def test_h7_a_second_walk_ends_the_first() -> None:
    leader, _, walk = _quarantined()
    QuarantineWalk(leader.space)
    with pytest.raises(InvariantBroken, match="sees all additions"):
        leader.export.quarantine(walk)


@pytest.mark.parametrize("after_ms", [1, 2_000])
def test_9_a_lease_granted_after_the_last_record_is_under_the_grace_of_who_loads_it(after_ms: int) -> None:
    """Its end is the only trace of the leader's clock at that moment. Found by seed 2657."""
    leader = primary((8 * KIB,))
    put(leader, 1, b"k", 8 * KIB)
    assert leader.reads.get(1 + after_ms, T, b"k") is not None
    fresh = standby()
    fresh.load(leader.export.keyless(), all_slices(leader))
    fresh.begin(0, 2)
    term_ms = fresh.settings.lease_ttl_ms
    assert fresh.removes.remove(term_ms - 1, T, b"k", False).code == Code.HAS_LEASE
    assert fresh.removes.remove(term_ms + after_ms, T, b"k", False).code == Code.OK


def test_15_two_owners_of_one_place_the_higher_number_wins() -> None:
    leader = primary((4 * KIB,))
    put(leader, 1, b"K", 4 * KIB)
    early = {number: leader.export.tables(number, 1) for number in range(TABLES)}
    put(leader, 2, b"L", 4 * KIB)  # K is evicted: no record
    late = {number: leader.export.tables(number, 1) for number in range(TABLES)}
    holder = {b"K": next(n for n, s in early.items() if s.objects), b"L": next(n for n, s in late.items() if s.objects)}
    assert holder[b"K"] != holder[b"L"]
    mixed = [late[n] if n == holder[b"L"] else early[n] for n in range(TABLES)]
    fresh = standby()
    fresh.load(leader.export.keyless(), mixed)
    assert places(fresh, b"K") == []  # it may have moved first: replay will tell
    assert fresh.catalog.lookup(T, b"L") is not None
    for n, record in leader.log.take_outbox():
        if n > fresh.log.last_n:
            fresh.apply(n, record)
    fresh.check()
    assert fresh.catalog.lookup(T, b"K") is None
    assert fresh.digest() == leader.digest()
    assert fresh.coverage.tables_n is None


def test_15_a_place_given_away_between_two_slices_is_not_resolved_to_its_old_owner() -> None:
    """`old` is in its slice; then it is evicted, its space is given to `new`, `new` is removed, and has no slice."""
    leader = primary((8 * KIB,))
    put(leader, 1, b"old", 8 * KIB)

    def meanwhile() -> None:
        put(leader, 2, b"new", 8 * KIB)  # evicts `old`: no record of that
        assert leader.removes.remove(3, T, b"new", False).code == Code.OK

    assert crc32(b"old") % TABLES != crc32(b"new") % TABLES
    built = fuzzy(leader, b"old", meanwhile)
    assert built.catalog.lookup(T, b"new") is None
    assert built.catalog.lookup(T, b"old") is None, "P3: its bytes are those of `new`"


def test_15_an_object_that_is_moved_between_two_slices_is_not_lost() -> None:
    """Its slice has it at its old place, which is in quarantine in the last slice. Found by seed 146 of the replay."""
    leader = primary((8 * KIB, 8 * KIB))
    put(leader, 1, b"k", 8 * KIB)
    found = leader.reads.get(2, T, b"k")
    assert found is not None
    here = found.replicas[0].segment.spec.name
    there = "seg2" if here == "seg1" else "seg1"
    assert leader.copies.move_start(3, WRITER, T, b"k", here, there).code == Code.OK

    def meanwhile() -> None:
        assert leader.copies.move_end(4, WRITER, T, b"k").code == Code.OK

    built = fuzzy(leader, b"k", meanwhile)
    assert places(built, b"k") == places(leader, b"k")
    built.begin(0, 2)
    assert built.puts.start(9_000, WRITER, T, b"new", 8 * KIB, PutConfig()).code == Code.NO_SPACE  # quarantined


@pytest.mark.parametrize("started", ["before", "after"])
def test_15_an_object_that_is_moved_is_not_lost_to_the_new_owner_of_its_old_place(started: str) -> None:
    """Its slice has it at its old place, which a later slice has given to `new`. Found by seed 297 of the replay."""
    leader = primary((8 * KIB, 8 * KIB))
    put(leader, 1, b"k", 8 * KIB)
    (here,) = places(leader, b"k")
    name = leader.space.segments[here[0]].spec.name
    there = "seg2" if name == "seg1" else "seg1"

    def start() -> None:
        assert leader.copies.move_start(2, WRITER, T, b"k", name, there).code == Code.OK

    def meanwhile() -> None:
        if started == "after":
            start()
        leader.owners.ping(15_000, STORAGE)
        assert leader.copies.move_end(20_000, WRITER, T, b"k").code == Code.OK  # no lease: its old place is free
        put(leader, 20_001, b"new", 8 * KIB)
        assert places(leader, b"new") == [here]

    if started == "before":
        start()
    built = fuzzy(leader, b"k", meanwhile)
    assert places(built, b"k") == places(leader, b"k")
    assert built.digest() == leader.digest()
