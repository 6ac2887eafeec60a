"""When leases are renewed and until when they are certain: no clock, no network."""

from __future__ import annotations

from leasehold.etcd.keepalive_machine import PATIENCE_MS_MAX, KeepAliveMachine, LeaseState


def lease(machine: KeepAliveMachine, lease_id: int = 1, ttl_s: int = 6, sent_ms: int = 0) -> LeaseState:
    state = LeaseState(lease_id, ttl_s, sent_ms)
    machine.add(state)
    return state


def test_a_lease_is_renewed_every_third_of_its_term() -> None:
    machine = KeepAliveMachine()
    lease(machine)
    assert machine.take_due(1_999) == []
    assert machine.next_send_ms() == 2_000
    assert machine.take_due(2_000) == [1]
    assert machine.take_due(2_001) == [], "one renewal under way is enough"
    machine.answered(1, 6)
    assert machine.next_send_ms() == 4_000


def test_the_deadline_counts_from_when_the_renewal_was_sent() -> None:
    machine = KeepAliveMachine()
    state = lease(machine)
    assert state.deadline_ms == 6_000
    machine.take_due(2_000)
    machine.answered(1, 6)  # whenever the answer came
    assert state.deadline_ms == 8_000


def test_a_deadline_never_goes_back() -> None:
    machine = KeepAliveMachine()
    state = lease(machine)
    machine.take_due(2_000)
    machine.answered(1, 1)
    assert state.deadline_ms == 6_000
    assert state.ttl_s == 1


def test_an_endpoint_that_does_not_answer_becomes_suspect_and_all_is_due_again() -> None:
    machine = KeepAliveMachine()
    lease(machine, 1, 60)
    lease(machine, 2, 60, sent_ms=100)
    assert machine.take_due(20_100) == [1, 2]
    assert machine.suspect_at_ms() == 20_100 + PATIENCE_MS_MAX
    machine.answered(1, 60)
    assert machine.suspect_at_ms() == 20_100 + PATIENCE_MS_MAX, "one answer does not excuse the other"
    machine.connection_lost(21_200)
    assert machine.suspect_at_ms() is None
    assert machine.take_due(21_200) == [2]


def test_a_ttl_of_zero_means_that_the_lease_does_not_exist() -> None:
    machine = KeepAliveMachine()
    state = lease(machine)
    machine.take_due(2_000)
    assert machine.answered(1, 0) is state
    assert state.lost
    assert len(machine) == 0
    assert machine.next_send_ms() is None


def test_a_removed_lease_is_not_renewed_and_late_answers_are_ignored() -> None:
    machine = KeepAliveMachine()
    state = lease(machine)
    machine.take_due(2_000)
    machine.remove(state)
    assert machine.answered(1, 6) is None
    assert machine.take_due(100_000) == []
    assert state.deadline_ms == 6_000


def test_forty_thousand_leases_are_renewed_in_portions() -> None:
    machine = KeepAliveMachine()
    for number in range(40_000):
        lease(machine, number + 1, 60)
    sent = 0
    while due := machine.take_due(20_000, 1_000):
        assert len(due) <= 1_000
        sent += len(due)
        for lease_id in due:
            machine.answered(lease_id, 60)
    assert sent == 40_000


def test_a_lease_that_is_kept_by_two_is_one() -> None:
    machine = KeepAliveMachine()
    first = lease(machine)
    second = LeaseState(1, 6, 500)
    assert machine.add(second) is first
    assert first.deadline_ms == 6_500, "the later of two grants counts"
    assert machine.take_due(2_000) == [1]
    assert machine.answered(1, 6) is first
