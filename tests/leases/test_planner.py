"""The planner against the figures of `docs/planner.md` (schedule 19: L + D is not true of etcd)."""

from __future__ import annotations

import json
from typing import TypedDict

import pytest
from click.testing import CliRunner

from leasehold.base.errors import InvalidArgument
from leasehold.cli.main import leasehold
from leasehold.leases import holder_deadline_ms, margin_ms, plan
from leasehold.leases.timeline import draw


class Example(TypedDict):
    lease_ms: int
    renew_ms: int
    restart_ms: int


EXAMPLE: Example = {"lease_ms": 25_000, "renew_ms": 8_000, "restart_ms": 10_000}


def test_the_embedded_store_keeps_expiry_over_a_restart() -> None:
    found = plan(**EXAMPLE, store="embedded")
    assert (found.outage_holder_death_s, found.outage_with_restart_s) == (25, 35)


def test_schedule_19_etcd_gives_the_full_term_again_after_a_restart() -> None:
    found = plan(**EXAMPLE, store="etcd", election_timeout_ms=1_000)
    assert found.outage_with_restart_s == 2 * 25 + 10 + 1


def test_schedule_19_what_was_seen_on_etcd_is_within_the_worst_case() -> None:
    """L = 6, killed at 5.0, up at 7.0: the key was deleted at 15.6, which L + D = 8 does not cover."""
    found = plan(lease_ms=6_000, renew_ms=2_000, restart_ms=2_000, store="etcd", election_timeout_ms=2_000)
    assert 15.6 <= found.outage_with_restart_s <= 16


def test_the_smallest_lease_survives_and_a_millisecond_less_does_not() -> None:
    lease_min_ms = round(plan(**EXAMPLE).lease_min_s * 1_000)
    assert not plan(lease_ms=lease_min_ms, renew_ms=8_000, restart_ms=10_000).broken
    assert [law.name for law in plan(lease_ms=lease_min_ms - 2, renew_ms=8_000, restart_ms=10_000).broken] == [
        "survives a restart"
    ]


def test_ten_seconds_above_gives_twenty_five_below_and_a_worst_case_of_thirty_five() -> None:
    found = plan(**EXAMPLE, above_ms=10_000)
    assert found.dependent_rule_of_thumb_s == 25
    assert found.outage_rule_of_thumb_s == 35
    assert found.dependent_lease_min_s <= 25
    assert not found.broken
    assert [law.name for law in found.risky] == ["not stacked"]


def test_the_same_stack_on_etcd_is_too_tight() -> None:
    found = plan(**EXAMPLE, above_ms=10_000, store="etcd")
    assert [law.name for law in found.broken] == ["outlasts the gap above"]


def test_a_holder_stops_before_its_grantor_counts_the_lease_as_expired_at_any_drift_within_the_bound() -> None:
    for term_ms in (10, 999, 10_000, 86_400_000):
        for drift_ppm in (0, 100, 1_000, 100_000):
            usable_ms = holder_deadline_ms(0, term_ms, drift_ppm)
            slow_holder_real_ms = (usable_ms + 1) * (1 + drift_ppm / 1_000_000)
            assert slow_holder_real_ms <= term_ms + 1
            assert usable_ms == term_ms - margin_ms(term_ms, drift_ppm)


@pytest.mark.parametrize(
    "bad",
    [
        {"lease_ms": 0},
        {"lease_ms": -5},
        {"lease_ms": 10**15},
        {"lease_ms": 1_000, "renew_ms": -1},
        {"lease_ms": 1_000, "drift_ppm": 500_000},
        {"lease_ms": 1_000, "store": "zookeeper"},
        {"lease_ms": 1_000, "restart_above_ms": 5},
    ],
)
def test_absurd_numbers_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        plan(**bad)  # type: ignore[arg-type]  # the point is to pass what the types forbid


def test_command_as_json() -> None:
    run = CliRunner().invoke(leasehold, ["plan", "--lease", "25s", "--renew", "8s", "--restart", "10s", "--json"])
    assert run.exit_code == 0
    found = json.loads(run.output)
    assert {"outage_holder_death_s", "outage_with_restart_s", "lease_min_s", "stop_before_s"} <= set(found)
    assert {"dependent_lease_min_s", "laws"} <= set(found)
    assert all(law["holds"] and law["why"] for law in found["laws"])


def test_broken_laws_end_with_exit_code_one() -> None:
    run = CliRunner().invoke(leasehold, ["plan", "--lease", "3s", "--renew", "1s", "--restart", "10s"])
    assert run.exit_code == 1
    assert "BROKEN survives a restart" in run.output


def test_bare_numbers_are_refused() -> None:
    run = CliRunner().invoke(leasehold, ["plan", "--lease", "25"])
    assert run.exit_code == 2
    assert "unit" in run.output


def test_plot_draws_every_row_equally_wide() -> None:
    lines = draw(plan(**EXAMPLE))
    assert len({line.rindex("│") for line in lines[:-1]}) == 1
    run = CliRunner().invoke(leasehold, ["plan", "--lease", "25s", "--restart", "10s", "--plot"])
    assert "successor" in run.output
