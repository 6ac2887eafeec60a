"""`leasehold failover --force`: make a node lead although records are missing."""

from __future__ import annotations

import click

from leasehold.admin.status import ClusterStatus, Operated
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
    able = {peer.name: peer for peer in cluster.nodes}
    if target and target not in able:
        fail(f"'{target}' is not registered; registered nodes: {', '.join(able) or 'none'}")
    if not able:
        fail("no node is registered: start one first")
    chosen = able[target] if target else max(able.values(), key=lambda peer: peer.applied_n)
    behind = max(peer.applied_n for peer in able.values()) - chosen.applied_n
    lacks = f", {behind} records behind the most advanced one" if behind else ""
    confirm(f"make {chosen.name} lead (applied up to record {chosen.applied_n}{lacks})? Writes may be lost.", yes)
    outcome = call(chosen.admin, "/api/force", Operated, body={}, timeout_s=OPERATE_TIMEOUT_S)
    print_outcome(outcome, as_json)
