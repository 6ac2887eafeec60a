"""`leasehold failover --force`: make a node lead although records are missing."""

from __future__ import annotations

import click

from leasehold.admin.status import ClusterStatus, NodeStatus, Operated, Peer
from leasehold.base.errors import Unavailable
from leasehold.cli.help import Explained
from leasehold.cli.operate import (
    OPERATE_TIMEOUT_S,
    admin_option,
    call,
    confirm,
    fail,
    first_answering,
    json_option,
    print_outcome,
    yes_option,
)


@click.command(
    cls=Explained,
    examples=(
        ("leasehold failover --force", "no node leads, and `leasehold status` says that records are missing"),
        ("leasehold failover --force --to b --yes", "node b, without a question"),
    ),
)
@admin_option
@json_option
@yes_option
@click.option("--force", is_flag=True, help="required: acknowledged writes may be lost (P1)")
@click.option("--to", "target", default="", metavar="NAME", help="node that is to lead (default: the most advanced)")
def failover(admin: str, as_json: bool, yes: bool, force: bool, target: str) -> None:
    """Let a node lead although it lacks records, when no node leads and none can be complete again.

    Acknowledged writes that it lacks are lost. While a node leads, use `leasehold switchover`, which loses nothing.
    """
    if not force:
        raise click.UsageError(
            "add --force if acknowledged writes may be lost; to move the leadership without loss: leasehold switchover"
        )
    _, cluster = first_answering(admin, "/api/cluster", ClusterStatus)
    if cluster.leader:
        fail(f"{cluster.leader} leads, so nothing needs to be forced: use `leasehold switchover`")
    chosen = _the_node(cluster, target) if target else _most_advanced(cluster)
    behind = max(peer.applied_n for peer in cluster.nodes) - chosen.applied_n
    lacks = f", {behind} records behind the most advanced one" if behind else ""
    confirm(f"make {chosen.name} lead (applied up to record {chosen.applied_n}{lacks})? Writes may be lost.", yes)
    outcome = call(chosen.admin, "/api/force", Operated, body={}, timeout_s=OPERATE_TIMEOUT_S)
    print_outcome(outcome, as_json)


def _the_node(cluster: ClusterStatus, name: str) -> Peer:
    registered = {peer.name: peer for peer in cluster.nodes}
    if name not in registered:
        fail(f"'{name}' is not registered; registered nodes: {', '.join(registered) or 'none'}")
    return registered[name]


def _most_advanced(cluster: ClusterStatus) -> Peer:
    """Of those that answer: a dead node stays registered until its lease ends, and it is often the most advanced."""
    answering = [peer for peer in cluster.nodes if _answers(peer)]
    if not answering:
        fail("no registered node answers: start one first")
    return max(answering, key=lambda peer: peer.applied_n)


def _answers(peer: Peer) -> bool:
    try:
        call(peer.admin, "/api/status", NodeStatus)
    except Unavailable as error:
        click.echo(f"{peer.name} (applied up to record {peer.applied_n}) is passed over: {error}", err=True)
        return False
    return True
