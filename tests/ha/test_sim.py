"""The simulated cluster: a hundred seeds keep every promise, and every planted bug is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold.testing.sim import run_seed

EVENTS = 5_000
FOUND_BUGS = [
    int(line.split()[0])
    for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize("first", range(0, 100, 5))
def test_seeds_keep_the_promises(first: int) -> None:
    for seed in range(first, first + 5):
        outcome = run_seed(seed, events=EVENTS)
        assert outcome.ok, outcome.story()


@pytest.mark.parametrize("seed", FOUND_BUGS)
def test_seeds_that_once_found_a_bug(seed: int) -> None:
    outcome = run_seed(seed, events=EVENTS)
    assert outcome.ok, outcome.story()


def test_the_seeds_take_every_path_of_the_event_stream() -> None:
    outcomes = [run_seed(seed, events=EVENTS) for seed in range(10)]
    assert sum(outcome.event_reloads for outcome in outcomes) > 3
    assert sum(outcome.event_resumes for outcome in outcomes) > 10
    assert sum(outcome.event_overflows for outcome in outcomes) > 0


@pytest.mark.parametrize("first", [3_000, 3_020])
def test_worlds_with_quotas_and_drains_keep_the_promises(first: int) -> None:
    outcomes = [run_seed(seed, events=EVENTS) for seed in range(first, first + 20)]
    for outcome in outcomes:
        assert outcome.ok, outcome.story()
    assert sum(outcome.quota_changes for outcome in outcomes) > 20
    assert sum(outcome.quota_refusals for outcome in outcomes) > 20
    assert sum(outcome.quota_evictions for outcome in outcomes) > 0
    assert sum(outcome.drains_started for outcome in outcomes) > 5
    assert sum(outcome.drains_succeeded for outcome in outcomes) > 0
    assert sum(outcome.drains_canceled for outcome in outcomes) > 0


def test_adopted_pools_keep_the_promises() -> None:
    outcomes = [run_seed(seed, events=EVENTS) for seed in range(100_000, 100_020)]
    for outcome in outcomes:
        assert outcome.ok, outcome.story()
    assert sum(outcome.adopted_objects for outcome in outcomes) > 50
    assert sum(outcome.adopted_bound for outcome in outcomes) > 10
    assert sum(outcome.old_readers for outcome in outcomes) > 20
    assert sum(outcome.old_writers for outcome in outcomes) > 10


def test_a_node_that_stays_down_until_the_end_does_not_leave_after_it() -> None:
    outcome = run_seed(100_057, events=3_000)  # chaos ends before the node was to leave
    assert outcome.ok, outcome.story()


def test_a_seed_always_gives_the_same_events() -> None:
    one, two = run_seed(11, events=2_000), run_seed(11, events=2_000)
    assert (one.lines, one.events, one.records) == (two.lines, two.events, two.records)


@pytest.mark.parametrize(
    ("bug", "first", "promises"),  # where the search starts: a hint that saves time
    [
        ("early-put-end", 71, ("P1",)),
        ("early-space", 0, ("P1", "P3")),
        ("no-grace", 19, ("P2",)),
        ("no-wait", 2, ("P4",)),
        ("no-lease", 35, ("P4",)),
        ("early-miss", 0, ("P1", "P2", "P5")),
        ("no-quarantine", 0, ("P2", "P3")),
        ("no-skip", 0, ("P2",)),
        ("early-copy", 2, ("P2", "P3")),
        ("forget-pin", 53, ("P1", "convergence")),
        ("trust-owners", 4, ("P7",)),
        ("no-fence", 65, ("P1", "P2", "P3", "P4", "P5")),
        ("early-event", 0, ("events",)),
        ("silent-overflow", 10, ("events",)),
        ("resume-any-epoch", 0, ("events",)),
        ("page-wins", 8, ("events",)),
        ("early-page", 101, ("events",)),
        ("late-page", 17, ("events",)),
        ("early-drain", 3_006, ("P1",)),
        ("snapshot-without-drains", 3_000, ("drain",)),
        ("drain-ends-early", 3_000, ("drain",)),
        ("drained-is-placeable", 3_000, ("invariant", "drain")),
        ("early-quota", 3_002, ("P1",)),
        ("snapshot-without-quotas", 3_002, ("quota",)),
        ("quota-never-released", 3_002, ("invariant",)),
        ("quota-after-the-put", 3_004, ("quota",)),
        ("quota-evicts-leased", 3_002, ("P2",)),
        ("adopt-before-the-cut", 100_001, ("P3",)),
        ("old-master-wakes", 100_006, ("P3",)),
        ("unlisted-not-quarantined", 100_001, ("P3",)),
        ("bind-by-endpoint", 100_001, ("P3",)),
        ("adopt-own-grace", 100_003, ("P2", "P3")),
    ],
)
def test_planted_bugs_are_found(bug: str, first: int, promises: tuple[str, ...]) -> None:
    for seed in range(first, first + 200):
        outcome = run_seed(seed, events=EVENTS, bugs=frozenset([bug]))
        if not outcome.ok:
            assert outcome.broken in promises, outcome.story()
            assert outcome.sentence in outcome.story()
            return
    pytest.fail(f"200 seeds did not find {bug}")


@pytest.mark.proof
@pytest.mark.parametrize("first", range(1_000, 3_000, 50))
def test_two_thousand_more_seeds(first: int) -> None:
    for seed in range(first, first + 50):
        outcome = run_seed(seed, events=EVENTS)
        assert outcome.ok, outcome.story()
