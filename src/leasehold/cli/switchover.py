"""`leasehold switchover`: let another node lead, without losing anything and without a grace period."""

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


@click.command(cls=Explained, examples=(("leasehold switchover --to b", "b leads, without a grace period"),))
@admin_option
@json_option
@click.option(
    "--to", "target", default="", metavar="NAME", help="the node that shall lead (default: any that is ready)"
)
def switchover(admin: str, as_json: bool, target: str) -> None:
    """Hand the leadership over: the primary flushes, resigns, and a standby leads with all leases known."""
    _, cluster = first_answering(admin, "/api/cluster", ClusterStatus)
    leaders = [peer for peer in cluster.nodes if peer.leads]
    if not leaders:
        fail("nobody leads: there is nothing to hand over; see `leasehold status`")
    body = {"target": target} if target else {}
    outcome = call(leaders[0].admin, "/api/switchover", Operated, body=body, timeout_s=OPERATE_TIMEOUT_S)
    if as_json:
        print_json(outcome)
    else:
        click.echo(outcome.sentence)
