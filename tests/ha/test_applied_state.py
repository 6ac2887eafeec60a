"""A node's state from the journal: order, gaps, forks, divergence and unlogged batches."""

from __future__ import annotations

import pytest

from leasehold.ha.applied_state import AppliedState, BatchOutcome, LastWrite
from leasehold.ha.steps import run_to_end
from leasehold.index.index import Index
from leasehold.index.records import (
    NEVER_MS,
    Begin,
    Extent,
    Handover,
    MountSegment,
    PutEnd,
    PutStart,
    Record,
    Remove,
)
from leasehold.index.settings import IndexSettings
from leasehold.journal.batch import (
    ExplicitBatch,
    Hint,
    Renewal,
    UnloggedBatch,
    encode_explicit,
    encode_records,
    encode_unlogged,
)
from leasehold.journal.chain import Fit, Position, fit
from leasehold.journal.unlogged_reader import UnloggedReader


def _unlogged(number: int, leader_ms: int, *, as_of_n: int = 1, renewals: tuple[Renewal, ...] = ()) -> UnloggedBatch:
    return UnloggedBatch(7, number, as_of_n, leader_ms, True, 3_000, 0, renewals, ())


def test_h3_each_of_two_gaps_is_closed_by_its_own_batch() -> None:
    reader = UnloggedReader()
    reader.begin(7, known_from_start=True)
    for number, leader_ms in ((3, 100), (4, 200), (9, 900)):
        reader.offer(_unlogged(number, leader_ms))
    closed = [(batch.number, reader.gap_closed_ms) for batch in reader.due(Position(7, 1))]
    assert closed == [(3, 100), (4, 100), (9, 900)]


def test_a_later_epoch_below_the_applied_position_is_a_fork() -> None:
    """The node holds discarded records: the records that a later epoch wrote in their place are not applied."""
    later = ExplicitBatch(9, 105, 7, 104, 3_000, 0, (Begin(0, 9, 10_000, 10_000),))
    assert fit(Position(7, 110), later) is Fit.FORK
    older = ExplicitBatch(7, 100, 7, 99, 3_000, 0, (Begin(0, 9, 10_000, 10_000),))
    assert fit(Position(9, 110), older) is Fit.OLD


def _state() -> AppliedState:
    state = AppliedState(lambda: Index(IndexSettings(), lambda count: 0))
    begin = encode_explicit(7, 1, (0, 0), 3_000, 0, [encode_records([Begin(0, 7, 10_000, 10_000)])])
    assert run_to_end(state.take_explicit(0, 1, begin, leads=7)) is BatchOutcome.APPLIED
    return state


def test_5_divergence_is_judged_at_its_place_in_the_order_even_within_a_batch() -> None:
    state = _state()
    renewal = Renewal(b"t", b"absent", 1, 20_000, 0)
    run_to_end(state.take_unlogged(1, encode_unlogged(_unlogged(1, 500, as_of_n=3, renewals=(renewal,))), leads=7))
    removes = [encode_records([Remove(1, b"t", b"other-%d" % number, 0)]) for number in range(4)]
    run_to_end(state.take_explicit(2, 2, encode_explicit(7, 2, (7, 1), 3_000, 0, removes), leads=7))
    assert state.applied == Position(7, 5)
    assert "absent" in state.diverged


def test_a_renewal_of_an_unknown_object_invalidates_a_hand_over() -> None:
    state = _state()
    removes = [encode_records([Remove(1, b"t", b"other-%d" % number, 0)]) for number in range(4)]
    run_to_end(state.take_explicit(1, 2, encode_explicit(7, 2, (7, 1), 3_000, 0, removes), leads=7))
    renewal = Renewal(b"t", b"absent", 1, 20_000, 0)
    run_to_end(state.take_unlogged(2, encode_unlogged(_unlogged(1, 500, as_of_n=3, renewals=(renewal,))), leads=7))
    assert not state.diverged
    assert state.unexplained_renewal


def test_h4_an_unlogged_batch_beyond_the_tail_of_its_epoch_has_no_effect() -> None:
    """A batch as of record 108 is written, record 108 never is. The batch has no effect, also not in the next epoch."""
    state = _state()
    hint = Hint(b"t", b"k", 3)
    ahead = UnloggedBatch(7, 1, 108, 5_000, True, 3_000, 0, (), (hint,))
    run_to_end(state.take_unlogged(1, encode_unlogged(ahead), leads=7))
    assert state.unlogged.applied == 0
    record = Begin(0, 9, 10_000, 10_000, NEVER_MS, 0, 10_001)
    begin = encode_explicit(9, 2, (7, 1), 3_000, 0, [encode_records([record])])
    assert run_to_end(state.take_explicit(2, 2, begin, leads=7)) is BatchOutcome.APPLIED
    more = [encode_records([Remove(1, b"t", b"other", 0)]) for _ in range(110)]
    run_to_end(state.take_explicit(3, 3, encode_explicit(9, 3, (9, 2), 3_000, 0, more), leads=7))
    assert state.unlogged.applied == 0
    assert not state.unlogged.waiting


def test_the_wait_for_the_old_leader_lease_counts_batches_that_a_snapshot_covers() -> None:
    """A node built from a snapshot that ends at the tail has seen that batch too: its writer may still answer."""
    leader = _state()
    raw = encode_explicit(7, 1, (0, 0), 3_000, 0, [encode_records([Begin(0, 7, 10_000, 10_000)])])
    leader.last_write = LastWrite()  # as after loading a snapshot: the records are known, their writer is not
    assert run_to_end(leader.take_explicit(50, 1, raw, leads=0)) is BatchOutcome.OLD
    assert (leader.last_write.epoch, leader.last_write.seen_ms) == (7, 50)


def test_h3_handed_over_leases_of_missed_renewals_get_the_drift_too() -> None:
    """A hand-over maps lease ends later by the drift. A node that missed renewals must not expire a lease before."""
    state = _state()
    handover = encode_explicit(7, 2, (7, 1), 3_000, 0, [encode_records([Handover(5_000, 7, 3)])])
    assert run_to_end(state.take_explicit(1, 2, handover, leads=7)) is BatchOutcome.APPLIED
    record = Begin(0, 9, 10_000, 0, 5_000, 300)
    begin = encode_explicit(9, 3, (7, 2), 3_000, 0, [encode_records([record])])
    assert run_to_end(state.take_explicit(2, 3, begin, leads=9)) is BatchOutcome.APPLIED
    assert state.index.clock.grace_end - state.index.clock.offset == 10_300


@pytest.mark.parametrize("expires", [True, False])
def test_5_a_standby_expires_objects_by_its_leaders_policy(expires: bool) -> None:
    """Policies change one node at a time. Under `pressure` an expired object may be read and leased again."""
    state = AppliedState(lambda: Index(IndexSettings(eviction_policy="expiry"), lambda count: 0))
    records: list[Record] = [
        Begin(0, 7, 10_000, 10_000),
        MountSegment(1, b"owner", b"segment", "seg", 0, 1 << 20, "host:1", "tcp", "host"),
        PutStart(2, b"writer", b"t", b"k", 4096, (Extent(2, 0),)),
        PutEnd(3, b"t", b"k", 3, 10_000),
    ]
    raw = encode_explicit(7, 1, (0, 0), 3_000, 0, [encode_records(records)])
    assert run_to_end(state.take_explicit(0, 1, raw, leads=7)) is BatchOutcome.APPLIED
    batch = UnloggedBatch(7, 1, 4, 30_000, True, 3_000, 0, expires=expires)
    run_to_end(state.take_unlogged(1, encode_unlogged(batch), leads=7))
    assert (state.index.catalog.lookup(b"t", b"k") is None) is expires


def _removes(epoch: int, first_n: int, prev: tuple[int, int], *records: Record) -> bytes:
    return encode_explicit(epoch, first_n, prev, 3_000, 0, [encode_records([record]) for record in records])


def _remove(key: bytes) -> Record:
    return Remove(1, b"t", key, 0)


def test_14_a_cut_batch_is_forgotten_when_the_chain_continues_past_it() -> None:
    """A node quarantines a record inside a batch. Another node is forced to lead and cuts that batch short.

    When this node is forced later, because of another batch, it must not write the old one back.
    """
    state = _state()
    bad = PutEnd(1, b"t", b"absent", 99, 10_000)
    raw = _removes(7, 2, (7, 1), _remove(b"a"), bad, _remove(b"b"))
    assert run_to_end(state.take_explicit(1, 2, raw, leads=7)) is BatchOutcome.QUARANTINED
    assert state.applied == Position(7, 2)
    assert state.partial_batch is not None
    begin = Begin(0, 9, 10_000, 10_000, NEVER_MS, 0, 10_001)
    assert run_to_end(state.take_explicit(2, 3, _removes(9, 3, (7, 2), begin), leads=9)) is BatchOutcome.APPLIED
    assert not state.quarantined_records
    assert state.partial_batch is None
    assert run_to_end(state.take_explicit(3, 4, b"unreadable", leads=9)) is BatchOutcome.QUARANTINED
    assert state.partial_batch is None, "slot 4 is deleted as a whole, and no other slot is touched"
