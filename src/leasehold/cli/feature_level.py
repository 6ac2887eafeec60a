"""`leasehold feature-level`: show, raise or lower the feature level of a cluster."""

from __future__ import annotations

import click
import msgspec

from leasehold.admin.status import NodeStatus, Operated
from leasehold.cli.help import Chapters, Explained
from leasehold.cli.operate import (
    OPERATE_TIMEOUT_S,
    admin_option,
    call,
    fail,
    json_option,
    leader_of,
    print_json,
    print_outcome,
)


class Levels(msgspec.Struct):
    """The feature level of a cluster, and what its nodes can read."""

    level: int
    since_n: int  # the record that set it
    truncated_n: int
    older_nodes_can_join: bool  # every record of a higher level was truncated
    reads: dict[str, int]  # by node: the highest level that it can read


@click.group("feature-level", cls=Chapters)
def feature_level() -> None:
    """Show or switch the feature level: which kinds of records the cluster may write."""


@feature_level.command(
    cls=Explained, examples=(("leasehold feature-level show", "the level, and the levels that the nodes can read"),)
)
@admin_option
@json_option
def show(admin: str, as_json: bool) -> None:
    """Show the feature level of the cluster, and the highest level that each node can read."""
    cluster, leader = leader_of(admin)
    status = call(leader.admin, "/api/status", NodeStatus)
    level, since_n, truncated_n = status.feature_level, status.feature_level_n, cluster.truncated_n
    reads = {peer.name: peer.reads_level for peer in cluster.nodes}
    levels = Levels(level, since_n, truncated_n, truncated_n >= since_n, reads)
    if as_json:
        print_json(levels)
        return
    click.echo(f"feature level {level}" + (f" since record {since_n}" if since_n else ""))
    for name, highest in reads.items():
        click.echo(f"  {name} can read up to level {highest}")
    highest = min(reads.values())
    if highest > level and since_n <= truncated_n:
        click.echo(f"every node can read level {highest}: `leasehold feature-level raise {highest}`")
    if since_n > truncated_n:
        click.echo(
            f"records of other levels are still in the journal: a node that can read only level {level} can join "
            f"when the truncation point (now record {truncated_n}) has reached record {since_n}"
        )


def _switch(admin: str, level: int, as_json: bool, *, up: bool) -> None:
    _, leader = leader_of(admin)
    present = call(leader.admin, "/api/status", NodeStatus).feature_level
    if level > present and not up:
        fail(f"the feature level is {present}: to go up, use `leasehold feature-level raise {level}`")
    if level < present and up:
        fail(f"the feature level is {present}: to go down, use `leasehold feature-level lower {level}`")
    body = {"level": str(level)}
    outcome = call(leader.admin, "/api/feature-level", Operated, body=body, timeout_s=OPERATE_TIMEOUT_S)
    print_outcome(outcome, as_json)


@feature_level.command(
    "raise", cls=Explained, examples=(("leasehold feature-level raise 1", "once every node runs the new release"),)
)
@click.argument("level", type=click.IntRange(0))
@admin_option
@json_option
def raise_level(level: int, admin: str, as_json: bool) -> None:
    """Raise the feature level to LEVEL. Every registered node must be able to read it; others are refused later."""
    _switch(admin, level, as_json, up=True)


@feature_level.command(
    "lower", cls=Explained, examples=(("leasehold feature-level lower 0", "before a downgrade to the first release"),)
)
@click.argument("level", type=click.IntRange(0))
@admin_option
@json_option
def lower_level(level: int, admin: str, as_json: bool) -> None:
    """Lower the feature level to LEVEL. Older nodes can join once `show` no longer reports records of other levels."""
    _switch(admin, level, as_json, up=False)
