"""The worst case of a lease drawn as text: which process may act when."""

from __future__ import annotations

from msgspec import Struct

from leasehold.leases.planner import Plan


class Span(Struct, frozen=True):
    """A stretch of one row: from, to (seconds) and how it is filled."""

    start_s: float
    end_s: float
    fill: str


class Row(Struct, frozen=True):
    label: str
    spans: tuple[Span, ...]
    note: str


def rows(plan: Plan) -> list[Row]:
    """Time 0 is the last renewal that was answered; the holder dies right after it, the grantor restarts late."""
    lease, restart, worst = plan.lease_s, plan.restart_s, plan.outage_with_restart_s
    down = lease if plan.store == "etcd" else max(0.0, lease - restart)
    return [
        Row(
            "holder",
            (Span(0, plan.stop_before_s, "█"),),
            f"may act for {plan.stop_before_s:g} s after its last renewal",
        ),
        Row("its lease", (Span(0, lease, "▓"),), f"ends after {lease:g} s: the outage when the holder dies"),
        Row(
            "grantor restarts",
            (Span(0, down, "─"), Span(down, down + restart, "░"), Span(down + restart, worst, "─")),
            f"down for {restart:g} s, at the worst moment",
        ),
        Row("lease, restart", (Span(0, worst, "▒"),), f"ends after {worst:g} s at worst ({plan.store})"),
        Row("successor", (Span(worst, worst * 1.08, "█"),), f"acts from {worst:g} s on"),
    ]


def draw(plan: Plan, columns: int = 60) -> list[str]:
    """The rows as lines of text, one unit of width per slice of the worst case."""
    drawn = rows(plan)
    whole_s = max(span.end_s for row in drawn for span in row.spans) or 1.0
    lines = []
    for row in drawn:
        cells = [" "] * columns
        for span in row.spans:
            first = min(columns - 1, round(span.start_s / whole_s * columns))
            last = max(first + 1, round(span.end_s / whole_s * columns)) if span.end_s > span.start_s else first
            cells[first:last] = span.fill * (min(last, columns) - first)
        lines.append(f"{row.label:>16} │{''.join(cells)[:columns]}│ {row.note}")
    times = [f"{whole_s * part / 4:.3g}s" for part in range(5)]
    ruler = " " * 17 + "└" + "".join(time.ljust(columns // 4, "─") for time in times[:4])[:columns] + "┘ " + times[4]
    return [*lines, ruler]
