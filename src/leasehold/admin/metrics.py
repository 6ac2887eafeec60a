"""A node's status as Prometheus reads it. Made anew for every scrape: nothing on the hot path counts twice."""

from __future__ import annotations

import math
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from leasehold.admin.status import NodeStatus

ROLES = ("follower", "catching up", "standby", "promoting", "primary", "stepping down")


class _StatusCollector(Collector):
    def __init__(self, status: NodeStatus) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        status = self._status
        yield from _gauges(status)
        role = GaugeMetricFamily("leasehold_role", "1 for the role that this node has", labels=["role"])
        for name in ROLES:
            role.add_metric([name], 1.0 if name == status.role else 0.0)
        yield role
        mismatch = CounterMetricFamily(
            "leasehold_other_release_requests", "requests of another wire release than the port's", labels=["release"]
        )
        for release, seen in status.other_releases.items():
            mismatch.add_metric([release], seen)
        yield mismatch
        yield CounterMetricFamily("leasehold_evicted_objects", "objects evicted by this worker", status.index.evicted)
        refused = CounterMetricFamily(
            "leasehold_refused", "requests and connections refused, by why", labels=["reason"]
        )
        for reason, seen in status.refused.items():
            refused.add_metric([reason], seen)
        yield refused
        for name, (help_text, seen) in _counters(status).items():
            yield CounterMetricFamily(f"leasehold_{name}", help_text, seen)
        yield InfoMetricFamily(
            "leasehold_node",
            "which node this is",
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
        "connections_accepted": ("client connections taken", counters.connections_accepted),
        "connections_turned_away": ("client connections closed at once: too many", counters.connections_turned_away),
        "unknown_outcomes": ("calls that waited too long and were told: outcome unknown", counters.unknown_outcomes),
    }


def _gauges(status: NodeStatus) -> Iterator[Metric]:
    index = status.index
    plain: list[tuple[str, str, float]] = [
        ("may_serve", "1 while this node may answer (P4)", status.may_serve),
        ("ready", "1 if this node may serve or be promoted (P7)", status.ready),
        ("epoch", "the epoch that this node leads or follows", status.epoch),
        ("applied_record", "number of the last journal record applied", status.applied_n),
        ("durable_record", "number of the last journal record known to be durable", status.durable_n),
        ("lag_records", "durable records not yet applied; NaN where the tail is not known", _known(status.lag_records)),
        (
            "behind_seconds",
            "how long ago this standby saw the primary write; NaN on the primary, and where nothing was seen",
            _known(status.behind_ms) / 1000,
        ),
        (
            "durable_copies",
            "nodes on whose disks that is which has left the journal; 0: not known",
            status.durable_copies,
        ),
        ("journal_batches", "explicit batches in the journal, as this node knows it", status.journal_batches),
        ("journal_bytes", "size of the explicit batches in the journal", status.journal_bytes),
        ("journal_full", "1 while puts are refused because the journal is at its bound (P6)", status.journal_full),
        ("set_aside_records", "records that could not be applied", status.quarantined_records),
        ("buffer_waiting_bytes", "acknowledged by earlier runs, not yet in the journal", status.buffer_waiting_bytes),
        ("buffer_aside_batches", "acknowledged batches that were set aside", status.buffer_aside_batches),
        ("paused", "1 while nobody may campaign", status.paused),
        ("connections", "open client connections", status.connections),
        ("held_answers", "answers that wait until what they show is durable (P1)", status.held_answers),
        ("uptime_seconds", "how long this worker has run", status.up_ms / 1000),
        ("objects", "objects in the index", index.objects),
        ("unfinished_puts", "puts that have begun and not ended", index.unfinished),
        ("segments", "segments mounted", index.segments),
        ("clients", "clients known", index.clients),
        ("pool_used_bytes", "bytes allocated", index.bytes_used),
        ("pool_total_bytes", "bytes lent by all segments", index.bytes_total),
        ("limbo_extents", "extents that may still be read or written after their object went", index.limbo_extents),
    ]
    for name, help_text, value in plain:
        yield GaugeMetricFamily(f"leasehold_{name}", help_text, value=float(value))


def _known(value: int) -> float:
    """-1 is "not known": a sum or an average over nodes must not take it for a number."""
    return math.nan if value < 0 else float(value)


def render(status: NodeStatus) -> tuple[bytes, str]:
    """The body of a scrape, and its content type."""
    registry = CollectorRegistry()
    registry.register(_StatusCollector(status))
    return generate_latest(registry), CONTENT_TYPE_LATEST
