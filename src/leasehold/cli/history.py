"""`leasehold history`: every change of role, with its reason."""

from __future__ import annotations

from datetime import UTC, datetime

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from leasehold.admin.status import HistoryLine
from leasehold.base.text import printable
from leasehold.cli.help import Explained
from leasehold.cli.operate import admin_option, first_answering, json_option, print_json


@click.command(
    cls=Explained,
    examples=(
        ("leasehold history", ""),
        ("leasehold history --limit 5 --admin 10.0.0.11:8700,10.0.0.12:8700", "the last five, of a remote cluster"),
    ),
)
@admin_option
@json_option
@click.option(
    "--limit", default=50, show_default=True, type=click.IntRange(1, 10_000), help="number of changes, newest last"
)
def history(admin: str, as_json: bool, limit: int) -> None:
    """Print the changes of leadership and the orders of operators: when, which node, and why."""
    _, lines = first_answering(admin, f"/api/history?limit={limit}", list[HistoryLine])
    if as_json:
        print_json(lines)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("when (UTC)", "node", "epoch", "role", "why"):
        table.add_column(column, overflow="fold")
    for line in lines:
        when = datetime.fromtimestamp(line.wall_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        texts = (escape(printable(text)) for text in (line.node, str(line.epoch), line.role, line.sentence))
        table.add_row(when, *texts)
    Console(highlight=False).print(table)
