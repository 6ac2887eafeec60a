"""Every reason to worry about a cluster, each with its remedy: for `leasehold status` and the dashboard. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from leasehold.admin.status import ClusterStatus, NodeStatus
from leasehold.base.units import format_bytes


class Worry(Struct, frozen=True):
    """One problem. `serious`: clients wait now, or would wait after the next failure."""

    what: str
    remedy: str
    serious: bool = False

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"


def cluster_worries(cluster: ClusterStatus, standbys: int, level: int) -> Iterator[Worry]:
    """Problems of the cluster as the store records it.

    `standbys` is the number of nodes that may be promoted, `level` the cluster's feature level.
    """
    if cluster.paused:
        yield Worry(f"failover is paused {cluster.paused}", "no node takes over until `leasehold resume`")
    for one in cluster.forged:
        yield Worry(
            f"{one} was not written by a node of this cluster, and is ignored",
            "find out which client of the store writes it",
            serious=True,
        )
    if not cluster.leader:
        yield Worry("no node leads, so calls wait", "see `leasehold history` for the reason", serious=True)
    if not standbys:
        yield Worry(
            "no standby is ready",
            "if the primary fails now, there is an outage until a node is ready: start another node",
            serious=True,
        )
    if cluster.durable_copies == 1:
        yield Worry("durable_copies 1: records truncated from the journal are on one disk only", "start another node")

    for peer in cluster.nodes:
        if peer.reads_level < level:
            yield Worry(
                f"{peer.name} cannot read feature level {level} and does not campaign",
                "upgrade it, or lower the level (`leasehold feature-level lower --help`)",
            )


def node_worries(status: NodeStatus) -> Iterator[Worry]:
    """Problems that a node reports of itself."""
    name = status.name
    if not status.ready:
        yield Worry(f"{name} is not ready ({status.role})", status.reason or "see its log")
    if status.journal_full:
        yield Worry(
            f"{name} refuses puts because the journal is full", "start a node that takes snapshots", serious=True
        )
    if status.snapshot_problem:
        yield Worry(
            f"{name} cannot write snapshots ({status.snapshot_problem}), so the journal grows",
            "free space on the disk of its data directory, or repair it",
        )
    if status.quarantined_records:
        yield Worry(
            f"{name} has {status.quarantined_records} quarantined records and does not campaign",
            "it recovers with the next snapshot of another node",
        )
    if status.buffer_waiting_bytes:
        yield Worry(
            f"{name} has {format_bytes(status.buffer_waiting_bytes)} of acknowledged records on its disk "
            "that are not in the journal yet",
            "they are written as soon as the store accepts them",
        )
    if status.buffer_quarantined_batches:
        yield Worry(
            f"{name} has {status.buffer_quarantined_batches} quarantined batches",
            "acknowledged, but no longer possible to add to the journal; see `leasehold journal quarantined` and "
            "docs/troubleshooting.md",
            serious=True,
        )
    for other, count in status.other_releases.items():
        yield Worry(
            f"{other} sent {count} requests to a port for another release",
            "add a port with --rpc-compat, or upgrade the older clients",
        )
