"""One hour of rates: differences of counters, bounded, and right over a new index and a late timer."""

from __future__ import annotations

from typing import Any

from leasehold.admin.samples import INTERVAL_MS, KEPT, SampleRing, Totals
from leasehold.base.measures import Histogram


def totals(**changes: Any) -> Totals:
    plain: dict[str, Any] = {
        "calls": {}, "call_ns": Histogram(), "failures": 0, "hits": 0, "misses": 0, "store_writes": 0, "evicted": 0,
        "commit_ns": Histogram(), "objects": 0, "used_bytes": 0, "connections": 0,
    }  # fmt: skip
    return Totals(**{**plain, **changes})


def test_a_sample_has_the_rates_since_the_one_before() -> None:
    ring, commits = SampleRing(), Histogram()
    ring.add(10_000, 1, totals(calls={"Get": 10}, hits=100, commit_ns=commits.copy()))
    assert ring.last() == [], "one reading has no rate"
    commits.add(5_000_000)
    ring.add(12_000, 2, totals(calls={"Get": 30, "Put": 4, "Ping": 0}, hits=300, commit_ns=commits, objects=7))
    (sample,) = ring.last()
    assert (sample.wall_ms, sample.calls, sample.hits, sample.objects) == (2, {"Get": 10.0, "Put": 2.0}, 100.0, 7)
    assert 2 < sample.commit_p50_ms < 9


def test_a_late_timer_and_a_new_index_give_no_wrong_rates() -> None:
    ring = SampleRing()
    ring.add(0, 0, totals(hits=1_000))
    ring.add(10_000, 1, totals(hits=2_000))
    assert ring.last()[0].hits == 100.0, "the interval was ten seconds"
    ring.add(12_000, 2, totals(hits=50))
    assert ring.last()[-1].hits == 25.0, "a node that rebuilt its index counts from zero"


def test_the_memory_is_one_hour() -> None:
    ring = SampleRing()
    for number in range(KEPT + 100):
        ring.add(number * INTERVAL_MS, number, totals())
    assert len(ring.last()) == KEPT
    assert KEPT * INTERVAL_MS == 3_600_000
    assert [sample.wall_ms for sample in ring.last(2)] == [KEPT + 98, KEPT + 99]
