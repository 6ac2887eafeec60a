"""The report of a run: one HTML file without external resources. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from html import escape

from leasehold.testing.chaos.drawing import COLOURS, OTHER_ROLE, ROLE_COLOURS, Timeline, histogram
from leasehold.testing.chaos.figures import by_kind, count_by_group, recoveries, seconds
from leasehold.testing.chaos.plan import KINDS, Group
from leasehold.testing.chaos.run import Finished

SHOWN_MAX = 50  # violations in the report
NEXT_ANSWER = (
    "From the beginning of the fault to the first good answer to a call that was sent later. "
    "A Mooncake client knows one node only, so it waits while that node is down."
)
STYLE = """
:root { color-scheme: light dark; --text: #1c2733; --soft: #5b6b7a; --line: #d5dde4; --back: #ffffff; --box: #f4f7f9; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e5ecf2; --soft: #9fb0bf; --line: #33414d; --back: #131a20; --box: #1b242c; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 1240px;
  margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.6em; margin-bottom: .1em; } h2 { font-size: 1.15em; margin-top: 2em; }
p.soft, .key { color: var(--soft); } code { background: var(--box); padding: .15em .35em; border-radius: 4px; }
.verdict { padding: .7em 1em; border-radius: 6px; font-weight: 600; color: #fff; }
.good { background: #2c7a52; } .bad { background: #b3303f; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: .7em; margin: 1em 0; }
.figures div { background: var(--box); padding: .6em .8em; border-radius: 6px; }
.figures b { display: block; font-size: 1.35em; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; color: var(--soft); font-weight: 600; }
td, th { padding: .25em .6em; border-bottom: 1px solid var(--line); } .n { text-align: right; white-space: nowrap; }
svg { width: 100%; height: auto; background: var(--box); border-radius: 6px; }
svg text { font: 11px system-ui, sans-serif; fill: var(--soft); } svg .grid { stroke: var(--line); stroke-width: .7; }
.key span { display: inline-block; width: .9em; height: .9em; border-radius: 2px; margin: 0 .35em 0 1em; }
"""


def command_of(run: Finished) -> str:
    """The command that repeats the run."""
    options = run.options
    other = f" --other-release {options.other_release}" if options.other_release else " --other-release ''"
    return f"leasehold chaos --seed {options.seed} --minutes {options.minutes:g}{other} --out report.html"


def summary(run: Finished) -> str:
    """The result in one line."""
    verdict = run.verdict
    return (
        f"{verdict.calls:,} calls on {verdict.keys:,} keys during {len(run.faults)} faults: "
        f"{len(verdict.lost)} lost, {len(verdict.stale)} stale, {len(verdict.leases)} leases broken, "
        f"{len(verdict.space)} extents given twice, {len(verdict.wrong_bytes)} wrong bytes, "
        f"{len(verdict.unproven)} keys unproven; "
        f"{'the cluster converged' if run.converged else 'the cluster did not converge'}"
    )


def is_good(run: Finished) -> bool:
    return run.verdict.clean and run.converged


def render(run: Finished, version: str) -> str:
    """The whole file."""
    verdict = run.verdict
    found = recoveries(run.calls, run.faults, run.roles)
    failovers = [one for one in found if one.leader_changed]
    every_second = seconds(run.calls, run.began_ns, run.ended_ns)
    timeline = Timeline(run.began_ns, run.ended_ns)
    timeline.faults(run.faults)
    timeline.roles(run.roles)
    timeline.throughput(every_second)
    timeline.latency(every_second)
    timeline.axis()
    title = f"Leasehold chaos, seed {run.options.seed}"
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="soft">{escape(_world(run, version))}</p>',
        f'<p class="verdict {"good" if is_good(run) else "bad"}">{escape(summary(run))}</p>',
        f"<p>Run it again: <code>{escape(command_of(run))}</code></p>",
        _figures(run, len(failovers), statistics.median(one.any_ms for one in failovers) if failovers else None),
        "<h2>Timeline</h2>",
        _key(),
        timeline.svg("faults, roles, answers a second, median and 99th percentile of latency, over time"),
        "<h2>Failovers</h2>",
        "<p>Faults after which a new leadership began: time from the fault to the next good answer to any client.</p>",
        histogram(failovers, "number of failovers by their duration"),
        "<h2>Time to the next good answer, by kind of fault</h2>",
        f"<p>{NEXT_ANSWER}</p>",
        _kinds(run),
        "<h2>Violations</h2>",
        _list(verdict.violations[:SHOWN_MAX], "None."),
        "<h2>Not checked</h2>",
        _list([*run.left_out, *(f"key {key}: the search was given up" for key in verdict.unproven)], "Nothing."),
        f"<details><summary>All {len(run.faults)} faults</summary>{_faults(run)}</details>",
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _world(run: Finished, version: str) -> str:
    return (
        f"leasehold {version}, {run.etcd} with 3 members, 3 nodes, 3 storage hosts, {len(run.clients)} clients "
        f"({', '.join(run.clients)}); {(run.ended_ns - run.began_ns) / 60e9:.1f} minutes"
    )


def _figures(run: Finished, failovers: int, median_ms: float | None) -> str:
    verdict, groups = run.verdict, count_by_group(run.faults)
    unknown = sum(not call.good for call in run.calls)
    boxes = {
        "calls": f"{verdict.calls:,}",
        "of unknown outcome": f"{unknown:,}",
        "keys, each linearizable": f"{verdict.keys - len(verdict.lost) - len(verdict.stale) - len(verdict.unproven):,}",
        "leases checked": f"{verdict.leases_checked:,}",
        "extents checked": f"{verdict.extents_checked:,}",
        "kills": str(groups[Group.KILL]),
        "pauses": str(groups[Group.PAUSE]),
        "one-way cuts": str(groups[Group.CUT]),
        "faults of etcd": str(groups[Group.STORE]),
        "other faults": str(groups[Group.OTHER]),
        "failovers": str(failovers),
        "median failover": "-" if median_ms is None else _time(median_ms),
    }
    return f'<div class="figures">{"".join(f"<div><b>{value}</b>{name}</div>" for name, value in boxes.items())}</div>'


def _key() -> str:
    colours = {group.value: colour for group, colour in COLOURS.items()}
    colours |= {role: ROLE_COLOURS[role] for role in ("primary", "standby")} | {"other role": OTHER_ROLE}
    colours |= {"failed calls, p99": "#d1495b", "median": "#2e86ab"}
    names = (f"<span style=background:{colour}></span>{name}" for name, colour in colours.items())
    return f'<p class="key">{"".join(names)}</p>'


def _kinds(run: Finished) -> str:
    rows = [
        (
            f'<td title="{escape(KINDS[each.kind].meaning, quote=True)}">{each.kind}</td>'
            f"<td>{escape(KINDS[each.kind].meaning)}</td>"
        )
        + "".join(
            f'<td class="n">{text}</td>'
            for text in (
                each.count,
                each.leader_changes,
                _time(each.any_median_ms),
                _time(each.any_worst_ms),
                _time(each.client_median_ms),
                _time(each.client_worst_ms),
            )
        )
        for each in by_kind(recoveries(run.calls, run.faults, run.roles))
    ]
    heads = ("failovers", "any client: median", "worst", "each client: median", "worst")
    head = "<th>fault</th><th></th><th class=n>count</th>" + "".join(f"<th class=n>{name}</th>" for name in heads)
    return f"<table><tr>{head}</tr>{_rows(rows)}</table>"


def _faults(run: Finished) -> str:
    rows = [
        f'<td class="n">{(fault.began_ns - run.began_ns) / 1e9:.1f} s</td><td>{fault.kind}</td>'
        f"<td>{escape(fault.victim)}</td>"
        f'<td class="n">{fault.hold_ms / 1000:.1f} s</td>'
        f'<td class="n">{(fault.settled_ns - fault.began_ns) / 1e9:.1f} s</td><td>{escape(fault.problem)}</td>'
        for fault in run.faults
    ]
    head = "".join(f"<th>{name}</th>" for name in ("at", "fault", "victim", "lasted", "settled after", "remark"))
    return f"<table><tr>{head}</tr>{_rows(rows)}</table>"


def _rows(rows: Iterable[str]) -> str:
    return "".join(f"<tr>{row}</tr>" for row in rows)


def _list(lines: Sequence[str], otherwise: str) -> str:
    if not lines:
        return f"<p>{otherwise}</p>"
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _time(ms: float) -> str:
    return f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms:.0f} ms"
