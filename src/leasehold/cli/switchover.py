"""`leasehold switchover`: make another node the leader, without losing writes or leases."""

from __future__ import annotations

import click

from leasehold.admin.status import Operated
from leasehold.cli.help import Explained
from leasehold.cli.operate import (
    OPERATE_TIMEOUT_S,
    admin_option,
    call,
    json_option,
    leader_of,
    print_outcome,
)


@click.command(cls=Explained, examples=(("leasehold switchover --to b", "make node b the leader"),))
@admin_option
@json_option
@click.option(
    "--to", "target", default="", metavar="NAME", help="node that becomes the leader (default: any ready node)"
)
def switchover(admin: str, as_json: bool, target: str) -> None:
    """Move the leadership to a standby. It knows every lease, so there is no grace period."""
    _, leader = leader_of(admin)
    body = {"target": target} if target else {}
    outcome = call(leader.admin, "/api/switchover", Operated, body=body, timeout_s=OPERATE_TIMEOUT_S)
    print_outcome(outcome, as_json)
