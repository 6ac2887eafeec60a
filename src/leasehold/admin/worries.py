"""Every reason to worry about a cluster, each with its remedy: for `leasehold status` and the dashboard. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from leasehold.admin.status import ClusterStatus, NodeStatus
from leasehold.base.codes import UNKNOWN_RELEASE
from leasehold.base.units import format_bytes

_REFUSED_BY_HOST: Final = {
    "NO_CAPABILITY": "upgrade the clients, and give every node the cluster secret of the host",
    "FORGED_CAPABILITY": "compare the cluster secrets of nodes and host; if they are equal, a stranger uses its port",
    "EXPIRED_CAPABILITY": "a client is slower than capability_ttl of the host, or repeats an old request",
    "OUTSIDE_CAPABILITY": "a client requests more than the master gave it: find out which",
    "FORGED_NUMBER": "a stranger writes to its port: give nodes and hosts a cluster secret, or use mutual TLS",
    "TOO_LATE": "writers were late, and have repeated their puts; if there are many, look for paused clients",
}


class Worry(Struct, frozen=True):
    """One problem. `serious`: clients wait now, or would wait after the next failure."""

    what: str
    remedy: str
    serious: bool = False
    why: str = ""  # why it matters
    check: str = "status"  # names the kind of problem, for programs

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"


def cluster_worries(cluster: ClusterStatus, standbys: int, level: int) -> Iterator[Worry]:
    """Problems of the cluster as the store records it.

    `standbys` is the number of nodes that may be promoted, `level` the cluster's feature level.
    """
    if cluster.paused:
        yield Worry(
            f"failover is paused {cluster.paused}",
            "no node takes over until `leasehold resume`",
            check="paused",
            why="if the leader fails now, calls wait until an operator acts",
        )
    for one in cluster.forged:
        yield Worry(
            f"{one} was not written by a node of this cluster, and is ignored",
            "find out which client of the store writes it",
            serious=True,
            check="forged",
            why="a client of the store can stop this cluster, or could lead others to a wrong address",
        )
    if not cluster.leader:
        yield Worry(
            "no node leads, so calls wait",
            "see `leasehold history` for the reason",
            serious=True,
            check="no-leader",
            why="no client is answered",
        )
    if not standbys:
        yield Worry(
            "no standby is ready",
            "if the primary fails now, there is an outage until a node is ready: start another node",
            serious=True,
            check="no-standby",
            why="a standby takes over in under a second; without one the outage lasts until a node has started",
        )
    if cluster.durable_copies == 1:
        yield Worry(
            "durable_copies 1: records truncated from the journal are on one disk only",
            "start another node",
            check="one-copy",
            why="if that disk is lost, the index is lost",
        )
    for dead in cluster.dead:
        yield Worry(
            f"{dead.name} is dead: it has run, and is not registered any more",
            f"start it again, or type: leasehold nodes remove {dead.name}",
            check="dead-node",
            why="there are fewer standbys than before",
        )
    for peer in cluster.nodes:
        if peer.reads_level < level:
            yield Worry(
                f"{peer.name} cannot read feature level {level} and does not campaign",
                "upgrade it, or lower the level (`leasehold feature-level lower --help`)",
                check="feature-level",
                why="it does not take over",
            )


def node_worries(status: NodeStatus) -> Iterator[Worry]:
    """Problems that a node reports of itself."""
    name = status.name
    if not status.ready:
        yield Worry(
            f"{name} is not ready ({status.role})",
            status.reason or "see its log",
            check="not-ready",
            why="it does not take over",
        )
    if status.journal_full:
        yield Worry(
            f"{name} refuses puts because the journal is full",
            "start a node that takes snapshots",
            serious=True,
            check="journal-full",
            why="nothing can be put until snapshots let the journal be truncated",
        )
    if status.snapshot_problem:
        yield Worry(
            f"{name} cannot write snapshots ({status.snapshot_problem}), so the journal grows",
            "free space on the disk of its data directory, or repair it",
            check="snapshots",
            why="the journal grows until it is full, and a restart takes longer",
        )
    if status.quarantined_records:
        yield Worry(
            f"{name} has {status.quarantined_records} quarantined records and does not campaign",
            "it recovers with the next snapshot of another node",
            check="quarantined-records",
            why="it does not take over",
        )
    if status.buffer_waiting_bytes:
        yield Worry(
            f"{name} has {format_bytes(status.buffer_waiting_bytes)} of acknowledged records on its disk "
            "that are not in the journal yet",
            "they are written as soon as the store accepts them",
            check="buffer-waiting",
            why="if its disk is lost before, acknowledged writes are lost",
        )
    if status.buffer_quarantined_batches:
        yield Worry(
            f"{name} has {status.buffer_quarantined_batches} quarantined batches",
            "acknowledged, but no longer possible to add to the journal; see `leasehold journal quarantined` and "
            "docs/troubleshooting.md",
            serious=True,
            check="buffer-quarantined",
            why="acknowledged writes are missing from the index",
        )
    for host, refused in status.host_refusals.items():
        for reason, count in refused.items():
            yield Worry(
                f"storage host {host} refused {count} requests, the last within ten minutes "
                f"({reason.lower().replace('_', ' ')})",
                _REFUSED_BY_HOST.get(reason, "see the metrics of the host"),
                check="host-refusals",
                why="clients whose requests are refused cannot read or write there, or a stranger tries to",
            )
    for other, count in status.other_releases.items():
        unknown = other.endswith(UNKNOWN_RELEASE)
        yield Worry(
            f"{other} sent {count} requests to a port for another release",
            "upgrade Leasehold, or use a Mooncake release that `leasehold node --help` names"
            if unknown
            else "add a port with --rpc-compat, or upgrade the older clients",
            check="client-release",
            why="their requests are refused, so those clients have no cache",
        )
