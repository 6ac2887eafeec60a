"""`leasehold nodes`: list the nodes; restart, rebuild or remove one."""

from __future__ import annotations

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from leasehold.admin.status import ClusterStatus, Operated
from leasehold.base.text import printable
from leasehold.base.units import format_duration_ms
from leasehold.cli.exit_codes import ExitCode
from leasehold.cli.help import Chapters, Explained
from leasehold.cli.operate import (
    OPERATE_TIMEOUT_S,
    admin_option,
    call,
    confirm,
    first_answering,
    json_option,
    node_named,
    print_json,
    print_outcome,
    yes_option,
)
from leasehold.cli.status import Everything, gather


class NodeLine(msgspec.Struct):
    """One node, alive or dead."""

    name: str
    state: str  # its role, "does not answer" or "dead"
    ready: bool
    version: str
    up_ms: int
    applied_n: int
    rpc: str
    admin: str


def _lines(everything: Everything) -> list[NodeLine]:
    found = []
    for peer in everything.cluster.nodes:
        status = everything.nodes.get(peer.name)
        if status is None:
            found.append(NodeLine(peer.name, "does not answer", False, "", 0, peer.applied_n, peer.rpc, peer.admin))
        else:
            state = (status.role, status.ready, status.version, status.up_ms, status.applied_n)
            found.append(NodeLine(peer.name, *state, peer.rpc, peer.admin))
    found += [NodeLine(d.name, "dead", False, d.version, 0, 0, d.rpc, d.admin) for d in everything.cluster.dead]
    return found


@click.group(cls=Chapters)
def nodes() -> None:
    """List the nodes; restart, rebuild or remove one."""


@nodes.command(
    "list",
    cls=Explained,
    examples=(("leasehold nodes list --json | jq -r '.[] | select(.state == \"dead\").name'", "the dead ones"),),
)
@admin_option
@json_option
def list_nodes(admin: str, as_json: bool) -> int:
    """List all nodes, also dead ones. Exits with 3 if one is not ready."""
    lines = _lines(gather(admin))
    if as_json:
        print_json(lines)
    else:
        table = Table(box=None, pad_edge=False)
        for column in ("node", "state", "ready", "version", "up", "applied", "clients at", "admin"):
            table.add_column(column, overflow="fold")
        for each in lines:
            up = format_duration_ms(each.up_ms // 1_000 * 1_000) if each.up_ms else "-"
            ready = "yes" if each.ready else "no"
            cells = (each.name, each.state, ready, each.version, up, str(each.applied_n), each.rpc, each.admin)
            table.add_row(*(escape(printable(cell)) for cell in cells))
        Console(highlight=False).print(table)
    return ExitCode.OK if all(each.ready for each in lines) else ExitCode.PROBLEMS


@nodes.command(cls=Explained, examples=(("leasehold nodes remove c", "it was switched off permanently"),))
@click.argument("name")
@admin_option
@json_option
def remove(name: str, admin: str, as_json: bool) -> None:
    """Take the dead node NAME off the list. A node that is alive must be stopped first."""
    address, _ = first_answering(admin, "/api/cluster", ClusterStatus)
    outcome = call(address, "/api/nodes/remove", Operated, body={"name": name}, timeout_s=OPERATE_TIMEOUT_S)
    print_outcome(outcome, as_json)


@nodes.command(
    cls=Explained, examples=(("leasehold nodes restart b", "its worker: the guardian and client connections stay"),)
)
@click.argument("name")
@admin_option
@json_option
@click.option("--force", is_flag=True, help="also if no other node is ready: an outage of some seconds")
def restart(name: str, admin: str, as_json: bool, force: bool) -> None:
    """Restart the worker of node NAME. A primary hands over first. Client connections are kept.

    The settings are those with which the node was started: to change them, start the node again.
    """
    body = {"force": "true" if force else "false"}
    outcome = call(node_named(admin, name), "/api/restart", Operated, body=body, timeout_s=OPERATE_TIMEOUT_S)
    print_outcome(outcome, as_json)


@nodes.command(
    cls=Explained,
    examples=(("leasehold nodes reinit b --yes", "its disk was damaged: copy the state of another node"),),
)
@click.argument("name")
@admin_option
@json_option
@yes_option
def reinit(name: str, admin: str, as_json: bool, yes: bool) -> None:
    """Delete the snapshots of standby NAME, and rebuild its state from another node.

    Refused if it leads, or if no other node has the part of the index that left the journal.
    """
    confirm(f"delete the snapshots of {name}, and rebuild its state from another node?", yes)
    outcome = call(node_named(admin, name), "/api/reinit", Operated, body={}, timeout_s=OPERATE_TIMEOUT_S)
    print_outcome(outcome, as_json)
