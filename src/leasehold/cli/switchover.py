"""`leasehold switchover`: make another node the leader, without losing writes or leases."""

from __future__ import annotations

import click

from leasehold.admin.status import ClusterStatus, Operated
from leasehold.cli.help import Explained
from leasehold.cli.operate import (
    OPERATE_TIMEOUT_S,
    admin_option,
    call,
    fail,
    first_answering,
    json_option,
    print_json,
)


@click.command(cls=Explained, examples=(("leasehold switchover --to b", "make node b the leader"),))
@admin_option
@json_option
@click.option(
    "--to", "target", default="", metavar="NAME", help="node that becomes the leader (default: any ready node)"
)
def switchover(admin: str, as_json: bool, target: str) -> None:
    """Move the leadership to a standby. It knows every lease, so there is no grace period."""
    _, cluster = first_answering(admin, "/api/cluster", ClusterStatus)
    leaders = [peer for peer in cluster.nodes if peer.leads]
    if not leaders:
        fail("the cluster has no leader, so there is nothing to hand over; see `leasehold status`")
    body = {"target": target} if target else {}
    outcome = call(leaders[0].admin, "/api/switchover", Operated, body=body, timeout_s=OPERATE_TIMEOUT_S)
    if as_json:
        print_json(outcome)
    else:
        click.echo(outcome.sentence)
