"""Metrics: names follow Prometheus conventions, each has a help text and a row in docs/operations.md."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from leasehold.admin.metrics import render
from leasehold.admin.status import Counters, IndexCounts, NodeStatus
from leasehold.base import renamed

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
STATUS = NodeStatus(
    name="a",
    run="r",
    cluster="c",
    version="1",
    role="primary",
    reason="",
    may_serve=True,
    ready=True,
    index=IndexCounts(objects=3, quarantined_extents=7, evicted=5),
    other_releases={"0.3.12": 2},
    refused={"unknown function": 4},
    counters=Counters(10, 1, 2),
)


def scraped(status: NodeStatus) -> dict[str, float]:
    body, content_type = render(status)
    assert content_type.startswith("text/plain")
    families = text_string_to_metric_families(body.decode())
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_names_follow_prometheus_conventions() -> None:
    for family in text_string_to_metric_families(render(STATUS)[0].decode()):
        assert family.name.startswith(("leasehold_", "process_")), family.name
        assert family.documentation, family.name
        assert not family.name.endswith(("_ms", "_n", "_kb")), f"{family.name}: base units are seconds and bytes"
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples), family.name


def test_values_are_exported() -> None:
    found = scraped(STATUS)
    assert found["leasehold_quarantined_extents"] == 7
    assert found["leasehold_evicted_objects_total"] == 5
    assert found["leasehold_refused_total"] == 4
    assert found["leasehold_other_release_requests_total"] == 2
    assert found["leasehold_connections_turned_away_total"] == 1
    assert found["leasehold_unknown_outcomes_total"] == 2


def test_unknown_values_are_nan() -> None:
    found = scraped(STATUS)  # a primary whose durable tail is unknown
    assert math.isnan(found["leasehold_lag_records"])
    assert math.isnan(found["leasehold_behind_seconds"])


def test_renamed_metrics_are_exported_under_both_names() -> None:
    status = msgspec.structs.replace(STATUS, quarantined_records=3, buffer_quarantined_batches=4)
    found = scraped(status)
    assert renamed.METRICS
    for old, new in renamed.METRICS.items():
        assert found[old] == found[new] > 0, old
    help_texts = {family.name: family.documentation for family in text_string_to_metric_families(_page(status))}
    for old, new in renamed.METRICS.items():
        assert help_texts[old] == f"deprecated, removed in the next release: use {new}"


def _page(status: NodeStatus) -> str:
    return render(status)[0].decode()


def test_every_metric_is_in_the_operators_page() -> None:
    page = OPERATIONS.read_text()
    names = [name for name in scraped(STATUS) if not name.startswith("process_")]
    missing = [name for name in names if f"`{name}`" not in page and name not in renamed.METRICS]
    assert not missing, f"document these in docs/operations.md: {missing}"
