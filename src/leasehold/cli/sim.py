"""`leasehold sim`: simulate a cluster in virtual time and inject faults. One seed gives one reproducible run."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict

import click

from leasehold.cli.help import Explained
from leasehold.testing.sim.many import run_many
from leasehold.testing.sim.plan import BUGS
from leasehold.testing.sim.run import Outcome


def _seeds(text: str) -> range:
    first, _, last = text.partition(":")
    try:
        seeds = range(int(first), int(last) if last else int(first) + 1)
    except ValueError:
        raise click.BadParameter(f"--seeds '{text}' is not a seed; write a number, or a range such as 0:100") from None
    if not seeds:  # an empty search would report success
        raise click.BadParameter(f"--seeds '{text}' is an empty range; write FIRST:LAST, where LAST is excluded")
    return seeds


@click.command(
    cls=Explained,
    examples=(
        ("leasehold sim --seeds 0:100 --events 5000", "search 100 seeds"),
        ("leasehold sim --seeds 0:50 --bug no-grace", "check that the simulator finds a planted bug"),
    ),
)
@click.option("--seeds", default="0:100", show_default=True, help="one seed, or a range FIRST:LAST without LAST")
@click.option(
    "--events",
    default=5_000,
    show_default=True,
    type=click.IntRange(1),
    help="events with faults per seed, before all faults are repaired",
)
@click.option("--jobs", default=0, help="number of parallel processes (default: one per core)")
@click.option("--bug", "bugs", multiple=True, type=click.Choice(BUGS), help="bug to plant, to test the simulator")
@click.option("--lines", default=80, show_default=True, help="log lines to print for a failing seed")
@click.option("--keep-going", is_flag=True, help="continue after a seed that fails")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object per seed")
def sim(seeds: str, events: int, jobs: int, bugs: tuple[str, ...], lines: int, keep_going: bool, as_json: bool) -> None:
    """Search simulated runs for one that breaks a promise (P1 to P7). Exits with 1 if there is one."""
    started_s = time.monotonic()
    done: list[Outcome] = []
    for outcome in run_many(_seeds(seeds), events=events, bugs=frozenset(bugs), jobs=jobs):
        done.append(outcome)
        if as_json:
            shown = {name: value for name, value in asdict(outcome).items() if name != "lines"}
            click.echo(json.dumps(shown))
        elif not outcome.ok:
            click.echo(outcome.story(lines))
        if not outcome.ok and not keep_going:
            break
    broken = [outcome for outcome in done if not outcome.ok]
    if not as_json:
        click.echo(_summary(done, time.monotonic() - started_s))
    sys.exit(1 if broken else 0)


def _summary(done: list[Outcome], seconds: float) -> str:
    """Summary of the search, in one line."""
    broken = [str(outcome.seed) for outcome in done if not outcome.ok]
    verdict = f"{len(broken)} broken: seeds {', '.join(broken[:20])}" if broken else "all promises held"
    return (
        f"{len(done)} seeds, {sum(one.events for one in done):,} events, "
        f"{sum(one.virtual_ms for one in done) / 3_600_000:.1f} hours of virtual time in {seconds:.1f} s: "
        f"{sum(one.acknowledged for one in done):,} answers, "
        f"{sum(one.reads_checked for one in done):,} reads of memory, "
        f"{sum(one.promotions for one in done):,} promotions; {verdict}"
    )
