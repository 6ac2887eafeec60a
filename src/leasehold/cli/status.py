"""`leasehold status`: the leader, the state of every node, and what needs attention."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from leasehold.admin.checkup import ShownConfig, different_settings
from leasehold.admin.status import ClusterStatus, NodeStatus, Peer
from leasehold.admin.worries import cluster_worries, node_worries
from leasehold.base.errors import PeerError
from leasehold.base.text import printable
from leasehold.base.units import format_bytes, format_duration_ms
from leasehold.cli.exit_codes import ExitCode
from leasehold.cli.help import Explained
from leasehold.cli.operate import (
    addresses,
    admin_option,
    call,
    first_answering,
    in_parallel,
    json_option,
    print_json,
)


class Everything(msgspec.Struct):
    """The cluster as recorded in the store, and the status of every node that answered, by name."""

    cluster: ClusterStatus
    nodes: dict[str, NodeStatus]
    store_problem: str = ""  # if set, the store does not answer and `cluster` is built from the nodes' own status
    settings: dict[str, dict[str, str]] = {}  # by node: the settings that all nodes should share


def gather(admin: str) -> Everything:
    try:
        _, cluster = first_answering(admin, "/api/cluster", ClusterStatus)
    except PeerError as error:
        return _without_store(admin, error)
    nodes: dict[str, NodeStatus] = {}
    settings: dict[str, dict[str, str]] = {}
    for peer, (status, shared) in zip(cluster.nodes, in_parallel(_of_node, cluster.nodes), strict=True):
        if status is not None:  # else its row reads "does not answer"
            nodes[peer.name], settings[peer.name] = status, shared
    return Everything(cluster, nodes, settings=settings)


def _of_node(peer: Peer) -> tuple[NodeStatus | None, dict[str, str]]:
    try:
        status = call(peer.admin, "/api/status", NodeStatus)
    except PeerError:
        return None, {}
    try:
        return status, call(peer.admin, "/api/config", ShownConfig).shared()
    except PeerError:  # of an older release, which shows only these
        sections = {"leader_ttl": "ha"}
        terms = status.terms.items()
        return status, {f"{sections.get(name, 'index')}.{name}": format_duration_ms(term_ms) for name, term_ms in terms}


def _without_store(admin: str, problem: PeerError) -> Everything:
    """Build the status from the nodes given by --admin; raises `problem` if none of them answers."""
    found: dict[str, NodeStatus] = {}
    for address in addresses(admin):
        with contextlib.suppress(PeerError):
            status = call(address, "/api/status", NodeStatus)
            found[status.name] = status
    if not found:
        raise problem
    peers = tuple(
        Peer(
            one.name,
            one.role,
            one.ready,
            one.applied_n,
            one.rpc,
            one.admin,
            one.quarantined_records,
            one.may_serve,
            one.reads_level,
        )
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
        return [peer.name, peer.role, "does not answer", "", "", "", "", peer.rpc, _beside(peer)]
    index = status.index
    pool = f"{format_bytes(index.bytes_used)} of {format_bytes(index.bytes_total)}"
    lag = "?" if status.lag_records < 0 else str(status.lag_records)
    role = f"[bold green]{status.role}[/]" if status.may_serve else status.role
    ready = "yes" if status.ready else "[bold red]no[/]"
    return [peer.name, role, ready, status.version, lag, str(index.objects), pool, peer.rpc, _beside(peer)]


def _beside(peer: Peer) -> str:
    """The admin address; only its port if the host is the same as for clients, to keep the line short."""
    host, _, port = peer.admin.rpartition(":")
    return f":{port}" if host == peer.rpc.rpartition(":")[0] else peer.admin


def show(everything: Everything, console: Console) -> None:
    """Print the table, and below it one line per problem."""
    cluster = everything.cluster
    leader = (
        f"{escape(printable(cluster.leader))} leads, epoch {cluster.epoch}"
        if cluster.leader
        else "[bold red]no leader[/]"
    )
    journal = f"; journal: {cluster.journal_batches} batches after record {cluster.truncated_n}"
    console.print(
        f"[bold]{escape(printable(cluster.cluster))}[/]: {leader}{'' if everything.store_problem else journal}"
    )
    table = Table(box=None, pad_edge=False)
    for column in ("node", "role", "ready", "version", "lag", "objects", "pool", "clients at", "admin"):
        table.add_column(column, overflow="fold", no_wrap=column == "clients at")  # easy to copy
    for peer in cluster.nodes:
        table.add_row(*map(printable, _row(peer, everything.nodes.get(peer.name))))
    for dead in cluster.dead:
        cells = (escape(printable(cell)) for cell in (dead.name, dead.version, dead.rpc))
        name, version, rpc = cells
        table.add_row(name, "[bold red]dead[/]", "[bold red]no[/]", version, "", "", "", rpc, "")
    console.print(table)
    for line in problems(everything):
        console.print(f"[bold red]![/] {escape(printable(line))}")


def _stands_by(peer: Peer, status: NodeStatus | None) -> bool:
    """Whether the node may be promoted: its own status if it answers, else its last registration in the store."""
    return peer.ready and not peer.leads if status is None else status.ready and not status.may_serve


def _differences(everything: Everything) -> list[str]:
    """Settings that differ between nodes: a failover would change what clients rely on."""
    found = []
    for name, values in different_settings(everything.settings):
        shown = ", ".join(f"{node} {value or '(empty)'}" for node, value in values.items())
        found.append(f"the nodes have different values of {name} ({shown}): give all nodes the same settings")
    return found


def problems(everything: Everything) -> list[str]:
    """Every problem that needs an operator, each with what to do."""
    cluster, found = everything.cluster, []
    if everything.store_problem:
        found.append(f"the state of the cluster cannot be read: {everything.store_problem}")
        found.append("the table shows only the nodes given by --admin")
    standbys = [peer for peer in cluster.nodes if _stands_by(peer, everything.nodes.get(peer.name))]
    level = max((status.feature_level for status in everything.nodes.values()), default=0)
    found += [str(worry) for worry in cluster_worries(cluster, len(standbys), level)]
    found += [
        f"{peer.name} does not answer at {peer.admin}: check that it runs and is reachable from here"
        for peer in cluster.nodes
        if peer.name not in everything.nodes
    ]
    found += _differences(everything)
    found += [str(worry) for status in everything.nodes.values() for worry in node_worries(status)]
    return found


def exit_code(everything: Everything) -> ExitCode:
    """For scripts: whether a node leads, and whether there is a problem."""
    if not any(status.may_serve for status in everything.nodes.values()):
        return ExitCode.NO_LEADER
    return ExitCode.PROBLEMS if problems(everything) else ExitCode.OK


def watch(look: Callable[[], Everything], console: Console, interval_s: float) -> None:
    """Print the status again and again, on a cleared screen if there is one, until Ctrl-C."""
    while True:
        try:
            everything: Everything | None = look()
            problem = ""
        except PeerError as error:
            everything, problem = None, str(error)
        console.clear()
        if everything is not None:
            show(everything, console)
        else:
            console.print(f"[bold red]![/] {escape(printable(problem))}")
        time.sleep(interval_s)


@click.command(
    cls=Explained,
    examples=(
        ("leasehold status --admin 10.0.0.11:8700,10.0.0.12:8700", "a remote cluster"),
        ("leasehold status --watch", "again every two seconds, until Ctrl-C"),
        ("leasehold status --json | jq .cluster.leader", "the leader's name, for scripts"),
    ),
)
@admin_option
@json_option
@click.option("--watch", "watching", is_flag=True, help="print it again and again, until Ctrl-C")
@click.option(
    "--interval",
    "interval_s",
    default=2.0,
    show_default=True,
    type=click.FloatRange(0.2, 3600),
    help="seconds between two looks of --watch",
)
def status(admin: str, as_json: bool, watching: bool, interval_s: float) -> int:
    """Show the leader, the state of every node, and problems that need attention.

    Exits with 0 if there are none, with 3 if a problem is listed, and with 4 if no node leads.
    """
    console = Console(highlight=False)
    if watching and as_json:
        raise click.UsageError("--watch is for people; with --json, repeat the command")
    if watching:
        watch(lambda: gather(admin), console, interval_s)
    everything = gather(admin)
    if as_json:
        print_json(everything)
    else:
        show(everything, console)
    return exit_code(everything)
