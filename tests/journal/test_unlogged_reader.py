"""When an unlogged batch takes effect (schedules 10, H2, H3, H4)."""

from __future__ import annotations

from leasehold.journal.batch import UnloggedBatch
from leasehold.journal.chain import Position
from leasehold.journal.unlogged_reader import UnloggedReader


def unlogged(epoch: int, number: int, as_of_n: int, leader_ms: int = 0, complete: bool = True) -> UnloggedBatch:
    return UnloggedBatch(epoch, number, as_of_n, leader_ms, complete, 3_000, 0)


def reader(epoch: int = 7) -> UnloggedReader:
    made = UnloggedReader()
    made.begin(epoch, known_from_start=True)
    return made


def test_it_waits_for_its_as_of_record() -> None:
    """H4: a batch ahead of the tail."""
    one = reader()
    one.offer(unlogged(7, 1, as_of_n=108))
    assert list(one.due(Position(7, 107))) == []
    assert [batch.number for batch in list(one.due(Position(7, 108)))] == [1]
    assert list(one.due(Position(7, 108))) == []


def test_beyond_the_tail_of_its_epoch_it_has_no_effect() -> None:
    one = reader()
    one.offer(unlogged(7, 1, as_of_n=108))
    one.begin(9, known_from_start=True)
    assert list(one.due(Position(9, 200))) == []


def test_a_batch_of_an_epoch_whose_begin_is_not_applied_yet_is_kept() -> None:
    one = reader()
    one.offer(unlogged(9, 1, as_of_n=110))
    assert list(one.due(Position(7, 110))) == []
    one.begin(9, known_from_start=True)
    assert len(list(one.due(Position(9, 110)))) == 1
    assert one.gaps == 0


def test_a_gap_is_detected_and_remembered() -> None:
    """H3: the missing batches may have renewed any lease."""
    one = reader()
    one.offer(unlogged(7, 1, 1, leader_ms=1_000))
    one.offer(unlogged(7, 4, 1, leader_ms=4_000))
    assert [batch.number for batch in list(one.due(Position(7, 1)))] == [1, 4]
    assert one.gap_closed_ms == 4_000
    assert not one.has_all_to(4)


def test_after_a_snapshot_earlier_batches_are_unknown() -> None:
    one = UnloggedReader()
    one.begin(7, known_from_start=False)
    one.offer(unlogged(7, 30, 1, leader_ms=30_000))
    list(one.due(Position(7, 1)))
    assert one.gap_closed_ms == 30_000
    assert one.applied == 30


def test_duplicates_and_a_dense_sequence_make_no_gap() -> None:
    one = reader()
    for number in (1, 2, 2, 1, 3):
        one.offer(unlogged(7, number, 1))
        list(one.due(Position(7, 1)))
    assert one.gaps == 0
    assert one.has_all_to(3)
    assert not one.has_all_to(4)
