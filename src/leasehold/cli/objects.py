"""`leasehold objects`: list objects, show one, and explain why one is here or absent."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from urllib.parse import urlencode

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from leasehold.admin.objects import PAGE_MAX, ObjectDetails, ObjectLine, ObjectPage, ObjectStory
from leasehold.base.errors import NotFound
from leasehold.base.text import printable
from leasehold.base.units import format_bytes, format_duration_ms
from leasehold.cli.exit_codes import ExitCode
from leasehold.cli.help import Chapters, Explained
from leasehold.cli.operate import admin_option, call, json_option, leader_of, print_json

STORY_TIMEOUT_S = 15.0
tenant_option = click.option("--tenant", default="", help="tenant of the object (default: Mooncake's default tenant)")


class Why(msgspec.Struct):
    """The answer of `why`: the object if it is there, and what the journal has about it."""

    object: ObjectDetails | None
    story: ObjectStory


@click.group(cls=Chapters)
def objects() -> None:
    """List objects, show one, and explain why one is here or absent."""


@objects.command(
    "list",
    cls=Explained,
    examples=(
        ("leasehold objects list --prefix model-7/ --limit 20", "the first twenty whose keys begin so"),
        ("leasehold objects list --after 16383: --json | jq -r '.objects[].key'", "continue where a page ended"),
    ),
)
@admin_option
@json_option
@tenant_option
@click.option("--prefix", default="", help="only keys that begin with this")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 1_000_000), help="number of objects")
@click.option("--after", default="", help="continue there: the `next` of the page before")
def list_objects(admin: str, as_json: bool, tenant: str, prefix: str, limit: int, after: str) -> None:
    """List objects, in pages. The order is that of the index, not of the keys."""
    _, leader = leader_of(admin)
    found: list[ObjectLine] = []
    while True:
        query = {"tenant": tenant, "prefix": prefix, "after": after, "limit": min(limit - len(found), PAGE_MAX)}
        page = call(leader.admin, f"/api/objects?{urlencode(query)}", ObjectPage)
        found += page.objects
        after = page.next
        if not after or len(found) >= limit:
            break
    if as_json:
        print_json(ObjectPage(tuple(found), after))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("key", "size", "replicas", "state", "lease", "pin"):
        table.add_column(column, overflow="fold")
    for each in found:
        state = "readable" if each.readable else "being written"
        lease = format_duration_ms(each.lease_left_ms) if each.lease_left_ms else "-"
        cells = (each.key, format_bytes(each.size), str(each.replicas), state, lease, each.pin or "-")
        table.add_row(*(escape(printable(cell)) for cell in cells))
    Console(highlight=False).print(table)
    if after:
        click.echo(f"more: --after {after}")


@objects.command(cls=Explained, examples=(("leasehold objects show model-7/layer-3", "where its replicas are"),))
@click.argument("key")
@admin_option
@json_option
@tenant_option
def show(key: str, admin: str, as_json: bool, tenant: str) -> int:
    """Show the replicas, lease, pins and owner of KEY. Exits with 5 if there is no such object."""
    _, leader = leader_of(admin)
    try:
        found = call(leader.admin, f"/api/objects/one?{urlencode({'tenant': tenant, 'key': key})}", ObjectDetails)
    except NotFound:
        click.echo(f"'{printable(key)}' is not in the index: `leasehold objects why` looks into the journal", err=True)
        return ExitCode.NOT_FOUND
    if as_json:
        print_json(found)
    else:
        _print_details(found)
    return ExitCode.OK


@objects.command(
    cls=Explained, examples=(("leasehold objects why model-7/layer-3", "why it is still here, or absent"),)
)
@click.argument("key")
@admin_option
@json_option
@tenant_option
def why(key: str, admin: str, as_json: bool, tenant: str) -> int:
    """Explain why KEY is still here or absent, as far as the journal shows. Exits with 5 if it is absent.

    The journal is read by a standby, if there is one, so that the primary is not delayed.
    """
    cluster, leader = leader_of(admin)
    query = urlencode({"tenant": tenant, "key": key})
    reader = next((peer for peer in cluster.nodes if peer.ready and not peer.leads), leader)
    found = None
    with contextlib.suppress(NotFound):  # the journal may tell why
        found = call(leader.admin, f"/api/objects/one?{query}", ObjectDetails)
    story = call(reader.admin, f"/api/objects/story?{query}", ObjectStory, timeout_s=STORY_TIMEOUT_S)
    if as_json:
        print_json(Why(found, story))
    else:
        for line in story.lines:
            when = datetime.fromtimestamp(line.wall_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
            click.echo(f"{line.n:>10} {when} {printable(line.text)}")
        for reason in found.reasons if found is not None else ():
            click.echo(f"It is here: {reason}")
        if found is None:
            click.echo(printable(story.conclusion))
    return ExitCode.OK if found is not None else ExitCode.NOT_FOUND


def _print_details(found: ObjectDetails) -> None:
    rows = {
        "key": found.key,
        "tenant": found.tenant,
        "size": format_bytes(found.size),
        "state": found.state,
        "lease": format_duration_ms(found.lease_left_ms) if found.lease_left_ms else "none",
        "soft pin": format_duration_ms(found.soft_pin_left_ms) if found.soft_pin_left_ms else "none",
        "hard pin": "yes" if found.hard_pin else "no",
        "group": found.group or "none",
        "put by client": found.client,
        "records": f"put {found.put_n}, last change {found.changed_n}",
    }
    for name, value in rows.items():
        click.echo(f"{name:<14} {printable(value)}")
    for at, each in enumerate(found.replicas, 1):
        state = "complete" if each.complete else "being written"
        waits = "" if each.owner_known else ", its host has not pinged since the restart"
        click.echo(f"{f'replica {at}':<14} {printable(each.segment)} at {printable(each.endpoint)}, {state}{waits}")
