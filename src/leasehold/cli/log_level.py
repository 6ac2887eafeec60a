"""`leasehold log level`: show or change from which level on the nodes log."""

from __future__ import annotations

import click

from leasehold.admin.node_orders import LogLevel
from leasehold.admin.status import ClusterStatus, Operated
from leasehold.cli.help import Chapters, Explained
from leasehold.cli.operate import admin_option, call, first_answering, json_option, node_named, print_json
from leasehold.runtime.log import LEVELS


@click.group(cls=Chapters)
def log() -> None:
    """Show or change from which level on the nodes log."""


@log.command(
    cls=Explained,
    examples=(
        ("leasehold log level", "the levels of all nodes"),
        ("leasehold log level debug --node b", "node b, until its worker is restarted"),
    ),
)
@click.argument("level", required=False, type=click.Choice(LEVELS))
@admin_option
@json_option
@click.option("--node", "name", default="", metavar="NAME", help="only this node (default: all)")
def level(level: str | None, admin: str, as_json: bool, name: str) -> None:
    """Show the level from which lines are logged, or change it to LEVEL until the worker is restarted."""
    if name:
        targets = [node_named(admin, name)]
    else:
        _, cluster = first_answering(admin, "/api/cluster", ClusterStatus)
        targets = [peer.admin for peer in cluster.nodes]
    if level is not None:
        for target in targets:
            call(target, "/api/log-level", Operated, body={"level": level})
    found = [call(target, "/api/log-level", LogLevel) for target in targets]
    if as_json:
        print_json(found)
    for each in () if as_json else found:
        click.echo(
            f"{each.node:<12} {each.level}" + (f" (settings: {each.configured})" * (each.level != each.configured))
        )
