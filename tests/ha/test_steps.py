"""Long work is done in steps: heartbeats are sent in between, and new events wait for their turn."""

from __future__ import annotations

from itertools import pairwise

import pytest
from bench.bench_index import filled, key_of
from bench.bench_promotion import STORAGE, TENANT, Node, snapshot_of, write_tail

from leasehold.base.limits import quarantine_step_extents, replay_piece_objects, snapshot_step_extents
from leasehold.ha.effects import Role, WriteSnapshot
from leasehold.ha.events import LeaseLost, Started, SwitchoverRequested, Ticked
from leasehold.ha.snapshot_schedule import SnapshotSchedule
from leasehold.index import Code, Index
from leasehold.index.records import RemoveRange
from leasehold.journal.chain import Position
from leasehold.journal.snapshot_file import load_snapshot

COUNT = 3_000
LATER_MS = 20_000_000


@pytest.fixture
def leader() -> Index:
    index = filled(COUNT)
    index.log.take_outbox()
    return index


def test_no_step_of_a_promotion_exceeds_its_limit_however_long_the_tail_is(leader: Index) -> None:
    """A tail of 100,000 records in one delivery was one step of a second; a guardian kills after two."""
    node = Node()
    node.follow(snapshot_of(leader))
    for number in range(0, COUNT, 2):
        assert leader.removes.remove(LATER_MS, TENANT, key_of(number), False).code == Code.OK
    leader.removes.remove_by_regex(LATER_MS, TENANT, b"[1-8]$", True)
    records = [record for _, record in leader.log.outbox]
    ranges = sum(type(record) is RemoveRange for record in records)
    assert ranges > 1
    written, applied = write_tail(node, leader), [node.machine.ctx.state.records_applied]
    handle = node.machine.handle

    def watched(now_ms: int, event: object) -> object:
        effects = handle(now_ms, event)  # type: ignore[arg-type] # any event
        applied.append(node.machine.ctx.state.records_applied)
        return effects

    node.machine.handle = watched  # type: ignore[method-assign,assignment] # observed only
    node.promote()
    steps = [after - before for before, after in pairwise(applied)]
    assert sum(steps) == written
    assert max(steps) <= replay_piece_objects
    assert sum(step > 0 for step in steps) >= written // replay_piece_objects + ranges - 1, "a range record is a step"
    assert node.machine.index.digest() == leader.digest()
    assert node.machine.role is Role.PRIMARY


def test_events_between_two_steps_wait_for_their_turn(leader: Index) -> None:
    node = Node()
    node.follow(snapshot_of(leader))
    for number in range(COUNT):
        assert leader.removes.remove(LATER_MS, TENANT, key_of(number), False).code == Code.OK
    write_tail(node, leader)
    node._pull()
    machine = node.machine
    while not machine.busy:
        machine.handle(node.now_ms, node._inbox.popleft())
    assert machine.wake_at_ms <= node.now_ms
    assert machine.ctx.state.records_applied == replay_piece_objects
    early = machine.handle(node.now_ms, SwitchoverRequested()) + machine.handle(node.now_ms, LeaseLost(12345))
    assert "Nothing to hand over" not in str(early), "it came after the delivery, and is handled after it"
    late = []
    while machine.busy:
        late += machine.handle(node.now_ms, Ticked())
    assert "Nothing to hand over" in str(late)
    assert machine.index.log.last_n == leader.log.last_n
    assert machine.wake_at_ms > node.now_ms


def quarantined(leader: Index) -> Index:
    for number in range(COUNT):
        leader.reads.get(LATER_MS, TENANT, key_of(number))
    leader.removes.remove_all(LATER_MS, TENANT, True)
    assert leader.space.quarantine.totals() == (COUNT, COUNT * 4096)
    return leader


def test_an_epoch_begins_without_a_pass_over_the_quarantine_and_gives_it_its_grace(leader: Index) -> None:
    index = quarantined(leader)
    heap = index.space.quarantine._heap.copy()
    index.begin(0, 2)
    assert index.space.quarantine._heap == heap
    assert index.space.quarantine.totals()[0] == COUNT
    index.owners.ping(9_999, STORAGE)
    while index.work(9_999):
        pass
    assert index.space.quarantine.totals()[0] == COUNT, "the maximum term, from `begin` on"
    index.check()
    while index.work(10_000):
        pass
    assert index.space.quarantine.totals() == (0, 0)
    assert index.space.used_bytes == 0
    assert len(index.space.segments) == 4
    index.check()


def test_a_snapshot_holds_the_grace_of_quarantined_extents(leader: Index) -> None:
    index = quarantined(leader)
    index.begin(0, 2)
    ends_ms = {saved.end_ms for saved in index.export.keyless().quarantine}
    assert ends_ms == {10_000}


def test_quarantined_extents_are_freed_in_steps(leader: Index) -> None:
    """A million extents leave quarantine at the same moment: freeing them in one step took seconds."""
    index = quarantined(leader)
    index.owners.ping(LATER_MS + 10_000, STORAGE)
    freed, before = [], COUNT
    while index.work(LATER_MS + 10_000):
        freed.append(before - index.space.quarantine.totals()[0])
        before = index.space.quarantine.totals()[0]
    assert len(freed) >= COUNT // quarantine_step_extents - 1
    assert max(freed) <= quarantine_step_extents
    assert index.space.quarantine.totals() == (0, 0)
    index.check()


def test_the_quarantine_goes_into_a_snapshot_in_steps(leader: Index) -> None:
    """It was all in the last slice, in one step: seconds for a million extents."""
    node = Node()
    node.follow(snapshot_of(quarantined(leader)))
    ctx = node.machine.ctx
    assert ctx.state.index.space.quarantine.totals()[0] == COUNT > 2 * snapshot_step_extents
    ctx.state.advance_to(Position(ctx.state.applied.epoch, ctx.settings.snapshot_records))  # one is due
    snapshots, now_ms = SnapshotSchedule(ctx), 0
    parts: list[WriteSnapshot] = []
    snapshots.consider(0)
    while not parts or not parts[-1].last:
        now_ms = max(now_ms + 1, snapshots.wake_at_ms)
        snapshots.tick(now_ms, COUNT * 10)
        parts += [one for one in ctx.effects.take() if isinstance(one, WriteSnapshot)]
    loaded = load_snapshot(b"".join(part.part for part in parts), ctx.identity.cluster)
    counts = [*(len(one.quarantine) for one in loaded.quarantined), len(loaded.keyless.quarantine)]
    assert sum(counts) == COUNT
    assert max(counts) <= snapshot_step_extents
    assert now_ms < 1_000
    assert ctx.state.index.space.quarantine.watched is None


def test_an_abandoned_snapshot_stops_tracking_the_quarantine(leader: Index) -> None:
    node = Node()
    node.follow(snapshot_of(quarantined(leader)))
    ctx = node.machine.ctx
    ctx.state.advance_to(Position(ctx.state.applied.epoch, ctx.settings.snapshot_records))
    snapshots, now_ms = SnapshotSchedule(ctx), 0
    snapshots.consider(0)
    while ctx.state.index.space.quarantine.watched is None:
        now_ms = max(now_ms + 1, snapshots.wake_at_ms)
        snapshots.tick(now_ms, COUNT * 10)
    snapshots.abandon()
    assert ctx.state.index.space.quarantine.watched is None


def test_a_snapshot_is_loaded_in_steps_with_its_progress(leader: Index) -> None:
    """Loading a million objects took ten seconds in one step, in which a node answered nothing."""
    node = Node()
    node._snapshot = snapshot_of(leader)
    node._inbox.append(Started())
    machine, shares, sentences = node.machine, [], set()
    while machine.role is not Role.STANDBY:
        node._pull()
        event = node._inbox.popleft() if node._inbox else Ticked()
        for effect in machine.handle(node.now_ms, event):
            node._do(effect)
        if (loading := machine.loading) is not None:
            shares.append(loading.share)
            sentences.add(machine.sentence)
            assert machine.busy
            assert not machine.ready
        elif not node._inbox and not machine.busy:
            node.now_ms += 1
    assert len(shares) >= COUNT // 400
    assert shares == sorted(shares)
    assert 0 <= shares[0] < shares[-1] < 1
    assert any(sentence.startswith("Loading a snapshot from disk: ") for sentence in sentences)
    assert machine.index.digest() == leader.digest()
