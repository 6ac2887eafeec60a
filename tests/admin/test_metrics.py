"""What Prometheus reads: names as it wants them, each with its meaning, each in the operator's page."""

from __future__ import annotations

import math
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from leasehold.admin.metrics import render
from leasehold.admin.status import Counters, IndexCounts, NodeStatus

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
    index=IndexCounts(objects=3, limbo_extents=7, evicted=5),
    other_releases={"0.3.12": 2},
    refused={"unknown function": 4},
    counters=Counters(10, 1, 2),
)


def scraped(status: NodeStatus) -> dict[str, float]:
    body, content_type = render(status)
    assert content_type.startswith("text/plain")
    families = text_string_to_metric_families(body.decode())
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_names_are_as_prometheus_wants_them() -> None:
    for family in text_string_to_metric_families(render(STATUS)[0].decode()):
        assert family.name.startswith("leasehold_"), family.name
        assert family.documentation, family.name
        assert not family.name.endswith(("_ms", "_n", "_kb")), f"{family.name}: base units are seconds and bytes"
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples), family.name


def test_every_number_is_there() -> None:
    found = scraped(STATUS)
    assert found["leasehold_limbo_extents"] == 7
    assert found["leasehold_evicted_objects_total"] == 5
    assert found["leasehold_refused_total"] == 4
    assert found["leasehold_other_release_requests_total"] == 2
    assert found["leasehold_connections_turned_away_total"] == 1
    assert found["leasehold_unknown_outcomes_total"] == 2


def test_not_known_is_no_number() -> None:
    found = scraped(STATUS)  # a primary, and its tail is not known
    assert math.isnan(found["leasehold_lag_records"])
    assert math.isnan(found["leasehold_behind_seconds"])


def test_every_metric_is_in_the_operators_page() -> None:
    page = OPERATIONS.read_text()
    missing = [name for name in scraped(STATUS) if f"`{name}`" not in page]
    assert not missing, f"say in docs/operations.md what these mean: {missing}"
