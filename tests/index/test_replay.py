"""Primary and standby over random schedules: records, unlogged batches, fuzzy snapshots, failovers, hand-overs."""

from __future__ import annotations

import pytest
from tests.index.cluster import Cluster, assert_follows
from tests.index.kit import settings

from leasehold.index import IndexSettings

_STEPS = 3_000


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("policy", ["pressure", "expiry"])
def test_nothing_is_lost_back_or_given_twice(seed: int, policy: str) -> None:
    assert run(seed, policy) > 3


@pytest.mark.parametrize("seed", [0, 2, 3])
@pytest.mark.parametrize("policy", ["pressure", "expiry"])
def test_thousands_of_extents_in_quarantine_are_in_a_snapshot_taken_in_steps(seed: int, policy: str) -> None:
    """Some are freed and handed out again, others are quarantined, before it is complete."""
    cluster = Cluster(_settings(policy), seed, crowd=2_000)
    for _ in range(600):
        cluster.step()
    cluster.leader.check()
    cluster.standby.check()
    assert cluster.loads > 2
    assert cluster.most_quarantined > 1_000


@pytest.mark.proof
@pytest.mark.parametrize("first", range(100, 300, 10))
@pytest.mark.parametrize("policy", ["pressure", "expiry"])
def test_nothing_is_lost_over_many_more_schedules(first: int, policy: str) -> None:
    for seed in range(first, first + 10):
        run(seed, policy)


def _settings(policy: str) -> IndexSettings:
    return settings(
        lease_ttl_ms=1_000,
        put_discard_ms=1_500,
        put_release_ms=6_000,
        client_ttl_ms=600_000,
        soft_pin_ttl_ms=2_000,
        eviction_policy=policy,
    )


def run(seed: int, policy: str) -> int:
    """One random schedule, everything checked on the way: how often the leader changed."""
    cluster = Cluster(_settings(policy), seed)
    for number in range(_STEPS):
        cluster.step()
        if number % 20 == 0:
            cluster.leader.check()
            cluster.standby.check()
    cluster.commit()
    cluster.deliver(everything=True)
    if policy == "pressure":
        assert_follows(cluster.leader, cluster.standby)
    return cluster.failovers + cluster.handovers
