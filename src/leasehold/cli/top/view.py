"""One frame of `leasehold top`, drawn from the model."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from leasehold.admin.live import LiveNode
from leasehold.admin.samples import Sample
from leasehold.base.text import printable
from leasehold.base.units import format_bytes, format_duration_ms
from leasehold.cli.top.model import Model, Shown
from leasehold.index.survey import SegmentUse

# The kinds of use of the pool's bytes, in the order of a bar.
COLOURS: Final = {
    "leased": "green",
    "pinned": "magenta",
    "evictable": "blue",
    "writing": "cyan",
    "quarantined": "yellow",
    "prepared": "white",
}
BLOCK: Final = "█"
FREE: Final = "░"
SPARKS: Final = " ▁▂▃▄▅▆▇█"
LEASE_WIDTH: Final = 16
FUNCTIONS: Final = 7
HISTORY_LINES: Final = 4
WORRIES: Final = 6
_BESIDE_SPARKS: Final = 59  # the width of everything beside the curves
_ROLES: Final = {"primary": "bold green", "standby": "cyan"}


def draw(model: Model, now_ms: int, wall_ms: int, width: int) -> RenderableType:
    """The whole frame, for a terminal of this width."""
    best = model.best(now_ms)
    parts: list[RenderableType] = [_header(model, now_ms, wall_ms), *_worries(model, now_ms), _nodes(model, now_ms)]
    if best is not None:
        parts += [Rule(_pool_title(best), align="left", style="dim"), _pool(best.pool, width)]
        parts += [Rule("a second", align="left", style="dim"), _rates(model, best, wall_ms, width)]
    if model.history:
        parts += [Rule("history", align="left", style="dim"), _history(model)]
    return Group(*parts)


def _header(model: Model, now_ms: int, wall_ms: int) -> Text:
    nodes = model.nodes(now_ms)
    primary = next((node for node in nodes if node.leads), None)
    best = model.best(now_ms)
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(printable(best.status.cluster) if best else "no node answers", style="bold" if best else "bold red")
    if primary is not None and primary.frame is not None:
        text.append(f"  {printable(primary.name)} leads, epoch {primary.frame.status.epoch}", style="green")
        text.append("  lease ")
        text.append_text(_lease(primary.lease_left_ms, primary.frame.lease_ms))
    elif best is not None:
        text.append("  no node leads: calls wait", style="bold red")
    text.append(f"  {datetime.fromtimestamp(wall_ms / 1000, UTC):%H:%M:%S} UTC", style="dim")
    return text


def _lease(left_ms: int, whole_ms: int) -> Text:
    """The leader lease, running down until the next commit renews it."""
    filled = max(0, min(LEASE_WIDTH, round(LEASE_WIDTH * left_ms / max(1, whole_ms))))
    style = "green" if left_ms * 3 > whole_ms else "red"
    return Text.assemble(
        (BLOCK * filled, style), (FREE * (LEASE_WIDTH - filled), "dim"), f" {max(0, left_ms) / 1000:.1f} s"
    )


def _worries(model: Model, now_ms: int) -> list[RenderableType]:
    worries = model.worries(now_ms)
    shown: list[RenderableType] = [
        Text.assemble(("! ", "bold red" if worry.serious else "bold yellow"), printable(str(worry)))
        for worry in worries[:WORRIES]
    ]
    if len(worries) > WORRIES:
        shown.append(Text(f"  and {len(worries) - WORRIES} more", style="dim"))
    return shown


def _nodes(model: Model, now_ms: int) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column, justify in (("node", "left"), ("role", "left"), ("lag", "right"), ("seen", "right"),
                            ("applied", "right"), ("objects", "right"), ("conns", "right"), ("up", "right"),
                            ("clients at", "left")):  # fmt: skip
        table.add_column(column, justify="right" if justify == "right" else "left", no_wrap=True, header_style="dim")
    for node in model.nodes(now_ms):
        table.add_row(*_node(node))
    return Padding(table, (1, 0))


def _node(node: Shown) -> list[Text]:
    name = Text(printable(node.name), style="bold")
    if not node.answers or node.frame is None:
        at = node.peer.rpc if node.peer else ""
        return [name, Text("does not answer", style="bold red"), *([Text("")] * 6), Text(printable(at))]
    status = node.frame.status
    style = _ROLES.get(status.role, "yellow") if status.ready else "bold red"
    lag = "?" if status.lag_records < 0 else f"{status.lag_records:,}"
    seen = f"{status.behind_ms / 1000:.1f}s" if status.behind_ms >= 0 and not node.leads else ""
    return [
        name,
        Text(printable(status.role), style=style),
        Text(lag),
        Text(seen),
        Text(f"{status.applied_n:,}"),
        Text(f"{status.index.objects:,}"),
        Text(f"{status.connections:,}"),
        Text(_age(status.up_ms)),
        Text(printable(status.rpc)),
    ]


def _age(up_ms: int) -> str:
    for unit_ms in (86_400_000, 3_600_000, 60_000, 1_000):
        if up_ms >= unit_ms:
            return format_duration_ms(up_ms // unit_ms * unit_ms)
    return "0s"


def _pool_title(best: LiveNode) -> str:
    index = best.status.index
    if not index.bytes_total:
        return "pool: no host lends memory"
    return f"pool: {format_bytes(index.bytes_used)} of {format_bytes(index.bytes_total)}, {index.objects:,} objects"


def _pool(pool: tuple[SegmentUse, ...], width: int) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True, max_width=24, overflow="ellipsis")
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    bar_width = max(10, width - 24 - 16)
    for use in pool:
        share = use.used_bytes / use.total_bytes if use.total_bytes else 0
        beside = f"{share:.0%} of {format_bytes(use.total_bytes)}" + (" draining" if use.draining else "")
        table.add_row(Text(printable(use.name)), _bar(use, bar_width), Text(beside))
    legend = Text(no_wrap=True, overflow="ellipsis")
    for kind, colour in COLOURS.items():
        legend.append(BLOCK, style=colour)
        legend.append(f" {kind}  ")
    legend.append(FREE, style="dim")
    legend.append(" free")
    return Group(table, legend)


def _bar(use: SegmentUse, width: int) -> Text:
    """Each kind of use by its share; a kind that is there is never invisible."""
    bar = Text(no_wrap=True)
    for kind, colour in COLOURS.items():
        part_bytes = use.parts_bytes.get(kind, 0)
        cells = round(width * part_bytes / use.total_bytes) if use.total_bytes else 0
        bar.append(BLOCK * min(max(cells, part_bytes > 0), width - len(bar)), style=colour)
    bar.append(FREE * (width - len(bar)), style="dim")
    return bar


def _rates(model: Model, best: LiveNode, wall_ms: int, width: int) -> RenderableType:
    sample = best.sample
    if sample is None:
        return Text("the first figures arrive after a few seconds", style="dim")
    count = max(8, min(60, width - _BESIDE_SPARKS))
    both = Table.grid(padding=(0, 3))
    both.add_row(_functions(sample), _figures(model, sample, wall_ms, count))
    return both


def _functions(sample: Sample) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=21, no_wrap=True)
    table.add_column(justify="right", width=8, no_wrap=True)
    ranked = sorted(sample.calls.items(), key=lambda each: -each[1])
    rest = sum(value for _, value in ranked[FUNCTIONS:])
    for name, value in [*ranked[:FUNCTIONS], *([("others", rest)] if rest else [])]:
        table.add_row(Text(printable(name)), f"{value:,.1f}")
    if not ranked:
        table.add_row(Text("no calls", style="dim"), "")
    return table


def _figures(model: Model, sample: Sample, wall_ms: int, count: int) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=14, no_wrap=True)
    table.add_column(justify="right", width=8, no_wrap=True)
    table.add_column(no_wrap=True, style="cyan")
    lookups = sample.hits + sample.misses
    found = f" ({sample.hits / lookups:.0%})" if lookups else ""
    for title, field, text in (
        (f"hits{found}", "hits", f"{sample.hits:,.1f}"),
        ("misses", "misses", f"{sample.misses:,.1f}"),
        ("renewals", "hits", f"{sample.hits:,.1f}"),  # each hit renews a lease
        ("store writes", "store_writes", f"{sample.store_writes:,.1f}"),
        ("evictions", "evictions", f"{sample.evictions:,.1f}"),
        ("errors", "failures", f"{sample.failures:,.1f}"),
        ("commit, half", "commit_p50_ms", f"{sample.commit_p50_ms:.3g} ms"),
        ("commit, 99 %", "commit_p99_ms", f"{sample.commit_p99_ms:.3g} ms"),
    ):
        table.add_row(title, text, sparkline(model.series(field, wall_ms, count)))
    return table


def sparkline(values: list[float]) -> str:
    """One character for each value; the highest is a full block."""
    top = max(values, default=0.0)
    if top <= 0:
        return SPARKS[1] * len(values)
    steps = len(SPARKS) - 1
    return "".join(SPARKS[max(1, round(value / top * steps))] for value in values)


def _history(model: Model) -> RenderableType:
    table = Table(box=box.SIMPLE, show_header=False, show_edge=False, pad_edge=False)
    for line in sorted(model.history, key=lambda each: -each.wall_us)[:HISTORY_LINES]:
        when = datetime.fromtimestamp(line.wall_us / 1e6, UTC)
        texts = (f"{when:%H:%M:%S}", line.node, line.role, line.sentence)
        table.add_row(*(Text(printable(each), no_wrap=True, overflow="ellipsis") for each in texts))
    return table
