"""`leasehold status`: who leads, who is ready, how far everybody is."""

from __future__ import annotations

import contextlib

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from leasehold.admin.status import ClusterStatus, NodeStatus, Peer
from leasehold.base.errors import PeerError
from leasehold.base.units import format_bytes
from leasehold.cli.help import Explained
from leasehold.cli.operate import addresses, admin_option, call, first_answering, json_option, print_json


class Everything(msgspec.Struct):
    """The cluster as the store has it, and every node that answered, by name."""

    cluster: ClusterStatus
    nodes: dict[str, NodeStatus]
    store_problem: str = ""  # not "": the store does not answer, and `cluster` is only what the nodes say of themselves


def gather(admin: str) -> Everything:
    try:
        _, cluster = first_answering(admin, "/api/cluster", ClusterStatus)
    except PeerError as error:
        return _without_store(admin, error)
    nodes: dict[str, NodeStatus] = {}
    for peer in cluster.nodes:
        try:
            nodes[peer.name] = call(peer.admin, "/api/status", NodeStatus)
        except PeerError:
            continue  # its line says that it does not answer
    return Everything(cluster, nodes)


def _without_store(admin: str, problem: PeerError) -> Everything:
    """What the nodes that were named say of themselves; raises `problem` if none of them answers."""
    found: dict[str, NodeStatus] = {}
    for address in addresses(admin):
        with contextlib.suppress(PeerError):
            status = call(address, "/api/status", NodeStatus)
            found[status.name] = status
    if not found:
        raise problem
    peers = tuple(
        Peer(one.name, one.role, one.ready, one.applied_n, one.rpc, one.admin, one.quarantined_records, one.may_serve)
        for one in found.values()
    )
    leader = next((one for one in found.values() if one.may_serve), None)
    cluster = ClusterStatus(
        cluster=next(iter(found.values())).cluster,
        leader=leader.name if leader else "",
        epoch=leader.epoch if leader else 0,
        nodes=peers,
    )
    return Everything(cluster, found, str(problem))


def _row(peer: Peer, status: NodeStatus | None) -> list[str]:
    if status is None:
        return [peer.name, peer.role, "does not answer", "", "", "", peer.rpc, _beside(peer)]
    index = status.index
    pool = f"{format_bytes(index.bytes_used)} of {format_bytes(index.bytes_total)}"
    lag = "?" if status.lag_records < 0 else str(status.lag_records)
    role = f"[bold green]{status.role}[/]" if status.may_serve else status.role
    ready = "yes" if status.ready else "[bold red]no[/]"
    return [peer.name, role, ready, lag, str(index.objects), pool, peer.rpc, _beside(peer)]


def _beside(peer: Peer) -> str:
    """The admin address; only its port where the host is that of the clients' address, so that a line fits a screen."""
    host, _, port = peer.admin.rpartition(":")
    return f":{port}" if host == peer.rpc.rpartition(":")[0] else peer.admin


def show(everything: Everything, console: Console) -> None:
    """The table for people, and under it every reason to worry, one sentence each."""
    cluster = everything.cluster
    leader = f"{cluster.leader} leads, epoch {cluster.epoch}" if cluster.leader else "[bold red]nobody leads[/]"
    journal = f"; journal: {cluster.journal_batches} batches above {cluster.truncated_n}"
    told = "" if everything.store_problem else journal
    console.print(f"[bold]{escape(cluster.cluster)}[/]: {leader}{told}")
    table = Table(box=None, pad_edge=False)
    for column in ("node", "role", "ready", "lag", "objects", "pool", "clients at", "admin"):
        table.add_column(column, overflow="fold", no_wrap=column == "clients at")  # to be copied from here
    for peer in cluster.nodes:
        table.add_row(*_row(peer, everything.nodes.get(peer.name)))
    console.print(table)
    for line in worries(everything):
        console.print(f"[bold red]![/] {escape(line)}")


def _stands_by(peer: Peer, status: NodeStatus | None) -> bool:
    """Whether it may be promoted: by its own word if it answers; what the store has is as old as its last beat."""
    return peer.ready and not peer.leads if status is None else status.ready and not status.may_serve


def worries(everything: Everything) -> list[str]:
    """What needs a person's attention, each with what to do."""
    cluster, found = everything.cluster, []
    if everything.store_problem:
        found.append(f"the cluster's state cannot be read: {everything.store_problem}")
        found.append("this is what the nodes named by --admin say of themselves")
    if cluster.paused:
        found.append(f"paused {cluster.paused}: nobody takes over until `leasehold resume`")
    if not cluster.leader:
        found.append("nobody leads: calls wait; `leasehold history` says what happened last")
    if not [peer for peer in cluster.nodes if _stands_by(peer, everything.nodes.get(peer.name))]:
        found.append("no standby is ready: losing the primary now means an outage until a node is back")
    if cluster.durable_copies == 1:
        found.append("durable_copies 1: what has left the journal is on one node's disk only; bring another node back")
    found += [
        f"{peer.name} does not answer at {peer.admin}: is it running, and can it be reached from here?"
        for peer in cluster.nodes
        if peer.name not in everything.nodes
    ]
    for status in everything.nodes.values():
        if not status.ready:
            found.append(f"{status.name} is not ready ({status.role}): {status.reason}")
        if status.journal_full:
            found.append(f"{status.name} refuses puts, the journal is full: bring back a node that takes snapshots")
        if status.quarantined_records:
            found.append(
                f"{status.name} has set {status.quarantined_records} records aside and does not campaign: "
                "a peer's snapshot cures it"
            )
        if status.buffer_waiting_bytes:
            found.append(
                f"{status.name} has {format_bytes(status.buffer_waiting_bytes)} of acknowledged records on its disk "
                "that are not in the journal yet: they are written as soon as the store takes them"
            )
        if status.buffer_aside_batches:
            found.append(
                f"{status.name} has set {status.buffer_aside_batches} acknowledged batches aside that no longer fit "
                "the journal: see `leasehold journal aside`, and docs/troubleshooting.md"
            )
        for other, count in status.other_releases.items():
            found.append(
                f"{other}, on a port for another release ({count} requests): give it --rpc-compat, or upgrade the older"
            )
    return found


@click.command(
    cls=Explained,
    examples=(
        ("leasehold status --admin 10.0.0.11:8700,10.0.0.12:8700", ""),
        ("leasehold status --json | jq .cluster.leader", ""),
    ),
)
@admin_option
@json_option
def status(admin: str, as_json: bool) -> None:
    """Who leads, who is ready to take over, and what needs attention."""
    everything = gather(admin)
    if as_json:
        print_json(everything)
    else:
        show(everything, Console(highlight=False))
