"""Rules for a leader: hand-overs, owners of memory, snapshots, and the length of the journal."""

from __future__ import annotations

from leasehold.ha.events import NodeEvent, SnapshotFailed, SnapshotStored
from leasehold.ha.snapshot_schedule import SnapshotSchedule
from leasehold.index.records import NEVER_MS, Begin, Handover
from leasehold.testing.sim.script import Script


def _play(*lines: str) -> Script:
    script = Script()
    for line in lines:
        shown = script.run(line)
        assert not any("BROKEN" in one for one in shown), shown
    return script


def test_a_leader_that_is_elected_again_counts_from_its_own_hand_over() -> None:
    """It took over by a switchover before; that older hand-over is not the one that its second epoch follows."""
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


def test_h9_a_store_outage_proves_no_owner() -> None:
    """Unproven owners stay unproven while the leader lease has expired; their TTLs start again all the same."""
    script = _play("nodes 1", "host", "put A")
    run, host = script.world.nodes[0].run, script.world.hosts[0]
    assert run is not None
    script.world.network.cut.add((host.name, "n1"))
    script.world.network.cut.add(("clients", "n1"))
    index = run.machine.index
    index.owners.distrust()
    before = index.owners.clients[host.client].seen
    for line in ("store away", "wait 4000", "store back", "until n1 serves"):
        script.run(line)
    if index.owners.clients:
        assert index.owners.clients[host.client].seen > before
    assert index.owners.unproven


def test_a_snapshot_that_could_not_be_written_is_tried_again() -> None:
    """A full disk, once: without another attempt the journal would grow without limit (P6)."""
    script = _play("set ha snapshot_records 100", "nodes 1", "host")
    run = script.world.nodes[0].run
    assert run is not None
    machine = run.machine
    snapshots: SnapshotSchedule = machine._roles.snapshots
    snapshots._storing = None
    for number in range(60):
        script.run(f"put K{number % 20}")
        script.run(f"remove K{number % 20} force")
    script.run("wait 1000")
    assert snapshots.confirmed
    stored = run.deliver

    def full_disk(event: NodeEvent) -> None:
        stored(SnapshotFailed(event.snapshot) if isinstance(event, SnapshotStored) else event)

    run.deliver = full_disk  # type: ignore[method-assign]  # the disk is full from now on
    before = snapshots._number
    begun_ms = script.world.clock.now_ms
    for number in range(600):
        script.run(f"put L{number % 20}")
        script.run(f"remove L{number % 20} force")
        script.run("wait 50")
    attempts, passed_s = snapshots._number - before, (script.world.clock.now_ms - begun_ms) / 1000
    assert attempts > 1, "it is tried again"
    assert passed_s > 25
    assert attempts <= 6, "after 1, 2, 4, 8, 16 seconds, not for each hundred records"
    run.deliver = stored  # type: ignore[method-assign]  # there is space again
    confirmed = snapshots.confirmed
    for number in range(40):
        script.run(f"put M{number}")
        script.run("wait 1000")
    assert snapshots.confirmed != confirmed
    assert not snapshots._failures


def test_8d_a_begin_that_takes_long_declares_no_owner_dead() -> None:
    """The store stops while `begin` is in flight: no owner could ping, so no owner's TTL has passed."""
    script = _play("nodes 2", "host", "put A", "kill n1")
    world = script.world
    run = world.nodes_by_name["n2"].run
    assert run is not None
    begun = run.machine.index.log.last_n + 1
    assert script._step_until(lambda: run.machine.index.log.last_n >= begun)  # `begin` is decided, and sent
    world.network.cut.add((world.hosts[0].name, "n2"))
    for line in ("store away", "wait 13000", "store back", "until n2 serves", "wait 2000"):
        script.run(line)
    assert run.may_serve()
    index = run.machine.index
    assert index.space.segments, "its owner was declared dead for a silence of the store"
    assert index.owners.unproven, "but it may have restarted: the leader waits for its first ping (H9)"
    assert script.run("get R A")[-1] == "no answer: outcome unknown"
    for line in ("heal", "wait 3000"):
        script.run(line)
    assert script.run("get R A")[-1] == "put 3"


def test_p6_a_leader_that_starts_from_a_snapshot_immediately_learns_the_journals_length() -> None:
    """Seeds 3446 and 3475: short-lived leaders, each from a snapshot, each added two seconds of records."""
    script = _play(
        "set ha journal_batches_max 50", "set ha journal_full refuse", "set ha snapshot_records 100", "set ha copies 2",
        "nodes 1", "host", "puts A 60", "wait 3000", "kill n1", "boot n1", "until n1 serves", "wait 200",
    )  # fmt: skip
    run = script.world.nodes[0].run
    assert run is not None
    assert run.machine.ctx.state.journal_length.batches > 50
    assert run.machine.index.log.journal_full
