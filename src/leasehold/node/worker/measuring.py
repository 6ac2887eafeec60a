"""The measures of a running node, collected from its parts at each scrape."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from leasehold.base.measures import Measure, call_measures
from leasehold.node.worker.run import RunningNode
from leasehold.runtime.clock import wall_us

_MICRO: Final = 1e-6


def node_measures(node: RunningNode) -> list[Measure]:
    """Everything that is measured beyond the node's status."""
    reads = node.machine.index.reads
    return [
        *call_measures(node.calls, "leasehold"),
        Measure(
            "leasehold_lookups",
            "keys that clients looked up, by whether they were found",
            "counter",
            {("hit",): reads.hits, ("miss",): reads.misses},
            ("result",),
        ),
        *node.driver.meter.measures(),
        *_snapshots(node),
        *_disk(node.config.node.data_dir),
        *_guardian(node),
    ]


def _snapshots(node: RunningNode) -> Iterator[Measure]:
    files = node.keeping.snapshots
    age_s = (wall_us() - files.written_wall_us) * _MICRO if files.written_wall_us else float("nan")
    yield Measure.gauge("leasehold_snapshot_age_seconds", "age of the newest complete snapshot; NaN without one", age_s)
    yield Measure.counter("leasehold_snapshot_failures", "snapshots that could not be written", files.failures)


def _disk(folder: str) -> Iterator[Measure]:
    try:
        disk = os.statvfs(folder)
    except OSError:  # the directory was removed or unmounted: the missing metric is the alarm
        return
    free_bytes, total_bytes = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    yield Measure.gauge("leasehold_disk_free_bytes", "free space on the disk of the data directory", free_bytes)
    yield Measure.gauge("leasehold_disk_total_bytes", "size of the disk of the data directory", total_bytes)


def _guardian(node: RunningNode) -> Iterator[Measure]:
    counts = node.lifeline.guardian_counts()
    yield Measure.counter(
        "leasehold_worker_restarts", "workers that the guardian has started after the first", counts.worker_restarts
    )
    yield Measure.counter(
        "leasehold_connections_held", "client connections that waited in the guardian for a primary", counts.held
    )
    yield Measure.counter(
        "leasehold_connections_forwarded", "client connections forwarded to another node's worker", counts.forwarded
    )
    yield Measure.counter(
        "leasehold_connections_not_forwarded",
        "client connections reset because too many waited, or no primary was found in time",
        counts.refused,
    )
    yield Measure.gauge(
        "leasehold_connections_waiting", "client connections that wait in the guardian for a primary", counts.waiting
    )
