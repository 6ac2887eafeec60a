"""Decisions of a guardian, event by event."""

from __future__ import annotations

from leasehold.ha.guardian import (
    AcceptConnections,
    Effect,
    Exit,
    GuardianMachine,
    GuardianSettings,
    Kill,
    Reaped,
    Release,
    Released,
    RequestStop,
    Say,
    Spawn,
    Spawned,
    SpawnFailed,
    Start,
    StopRequested,
    Tick,
    WorkerServes,
)

SETTINGS = GuardianSettings()


def acts(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if not isinstance(effect, Say)]


def started(run: str = "r1") -> GuardianMachine:
    machine = GuardianMachine(SETTINGS)
    assert machine.handle(0, Start()) == [AcceptConnections(enabled=True), Spawn(())]
    assert machine.handle(0, Spawned(run)) == []
    return machine


def tick_through(machine: GuardianMachine, start_ms: int, end_ms: int, beats: int) -> list[Effect]:
    seen: list[Effect] = []
    for now_ms in range(start_ms, end_ms, 100):
        seen += acts(machine.handle(now_ms, Tick(beats)))
    return seen


def test_the_leader_key_is_deleted_only_after_the_worker_was_reaped() -> None:
    machine = started()
    machine.handle(10, Tick(1))
    assert tick_through(machine, 100, 4_000, beats=1) == [Kill("r1")], "killed once, and nothing is released yet"
    assert acts(machine.handle(4_001, Reaped("r1", "killed by signal 9"))) == [
        AcceptConnections(enabled=True),
        Release("r1", "killed by signal 9"),
    ]


def test_a_worker_without_heartbeats_is_killed_after_the_timeout_and_not_before() -> None:
    machine = started()
    machine.handle(0, Tick(1))
    assert tick_through(machine, 100, SETTINGS.heartbeat_timeout_ms, beats=1) == []
    assert Kill("r1") in tick_through(
        machine, SETTINGS.heartbeat_timeout_ms, SETTINGS.heartbeat_timeout_ms + 300, beats=1
    )


def test_a_guardian_that_was_stopped_itself_does_not_kill_its_worker() -> None:
    machine = started()
    machine.handle(0, Tick(7))
    assert machine.handle(60_000, Tick(7)) == [], "both were stopped for a minute: the worker gets its time"
    assert machine.handle(60_100, Tick(8)) == []


def test_a_starting_worker_has_more_time_until_its_first_heartbeat() -> None:
    machine = started()
    assert tick_through(machine, 0, 30_000, beats=0) == []


def test_a_worker_that_loads_has_more_time_between_heartbeats() -> None:
    """A snapshot of a million objects loads for longer than the heartbeat timeout: the worker was killed repeatedly."""
    machine = started()
    machine.handle(0, Tick(1, patient=True))
    for now_ms in range(100, 60_000, 100):
        assert machine.handle(now_ms, Tick(1, patient=True)) == []
    machine.handle(60_000, Tick(2, patient=False))
    assert tick_through(machine, 60_100, 63_000, beats=2) == [Kill("r1")]


def test_the_forwarder_is_open_unless_the_worker_serves() -> None:
    machine = started()
    assert machine.handle(5, WorkerServes("r1", serving=True)) == [AcceptConnections(enabled=False)]
    assert machine.handle(6, WorkerServes("r1", serving=True)) == []
    assert machine.handle(7, WorkerServes("r0", serving=False)) == [], "a word of an earlier run counts for nothing"
    assert machine.handle(8, WorkerServes("r1", serving=False)) == [AcceptConnections(enabled=True)]


def test_restarts_back_off_and_name_the_runs_that_were_reaped() -> None:
    machine = started()
    now_ms = 0
    pauses: list[int] = []
    for death in range(1, 6):
        machine.handle(now_ms, Reaped(f"r{death}", "exit status 1"))
        machine.handle(now_ms, Released(f"r{death}", was_leader=False))
        reaped_ms = now_ms
        effects: list[Effect] = []
        while not effects:
            now_ms += 10
            effects = machine.handle(now_ms, Tick(0))
        assert effects == [Spawn(tuple(f"r{n}" for n in range(1, death + 1)))]
        pauses.append(now_ms - reaped_ms)
        machine.handle(now_ms, Spawned(f"r{death + 1}"))
    assert pauses == [300, 600, 1_200, 2_400, 4_800], "the host's cores belong to the failover first"


def test_failed_worker_starts_are_retried_with_back_off() -> None:
    machine = GuardianMachine(SETTINGS)
    machine.handle(0, Start())
    now_ms, pauses = 0, []
    for _ in range(3):
        (effect,) = machine.handle(now_ms, SpawnFailed("Too many open files"))
        assert isinstance(effect, Say)
        failed_ms = now_ms
        while not acts(machine.handle(now_ms, Tick(0))):
            now_ms += 10
        pauses.append(now_ms - failed_ms)
    assert pauses == [300, 600, 1_200]
    machine.handle(now_ms, Spawned("r1"))
    assert machine.run == "r1"


def test_a_guardian_without_a_worker_can_be_stopped() -> None:
    machine = GuardianMachine(SETTINGS)
    machine.handle(0, Start())
    machine.handle(0, SpawnFailed("Cannot allocate memory"))
    assert machine.handle(10, StopRequested()) == [Exit()]


def test_stopping_hands_over_first_and_ends_when_the_leader_key_is_deleted() -> None:
    machine = started()
    machine.handle(5, Tick(1))
    assert acts(machine.handle(10, StopRequested())) == [RequestStop("r1")]
    released = Release("r1", "exit status 0", hurry=True)
    assert acts(machine.handle(20, Reaped("r1", "exit status 0"))) == [AcceptConnections(enabled=True), released]
    assert acts(machine.handle(30, Released("r1", was_leader=False))) == [Exit()]


def test_a_stop_does_not_wait_for_a_worker_that_has_not_started() -> None:
    """It still loads, for a second or two: there is nothing to hand over, and an operator waits."""
    machine = started()
    machine.handle(5, Tick(0))
    assert acts(machine.handle(10, StopRequested())) == [Kill("r1")]
    assert tick_through(machine, 100, 20_000, beats=0) == []


def test_a_worker_that_does_not_stop_is_killed() -> None:
    machine = started()
    machine.handle(0, Tick(1))
    machine.handle(0, StopRequested())
    beats, killed_ms = 1, -1
    for now_ms in range(100, 20_000, 100):
        beats += 1
        if acts(machine.handle(now_ms, Tick(beats))) == [Kill("r1")]:
            killed_ms = now_ms
            break
    assert killed_ms == SETTINGS.stop_timeout_ms
