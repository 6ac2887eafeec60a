"""The pictures of a report, as inline SVG: a timeline of faults, roles and latencies, and a histogram. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from typing import Final

from leasehold.testing.chaos.figures import Recovery, Second
from leasehold.testing.chaos.history import FaultLine
from leasehold.testing.chaos.plan import KINDS, Group
from leasehold.testing.chaos.roles import RoleSample

WIDTH: Final = 1200
LEFT: Final = 110
PLOT: Final = WIDTH - LEFT - 20
LANE: Final = 22
CHART: Final = 130
COLOURS: Final = {
    Group.KILL: "#d1495b",
    Group.PAUSE: "#edae49",
    Group.CUT: "#8367c7",
    Group.STORE: "#2e86ab",
    Group.OTHER: "#7a8b99",
}
ROLE_COLOURS: Final = {"primary": "#3a9d6b", "standby": "#a9cdb9", "": "#00000000"}
OTHER_ROLE: Final = "#e8c468"
BINS_MS: Final = (10, 20, 50, 100, 200, 500, 1000, 2000, 3000, 5000, 10_000, math.inf)
LATENCY_MS: Final = (0.1, 10_000.0)  # the ends of the logarithmic axis


class Timeline:
    """Time runs from left to right; lanes and charts are stacked from top to bottom."""

    def __init__(self, began_ns: int, ended_ns: int) -> None:
        self._began_ns = began_ns
        self._span_ns = max(ended_ns - began_ns, 1)
        self._parts: list[str] = []
        self._y = 10

    def _x(self, at_ns: float) -> float:
        return LEFT + PLOT * min(max((at_ns - self._began_ns) / self._span_ns, 0.0), 1.0)

    def faults(self, faults: Sequence[FaultLine]) -> None:
        """One lane for each group of faults."""
        for group in Group:
            mine = [fault for fault in faults if KINDS[fault.kind].group is group]
            self._label(group.value)
            for fault in mine:
                title = f"{fault.kind} {fault.victim}, {fault.hold_ms / 1000:.1f} s"
                self._bar(fault.began_ns, fault.healed_ns, COLOURS[group], title)
            self._y += LANE

    def roles(self, samples: Sequence[RoleSample]) -> None:
        """One lane for each node."""
        for node in sorted({sample.node for sample in samples}):
            mine = [sample for sample in samples if sample.node == node]
            self._label(node)
            runs = [list(run) for _, run in groupby(mine, key=lambda sample: sample.role)]
            for run, following in zip(runs, [*runs[1:], None], strict=True):
                until_ns = following[0].at_ns if following else self._began_ns + self._span_ns
                role = run[0].role
                self._bar(
                    run[0].at_ns, until_ns, ROLE_COLOURS.get(role, OTHER_ROLE), f"{node}: {role or 'no answer'}", 2
                )
            self._y += LANE

    def throughput(self, seconds: Sequence[Second]) -> None:
        """Good answers a second, and failed calls below them."""
        most = max((each.good for each in seconds), default=1) or 1
        self._label(f"{most}/s", 12)
        self._label("answers/s", CHART // 2)
        base = self._y + CHART
        step = PLOT / max(len(seconds), 1)
        heights = [(LEFT + i * step, base - CHART * each.good / most) for i, each in enumerate(seconds)]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in heights)
        self._parts.append(
            f'<polygon points="{LEFT},{base} {points} {LEFT + PLOT},{base}" fill="#3a9d6b" opacity=".5"/>'
        )
        for i, each in enumerate(seconds):
            if each.failed:
                x = LEFT + i * step
                self._parts.append(
                    f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{base}" y2="{base - min(each.failed * 4, CHART)}" '
                    f'stroke="#d1495b"><title>{each.failed} failed calls</title></line>'
                )
        self._y += CHART + 14

    def latency(self, seconds: Sequence[Second]) -> None:
        """Median and 99th percentile by second, on a logarithmic axis."""
        base = self._y + CHART
        for line_ms in (1, 10, 100, 1000, 10_000):
            y = base - self._height(line_ms)
            self._parts.append(f'<line x1="{LEFT}" x2="{LEFT + PLOT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
            name = _short(line_ms)
            self._parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{name}</text>')
        step = PLOT / max(len(seconds), 1)
        for colour, values in (
            ("#d1495b", [each.p99_ms for each in seconds]),
            ("#2e86ab", [each.median_ms for each in seconds]),
        ):
            for run in _runs((LEFT + (i + 0.5) * step, value) for i, value in enumerate(values)):
                points = " ".join(f"{x:.1f},{base - self._height(value):.1f}" for x, value in run)
                self._parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.3"/>')
        self._y += CHART + 6

    @staticmethod
    def _height(value_ms: float) -> float:
        low, high = map(math.log10, LATENCY_MS)
        return CHART * (min(max(math.log10(max(value_ms, 1e-3)), low), high) - low) / (high - low)

    def axis(self) -> None:
        span_s = self._span_ns / 1e9
        step_s = next(step for step in (5, 10, 15, 30, 60, 120, 300, 3600) if span_s / step <= 14 or step == 3600)
        for at_s in range(0, int(span_s) + 1, step_s):
            x = self._x(self._began_ns + at_s * 1e9)
            self._parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="10" y2="{self._y}" class="grid"/>')
            name = f"{at_s // 60}:{at_s % 60:02d}"
            self._parts.append(f'<text x="{x:.1f}" y="{self._y + 16}" text-anchor="middle">{name}</text>')
        self._y += 24

    def svg(self, title: str) -> str:
        return _svg(self._y, title, self._parts)

    def _label(self, text: str, down: int = LANE // 2 + 4) -> None:
        self._parts.append(f'<text x="{LEFT - 8}" y="{self._y + down}" text-anchor="end">{escape(text)}</text>')

    def _bar(self, start_ns: int, end_ns: int, colour: str, title: str, gap: int = 4) -> None:
        x, right = self._x(start_ns), self._x(end_ns)
        self._parts.append(
            f'<rect x="{x:.1f}" y="{self._y + gap}" width="{max(right - x, 1.5):.1f}" height="{LANE - 2 * gap}" '
            f'fill="{colour}" rx="1.5"><title>{escape(title)}</title></rect>'
        )


def _runs(points: Iterable[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """The stretches without a gap: a second without answers has no latency."""
    return [list(run) for there, run in groupby(points, key=lambda point: point[1] > 0) if there]


def histogram(found: Sequence[Recovery], title: str) -> str:
    """How long failovers took: from the fault to the next good answer to any client."""
    counts = [0] * len(BINS_MS)
    for one in found:
        counts[next(i for i, top in enumerate(BINS_MS) if one.any_ms < top)] += 1
    most = max(counts, default=0) or 1
    width, height = (WIDTH - 40) / len(BINS_MS), 150
    parts = []
    for i, (top, count) in enumerate(zip(BINS_MS, counts, strict=True)):
        x, tall = 20 + i * width, height * count / most
        name = f"< {_short(top)}" if top < math.inf else f"≥ {_short(BINS_MS[-2])}"
        middle = x + width / 2
        parts.append(
            f'<rect x="{x + 6:.1f}" y="{20 + height - tall:.1f}" width="{width - 12:.1f}" height="{tall:.1f}" '
            f'fill="#2e86ab"/><text x="{middle:.1f}" y="{height + 38}" text-anchor="middle">{name}</text>'
        )
        if count:
            parts.append(f'<text x="{middle:.1f}" y="{14 + height - tall:.1f}" text-anchor="middle">{count}</text>')
    return _svg(height + 50, title, parts)


def _short(ms: float) -> str:
    return f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms"


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title, quote=True)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )
