"""A node's status and measures in Prometheus format, built at each scrape: requests only count in plain numbers.

Renamed metrics are exported under both names for one release (`base/renamed.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from leasehold.admin import exposition
from leasehold.admin.status import NodeStatus
from leasehold.base import renamed
from leasehold.base.measures import Measure

ROLES = ("follower", "catching up", "standby", "promoting", "primary", "stepping down")


class _StatusCollector(Collector):
    def __init__(self, status: NodeStatus) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        status = self._status
        yield from _gauges(status)
        role = GaugeMetricFamily("leasehold_role", "1 for the current role of this node", labels=["role"])
        for name in ROLES:
            role.add_metric([name], 1.0 if name == status.role else 0.0)
        yield role
        mismatch = CounterMetricFamily(
            "leasehold_other_release_requests", "requests from clients of another wire release", labels=["release"]
        )
        for release, seen in status.other_releases.items():
            mismatch.add_metric([release], seen)
        yield mismatch
        yield CounterMetricFamily("leasehold_evicted_objects", "objects evicted by this worker", status.index.evicted)
        refused = CounterMetricFamily(
            "leasehold_refused", "requests and connections refused, by reason", labels=["reason"]
        )
        for reason, seen in status.refused.items():
            refused.add_metric([reason], seen)
        yield refused
        for name, (help_text, seen) in _counters(status).items():
            yield CounterMetricFamily(f"leasehold_{name}", help_text, seen)
        yield InfoMetricFamily(
            "leasehold_node",
            "name, cluster, version and durability of this node",
            {
                "name": status.name,
                "cluster": status.cluster,
                "version": status.version,
                "durability": status.durability,
            },
        )


def _counters(status: NodeStatus) -> dict[str, tuple[str, int]]:
    counters = status.counters
    return {
        "connections_accepted": ("client connections accepted", counters.connections_accepted),
        "connections_turned_away": (
            "client connections closed because of connections_max",
            counters.connections_turned_away,
        ),
        "unknown_outcomes": ("calls that failed at call_deadline with an unknown outcome", counters.unknown_outcomes),
    }


def _gauges(status: NodeStatus) -> Iterator[Metric]:
    index = status.index
    plain: list[tuple[str, str, float]] = [
        ("may_serve", "1 while this node holds the leader lease and may answer (P4)", status.may_serve),
        ("ready", "1 if this node may serve or be promoted (P7)", status.ready),
        ("epoch", "epoch that this node leads or follows", status.epoch),
        ("applied_record", "number of the last journal record applied", status.applied_n),
        ("durable_record", "number of the last journal record known to be durable", status.durable_n),
        (
            "snapshot_loaded_ratio",
            "share of a snapshot that this node is loading; NaN if it loads none",
            _known(status.snapshot_loaded),
        ),
        ("lag_records", "durable records not yet applied; NaN if unknown", _known(status.lag_records)),
        (
            "behind_seconds",
            "time since this standby last saw a write of the primary; NaN on the primary, and if unknown",
            _known(status.behind_ms) / 1000,
        ),
        (
            "durable_copies",
            "nodes whose snapshots cover the truncated part of the journal; 0: unknown",
            status.durable_copies,
        ),
        ("journal_batches", "logged batches in the journal, as known to this node", status.journal_batches),
        ("journal_bytes", "size of the logged batches in the journal", status.journal_bytes),
        ("journal_full", "1 while puts are refused because the journal is full (P6)", status.journal_full),
        ("quarantined_records", "journal records that this node could not apply", status.quarantined_records),
        (
            "buffer_waiting_bytes",
            "buffered records that were acknowledged by earlier runs and are not in the journal yet",
            status.buffer_waiting_bytes,
        ),
        (
            "buffer_quarantined_batches",
            "acknowledged batches in the buffer that can no longer be added to the journal",
            status.buffer_quarantined_batches,
        ),
        ("paused", "1 while failover is paused", status.paused),
        ("connections", "open client connections", status.connections),
        ("held_answers", "answers that wait until their record is durable (P1)", status.held_answers),
        ("uptime_seconds", "time since this worker started", status.up_ms / 1000),
        ("objects", "objects in the index", index.objects),
        ("unfinished_puts", "puts that were started and not finished", index.unfinished),
        ("segments", "mounted segments", index.segments),
        ("clients", "known storage clients", index.clients),
        ("pool_used_bytes", "bytes allocated", index.bytes_used),
        ("pool_total_bytes", "bytes lent by all segments", index.bytes_total),
        (
            "quarantined_extents",
            "extents of removed objects in quarantine: clients may still read or write them",
            index.quarantined_extents,
        ),
    ]
    old_names = {new: old for old, new in renamed.METRICS.items()}
    for short, help_text, value in plain:
        name = f"leasehold_{short}"
        yield GaugeMetricFamily(name, help_text, value=float(value))
        if name in old_names:
            yield GaugeMetricFamily(
                old_names[name], f"deprecated, removed in the next release: use {name}", value=float(value)
            )


def _known(value: float) -> float:
    """NaN for -1, which means unknown: a sum or an average over nodes must not count it as a number."""
    return math.nan if value < 0 else float(value)


def render(status: NodeStatus, measures: Iterable[Measure] = ()) -> tuple[bytes, str]:
    """The response to a scrape: body and content type."""
    return exposition.render(_StatusCollector(status), exposition.Measured(lambda: measures))
