"""`leasehold pause` and `leasehold resume`: stop and restart automatic failover, for maintenance."""

from __future__ import annotations

import click

from leasehold.admin.status import ClusterStatus, Operated
from leasehold.cli.help import Explained
from leasehold.cli.operate import OPERATE_TIMEOUT_S, admin_option, call, first_answering, json_option, print_outcome


def _operate(admin: str, path: str, body: dict[str, str], as_json: bool) -> None:
    address, _ = first_answering(admin, "/api/cluster", ClusterStatus)
    outcome = call(address, path, Operated, body=body, timeout_s=OPERATE_TIMEOUT_S)
    print_outcome(outcome, as_json)


@click.command(cls=Explained, examples=(("leasehold pause --reason 'moving etcd'", "before maintenance"),))
@admin_option
@json_option
@click.option("--reason", default="", help="text to show in `leasehold status`")
def pause(admin: str, as_json: bool, reason: str) -> None:
    """Pause automatic failover until `resume`. The leader continues; if it dies, no node takes over."""
    _operate(admin, "/api/pause", {"reason": reason}, as_json)


@click.command(cls=Explained, examples=(("leasehold resume --admin 10.0.0.11:8700,10.0.0.12:8700", ""),))
@admin_option
@json_option
def resume(admin: str, as_json: bool) -> None:
    """Resume automatic failover after `pause`."""
    _operate(admin, "/api/resume", {}, as_json)
