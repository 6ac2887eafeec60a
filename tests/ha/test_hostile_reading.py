"""What a hostile reading found: each fails without its fix."""

from __future__ import annotations

import pytest

from leasehold.ha.applied_state import AppliedState, Took
from leasehold.ha.events import NodeEvent, SnapshotFailed, SnapshotStored
from leasehold.ha.snapshot_schedule import Snapshots
from leasehold.ha.steps import immediately
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
from leasehold.testing.sim.script import Script


def _play(*lines: str) -> Script:
    script = Script()
    for line in lines:
        said = script.run(line)
        assert not any("BROKEN" in one for one in said), said
    return script


def test_a_leader_that_is_elected_again_counts_from_its_own_hand_over() -> None:
    """It had taken over from another by plan; that older hand-over is not the one that its second epoch follows."""
    script = _play(
        "nodes 2", "host", "put A", "wait 5000", "switchover n1 n2", "until n2 serves", "until n1 standby", "wait 9000",
        "get R A", "switchover n2 n1", "host-death n1", "until n2 serves", "look R A", "remove A",
    )  # fmt: skip
    records = [record for _, record in script.world.oracle.truth.log]
    begins = [at for at, record in enumerate(records) if isinstance(record, Begin)]
    for at in begins:
        begin, before = records[at], records[at - 1] if at else None
        assert isinstance(begin, Begin)
        if begin.handover_ms != NEVER_MS:
            assert isinstance(before, Handover)
            assert begin.handover_ms == before.at_ms
    assert len(begins) == 3


def test_h9_a_store_that_was_away_proves_no_owner() -> None:
    """Unproven owners stay unproven over a time without the right to serve; their terms start anew all the same."""
    script = _play("nodes 1", "host", "put A")
    run, host = script.world.nodes[0].run, script.world.hosts[0]
    assert run is not None
    script.world.network.cut.add((host.name, "n1"))
    script.world.network.cut.add(("clients", "n1"))
    index = run.machine.index
    index.distrust_owners()
    heard = index.clients[host.client].heard
    for line in ("store away", "wait 4000", "store back", "until n1 serves"):
        script.run(line)
    if index.clients:
        assert index.clients[host.client].heard > heard
    assert index.unproven


def test_a_snapshot_that_could_not_be_written_is_not_the_last() -> None:
    """A full disk, once: without another attempt the journal would grow for ever (P6)."""
    script = _play("set ha snapshot_records 100", "nodes 1", "host")
    run = script.world.nodes[0].run
    assert run is not None
    machine = run.machine
    snapshots: Snapshots = machine._roles.snapshots
    snapshots._storing = None
    for number in range(60):
        script.run(f"put K{number % 20}")
        script.run(f"remove K{number % 20} force")
    script.run("wait 1000")
    assert snapshots.confirmed
    stored = run.hear

    def full_disk(event: NodeEvent) -> None:
        stored(SnapshotFailed(event.snapshot) if isinstance(event, SnapshotStored) else event)

    run.hear = full_disk  # type: ignore[method-assign]  # the disk is full from here on
    before = snapshots._number
    for number in range(60):
        script.run(f"put L{number % 20}")
        script.run(f"remove L{number % 20} force")
    script.run("wait 1000")
    assert snapshots._number > before + 1, "it is tried again"


def _unlogged(number: int, leader_ms: int, *, as_of_n: int = 1, renewals: tuple[Renewal, ...] = ()) -> UnloggedBatch:
    return UnloggedBatch(7, number, as_of_n, leader_ms, True, 3_000, 0, renewals, ())


def test_h3_of_two_gaps_each_is_closed_at_its_own_batch() -> None:
    reader = UnloggedReader()
    reader.begin(7, known_from_start=True)
    for number, leader_ms in ((3, 100), (4, 200), (9, 900)):
        reader.offer(_unlogged(number, leader_ms))
    closed = [(batch.number, reader.gap_closed_ms) for batch in reader.due(Position(7, 1))]
    assert closed == [(3, 100), (4, 100), (9, 900)]


def test_a_later_epoch_before_our_mark_is_a_fork_not_old_news() -> None:
    """We hold records that were cut off: what a later epoch wrote in their place must not pass for applied."""
    later = ExplicitBatch(9, 105, 7, 104, 3_000, 0, (Begin(0, 9, 10_000, 10_000),))
    assert fit(Position(7, 110), later) is Fit.FORK
    older = ExplicitBatch(7, 100, 7, 99, 3_000, 0, (Begin(0, 9, 10_000, 10_000),))
    assert fit(Position(9, 110), older) is Fit.OLD


def _replica() -> AppliedState:
    state = AppliedState(lambda: Index(IndexSettings(), lambda count: 0))
    begin = encode_explicit(7, 1, (0, 0), 3_000, 0, [encode_records([Begin(0, 7, 10_000, 10_000)])])
    assert immediately(state.take_explicit(0, 1, begin, leads=7)) is Took.APPLIED
    return state


def test_5_divergence_is_judged_at_its_place_in_the_order_also_within_a_batch() -> None:
    state = _replica()
    renewal = Renewal(b"t", b"ghost", 1, 20_000, 0)
    immediately(state.take_unlogged(1, encode_unlogged(_unlogged(1, 500, as_of_n=3, renewals=(renewal,))), leads=7))
    removes = [encode_records([Remove(1, b"t", b"other-%d" % number, 0)]) for number in range(4)]
    immediately(state.take_explicit(2, 2, encode_explicit(7, 2, (7, 1), 3_000, 0, removes), leads=7))
    assert state.applied == Position(7, 5)
    assert "ghost" in state.diverged


def test_a_renewal_that_cannot_be_judged_costs_the_hand_over_its_shortcut() -> None:
    state = _replica()
    removes = [encode_records([Remove(1, b"t", b"other-%d" % number, 0)]) for number in range(4)]
    immediately(state.take_explicit(1, 2, encode_explicit(7, 2, (7, 1), 3_000, 0, removes), leads=7))
    renewal = Renewal(b"t", b"ghost", 1, 20_000, 0)
    immediately(state.take_unlogged(2, encode_unlogged(_unlogged(1, 500, as_of_n=3, renewals=(renewal,))), leads=7))
    assert not state.diverged
    assert state.unexplained


def test_h4_bulk_beyond_the_tail_of_its_epoch_is_void() -> None:
    """ "As of 108, complete, without K" lands; record 108 never does. It must not count, nor in the epoch after."""
    state = _replica()
    hint = Hint(b"t", b"k", 3)
    ahead = UnloggedBatch(7, 1, 108, 5_000, True, 3_000, 0, (), (hint,))
    immediately(state.take_unlogged(1, encode_unlogged(ahead), leads=7))
    assert state.unlogged.applied == 0
    record = Begin(0, 9, 10_000, 10_000, NEVER_MS, 0, 10_001)
    begin = encode_explicit(9, 2, (7, 1), 3_000, 0, [encode_records([record])])
    assert immediately(state.take_explicit(2, 2, begin, leads=7)) is Took.APPLIED
    more = [encode_records([Remove(1, b"t", b"other", 0)]) for _ in range(110)]
    immediately(state.take_explicit(3, 3, encode_explicit(9, 3, (9, 2), 3_000, 0, more), leads=7))
    assert state.unlogged.applied == 0
    assert not state.unlogged.waiting


def test_the_wait_for_the_old_right_also_counts_what_a_snapshot_covers() -> None:
    """A node built from a snapshot that ends at the tail has seen that batch, too: its writer may still answer."""
    leader = _replica()
    raw = encode_explicit(7, 1, (0, 0), 3_000, 0, [encode_records([Begin(0, 7, 10_000, 10_000)])])
    leader.last_write = type(leader.last_write)()  # as after loading: it knows the records, not their writer
    assert immediately(leader.take_explicit(50, 1, raw, leads=0)) is Took.OLD
    assert (leader.last_write.epoch, leader.last_write.seen_ms) == (7, 50)


def test_h3_leases_that_were_handed_over_unheard_get_the_drift_too() -> None:
    """A hand-over maps ends later by the drift: whoever missed renewals must not take any of them for over before."""
    state = _replica()
    handover = encode_explicit(7, 2, (7, 1), 3_000, 0, [encode_records([Handover(5_000, 7, 3)])])
    assert immediately(state.take_explicit(1, 2, handover, leads=7)) is Took.APPLIED
    record = Begin(0, 9, 10_000, 0, 5_000, 300)
    begin = encode_explicit(9, 3, (7, 2), 3_000, 0, [encode_records([record])])
    assert immediately(state.take_explicit(2, 3, begin, leads=9)) is Took.APPLIED
    assert state.index.floor - state.index.offset == 10_300


@pytest.mark.parametrize("expires", [True, False])
def test_5_a_standby_expires_by_its_leaders_policy_not_by_its_own(expires: bool) -> None:
    """Policies are changed one node after the other. Under `pressure` what has ended may be read again, and leased."""
    state = AppliedState(lambda: Index(IndexSettings(eviction_policy="expiry"), lambda count: 0))
    records: list[Record] = [
        Begin(0, 7, 10_000, 10_000),
        MountSegment(1, b"owner", b"segment", "seg", 0, 1 << 20, "host:1", "tcp", "host"),
        PutStart(2, b"writer", b"t", b"k", 4096, (Extent(2, 0),)),
        PutEnd(3, b"t", b"k", 3, 10_000),
    ]
    raw = encode_explicit(7, 1, (0, 0), 3_000, 0, [encode_records(records)])
    assert immediately(state.take_explicit(0, 1, raw, leads=7)) is Took.APPLIED
    batch = UnloggedBatch(7, 1, 4, 30_000, True, 3_000, 0, expires=expires)
    immediately(state.take_unlogged(1, encode_unlogged(batch), leads=7))
    assert (state.index.lookup(b"t", b"k") is None) is expires


def test_8d_a_begin_that_takes_long_costs_no_owner() -> None:
    """The store goes away while `begin` is on its way: nobody could ping, and so nobody's term has passed."""
    script = _play("nodes 2", "host", "put A", "kill n1")
    world = script.world
    run = world.nodes_by_name["n2"].run
    assert run is not None
    begun = run.machine.index.last_n + 1
    assert script._step_until(lambda: run.machine.index.last_n >= begun)  # `begin` is decided, and sent
    world.network.cut.add((world.hosts[0].name, "n2"))
    for line in ("store away", "wait 13000", "store back", "until n2 serves", "wait 2000"):
        script.run(line)
    assert run.may_serve()
    index = run.machine.index
    assert index.segments, "its owner was ended for a silence that was the store's"
    assert index.unproven, "but it may have come and gone: its first ping is waited for (H9)"
    assert script.run("get R A")[-1] == "no answer: outcome unknown"
    for line in ("heal", "wait 3000"):
        script.run(line)
    assert script.run("get R A")[-1] == "put 3"


def test_p6_a_leader_that_begins_from_a_snapshot_knows_at_once_how_long_the_journal_is() -> None:
    """Seeds 3446 and 3475: leaders that come and go, each from a snapshot, each added what two seconds bring."""
    script = _play(
        "set ha journal_batches_max 50", "set ha journal_full refuse", "set ha snapshot_records 100", "set ha copies 2",
        "nodes 1", "host", "puts A 60", "wait 3000", "kill n1", "boot n1", "until n1 serves", "wait 200",
    )  # fmt: skip
    run = script.world.nodes[0].run
    assert run is not None
    assert run.machine.ctx.state.ledger.batches > 50
    assert run.machine.index.journal_full
