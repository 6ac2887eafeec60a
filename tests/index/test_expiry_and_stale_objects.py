"""Objects that another node evicted or that have expired: leases, hints, groups, pins and copies of them."""

from __future__ import annotations

from zlib import crc32

import pytest
from tests.index.kit import KIB, OTHER, STORAGE, WRITER, T, follow, fuzzy, places, primary, put, standby

from leasehold.base.codes import SoftPin
from leasehold.index import Code, Index, PutConfig
from leasehold.index.records import Record
from leasehold.index.tables import TABLES

IN_GROUP = PutConfig(group=b"g")
PINNED_IN_GROUP = PutConfig(group=b"g", soft_pin=SoftPin.ENABLE, soft_pin_ttl_ms=3_600_000)


def _both(log: list[tuple[int, Record]], *nodes: Index) -> None:
    for n, record in log:
        for node in nodes:
            node.apply(n, record)


@pytest.mark.parametrize("what", ["removed", "put again", "all removed"])
def test_8_a_stale_object_that_another_leader_has_leased_is_quarantined_when_a_record_removes_it(what: str) -> None:
    """`k` was evicted at n3 by a hint; n2 has it, leads, leases it to R, and dies. n3 leads, and removes its name.

    n4 still has it, too. When n3 dies as well, R's lease is live, and n4 must not hand out the space.
    """
    n1, n2, n3, n4 = primary((8 * KIB, 8 * KIB)), standby(), standby(), standby()
    entry = put(n1, 1, b"k", 8 * KIB)
    log = n1.log.take_outbox()
    _both(log, n2, n3, n4)
    (place,) = places(n1, b"k")
    assert n3.apply_hint(T, b"k", entry.put_seq)  # its lease had expired
    n2.begin(0, 2)
    _both(n2.log.take_outbox(), n3, n4)
    assert n2.reads.get(10, T, b"k") is not None  # R, until 10,010 of n2's clock; no other node learns of it
    n3.begin(0, 3)
    if what == "removed":
        assert n3.removes.remove(5, T, b"k", False).code == Code.NOT_FOUND
    elif what == "all removed":
        assert n3.removes.remove_all(5, T, False).code == Code.OK
    else:
        assert n3.puts.start(5, OTHER, T, b"k", 8 * KIB, PutConfig()).code == Code.OK
        assert place not in places(n3, b"k")
    _both(n3.log.take_outbox(), n4)
    n4.begin(0, 4)
    n4.check()
    free = [n4.puts.start(6, WRITER, T, b"new-%d" % number, 8 * KIB, PutConfig()).value for number in range(2)]
    given = [(r.segment.incarnation, r.offset) for one in free if one is not None for r in one.replicas]
    assert place not in given


def test_17_hints_of_an_older_epoch_are_not_sent_in_a_later_one() -> None:
    """A leader handed over and leads again: another leader may have leased the objects that it had evicted."""
    leader = primary((8 * KIB,))
    put(leader, 1, b"old", 8 * KIB)
    put(leader, 2, b"new", 8 * KIB)  # evicts `old`; the hint is not sent
    leader.handover(3, 0)
    leader.begin(0, 2, handover_ms=3)
    assert leader.take_hints(10) == []


@pytest.mark.parametrize("flushed", [False, True])
def test_5_expiry_is_final_also_in_a_group_with_a_pin(flushed: bool) -> None:
    """`a` has expired, and a standby has dropped it. A read of `b`, which a pin has kept, must not bring it back."""
    leader, follower = primary(eviction_policy="expiry"), standby(eviction_policy="expiry")
    put(leader, 1, b"a", config=IN_GROUP)
    put(leader, 1, b"b", config=PINNED_IN_GROUP)
    follow(follower, leader)
    leader.owners.ping(11_000, STORAGE)
    if flushed:
        leader.take_renewals(100)
        follower.expire_until(12_000)
        assert follower.catalog.lookup(T, b"a") is None
    assert leader.reads.get(12_000, T, b"b") is not None
    assert leader.reads.get(12_001, T, b"a") is None
    leader.work(12_002)
    assert leader.catalog.lookup(T, b"a") is None
    put(leader, 12_003, b"c", config=IN_GROUP)
    assert leader.reads.get(12_004, T, b"b") is not None
    assert leader.reads.get(12_005, T, b"c") is not None


def test_h3_a_soft_pin_whose_renewal_was_missed_keeps_its_object_on_a_standby() -> None:
    """Under `expiry` a pin that reads renew lasts longer than any lease: a gap in the batches may hide it for hours."""
    leader = primary(eviction_policy="expiry", soft_pin_renew_on_read=True)
    follower = standby(eviction_policy="expiry", soft_pin_renew_on_read=True)
    pinned = put(leader, 1, b"k", config=PutConfig(soft_pin=SoftPin.ENABLE, soft_pin_ttl_ms=60_000))
    follow(follower, leader)
    leader.owners.ping(50_000, STORAGE)
    assert leader.reads.get(50_000, T, b"k") is not None
    leader.take_renewals(100)  # which is lost
    follower.gap_closed(55_000)
    follower.expire_until(100_000)
    assert leader.reads.get(100_000, T, b"k") is not None
    assert follower.catalog.lookup(T, b"k") is not None
    assert follower.apply_hint(T, b"k", pinned.put_seq)


def test_15_a_copy_that_was_removed_between_two_slices_has_displaced_what_was_there() -> None:
    """`x` is in its slice; then it is evicted, a copy of `k` is written over it, `k` is removed and has no slice."""
    leader = primary((12 * KIB, 12 * KIB))
    put(leader, 1, b"before", 4 * KIB, PutConfig(preferred_segments=("seg1",)))
    put(leader, 1, b"x", 8 * KIB, PutConfig(preferred_segments=("seg1",)))
    assert leader.removes.remove(1, T, b"before", False).code == Code.OK
    ((x_home, x_offset),) = places(leader, b"x")
    assert x_offset == 4 * KIB
    home = leader.space.segments[x_home].spec.name
    away = next(s.spec.name for s in leader.space.segments.values() if s.spec.name != home)
    put(leader, 1, b"k", 12 * KIB, PutConfig(preferred_segments=(away,)))
    assert places(leader, b"k")[0][0] != x_home
    assert crc32(b"x") % TABLES != crc32(b"k") % TABLES

    def meanwhile() -> None:
        gone = leader.catalog.lookup(T, b"x")
        assert gone is not None
        leader.eviction.evict(gone)  # no record
        leader.owners.ping(20_000, STORAGE)
        assert leader.copies.copy_start(20_000, WRITER, T, b"k", away, [home]).code == Code.OK
        assert leader.copies.copy_end(20_001, WRITER, T, b"k").code == Code.OK
        assert leader.removes.remove(20_002, T, b"k", False).code == Code.OK

    built = fuzzy(leader, b"x", meanwhile)
    assert built.catalog.lookup(T, b"x") is None, "P3: its bytes are those of `k`"


def test_h9_nothing_is_copied_from_memory_of_an_unproven_owner() -> None:
    leader = primary((8 * KIB, 8 * KIB))
    put(leader, 1, b"k", 4 * KIB)
    (home,) = places(leader, b"k")
    source = leader.space.segments[home[0]]
    other = next(s for s in leader.space.segments.values() if s is not source)
    leader.owners.distrust()
    other.proven = True
    leader.owners.unproven.discard(other.incarnation)
    leader.space.segments.refresh_placeable()
    reply = leader.copies.copy_start(2, WRITER, T, b"k", "", [other.spec.name])
    code, plan = reply.code, reply.value
    assert (code, plan) == (Code.NOT_READY, None)
    leader.owners.ping(3, STORAGE)
    assert leader.copies.copy_start(4, WRITER, T, b"k", "", [other.spec.name]).code == Code.OK
