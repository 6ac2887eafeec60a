"""Schedules that broke earlier drafts, about snapshots that are taken while the state goes on."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import pytest
from tests.index.kit import KIB, STORAGE, WRITER, T, all_slices, places, primary, put, standby

from leasehold.index import Code, Index, PutConfig
from leasehold.index.records import Record
from leasehold.index.state import TABLES


def test_h7_limbo_is_in_the_last_slice() -> None:
    leader = primary((8 * KIB,))
    assert leader.put_start(0, WRITER, T, b"k", 8 * KIB, PutConfig())[0] == Code.OK
    assert leader.put_revoke(1, WRITER, T, b"k")[0] == Code.OK
    fresh = standby()
    fresh.load(leader.export_keyless(), all_slices(leader))
    fresh.begin(0, 2)
    assert fresh.put_start(1, WRITER, T, b"new", 4 * KIB, PutConfig())[0] == Code.NO_SPACE
    fresh.check()


@pytest.mark.parametrize("after_ms", [1, 2_000])
def test_9_a_lease_granted_after_the_last_record_is_under_the_grace_of_who_loads_it(after_ms: int) -> None:
    """Its end is the only trace of the leader's clock at that moment. Found by seed 2657."""
    leader = primary((8 * KIB,))
    put(leader, 1, b"k", 8 * KIB)
    assert leader.get(1 + after_ms, T, b"k") is not None
    fresh = standby()
    fresh.load(leader.export_keyless(), all_slices(leader))
    fresh.begin(0, 2)
    term_ms = fresh.lease_ttl_ms
    assert fresh.remove(term_ms - 1, T, b"k", False)[0] == Code.HAS_LEASE
    assert fresh.remove(term_ms + after_ms, T, b"k", False)[0] == Code.OK


def test_15_two_owners_of_one_place_the_higher_number_wins() -> None:
    leader = primary((4 * KIB,))
    put(leader, 1, b"K", 4 * KIB)
    early = {number: leader.export_slice(number, 1) for number in range(TABLES)}
    put(leader, 2, b"L", 4 * KIB)  # K is evicted: no record
    late = {number: leader.export_slice(number, 1) for number in range(TABLES)}
    holder = {b"K": next(n for n, s in early.items() if s.objects), b"L": next(n for n, s in late.items() if s.objects)}
    assert holder[b"K"] != holder[b"L"]
    mixed = [late[n] if n == holder[b"L"] else early[n] for n in range(TABLES)]
    fresh = standby()
    fresh.load(leader.export_keyless(), mixed)
    assert places(fresh, b"K") == []  # it may have moved first: replay will tell
    assert fresh.lookup(T, b"L") is not None
    for n, record in leader.take_outbox():
        if n > fresh.last_n:
            fresh.apply(n, record)
    fresh.check()
    assert fresh.lookup(T, b"K") is None
    assert fresh.digest() == leader.digest()
    assert fresh.covered_n is None


def _fuzzy(leader: Index, early: bytes, meanwhile: Callable[[], None]) -> Index:
    """A node built from a snapshot: the slice of the key `early`, then something happens, then all the others."""
    log: list[tuple[int, Record]] = leader.take_outbox()
    first = crc32(early) % TABLES
    slices = [leader.export_slice(first, 1)]
    meanwhile()
    log += leader.take_outbox()
    slices += [leader.export_slice(number, 1) for number in range(TABLES) if number != first]
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

    assert crc32(b"old") % TABLES != crc32(b"new") % TABLES
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


@pytest.mark.parametrize("started", ["before", "after"])
def test_15_an_object_that_is_moved_is_not_lost_to_whoever_got_its_old_place(started: str) -> None:
    """Its slice has it at its old place, which a later slice has given to `new`. Found by seed 297 of the replay."""
    leader = primary((8 * KIB, 8 * KIB))
    put(leader, 1, b"k", 8 * KIB)
    (here,) = places(leader, b"k")
    name = leader.segments[here[0]].spec.name
    there = "seg2" if name == "seg1" else "seg1"

    def start() -> None:
        assert leader.move_start(2, WRITER, T, b"k", name, there)[0] == Code.OK

    def meanwhile() -> None:
        if started == "after":
            start()
        leader.ping(15_000, STORAGE)
        assert leader.move_end(20_000, WRITER, T, b"k")[0] == Code.OK  # nobody reads it: its old place is free
        put(leader, 20_001, b"new", 8 * KIB)
        assert places(leader, b"new") == [here]

    if started == "before":
        start()
    built = _fuzzy(leader, b"k", meanwhile)
    assert places(built, b"k") == places(leader, b"k")
    assert built.digest() == leader.digest()
