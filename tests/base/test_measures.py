"""Counters and histograms: every value is in one bucket, and what is rendered agrees with what was counted."""

from __future__ import annotations

import random

from prometheus_client.parser import text_string_to_metric_families

from leasehold.admin.exposition import Measured, render
from leasehold.base.measures import SLOW_CALLS_KEPT, SLOW_NS, Calls, Histogram, Measure, call_measures


def test_every_value_is_below_the_bound_of_its_bucket() -> None:
    rng = random.Random(1)
    values = [rng.randrange(1 << rng.randrange(1, 45)) for _ in range(2_000)]
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    assert histogram.count == len(values)
    assert histogram.total == sum(values)
    for bound, below in histogram.buckets():
        assert below == sum(value < bound for value in values)


def test_a_quantile_is_within_its_bucket() -> None:
    histogram = Histogram()
    for value in range(1, 100_001):
        histogram.add(value * 1_000)
    assert 25_000_000 < histogram.quantile(0.5) < 100_000_000
    assert histogram.quantile(0.5) < histogram.quantile(0.99)
    assert Histogram().quantile(0.99) == 0.0


def test_the_difference_of_two_copies_is_what_was_added_between() -> None:
    histogram = Histogram()
    histogram.add(5_000)
    before = histogram.copy()
    histogram.add(9_000_000)
    assert (before.count, histogram.since(before).count, histogram.since(before).total) == (1, 1, 9_000_000)


def test_calls_are_counted_by_function_and_slow_ones_are_kept() -> None:
    calls = Calls({1: "Get", 2: "Put"}.__getitem__, lambda: 7)
    calls.answered([1, 1, 2], 20_000, "10.0.0.1:5")
    for _ in range(SLOW_CALLS_KEPT + 3):
        calls.answered([2], SLOW_NS + 1_000_000, "10.0.0.1:6")
    calls.failed(2, "NO_SPACE", 3)
    durations = calls.durations()
    assert (durations["Get"].count, durations["Put"].count) == (2, 1 + SLOW_CALLS_KEPT + 3)
    assert calls.failures() == {("Put", "NO_SPACE"): 3}
    assert len(calls.slow()) == SLOW_CALLS_KEPT
    assert (calls.slow()[0].function, calls.slow()[0].duration_ms, calls.slow()[0].peer) == ("Put", 101, "10.0.0.1:6")


def test_the_text_of_a_scrape_has_every_measure() -> None:
    calls = Calls({1: "Get"}.__getitem__)
    calls.answered([1], 5_000_000, "")
    calls.failed(1, "NOT_FOUND")
    sizes = Histogram(shift=6)
    sizes.add(100)
    measures = [
        *call_measures(calls, "leasehold"),
        Measure("leasehold_commit_bytes", "sizes", "bytes", {(): sizes}),
        Measure.gauge("leasehold_x", "a gauge", 2.5),
    ]
    text = render(Measured(lambda: measures))[0].decode()
    samples = {
        (sample.name, *(value for label, value in sorted(sample.labels.items()) if label != "le")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["leasehold_request_seconds_count", "Get"] == 1
    assert samples["leasehold_request_seconds_sum", "Get"] == 0.005
    assert samples["leasehold_failed_results_total", "NOT_FOUND", "Get"] == 1
    assert samples["leasehold_commit_bytes_sum",] == 100
    assert samples["leasehold_x",] == 2.5
    assert "process_resident_memory_bytes" in text
