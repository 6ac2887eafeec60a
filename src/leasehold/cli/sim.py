"""`leasehold sim`: a cluster in a box, on virtual time, with everything going wrong; one seed, one story."""

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
        raise click.BadParameter(f"--seeds {text}: a seed is wanted, or a range such as 0:100") from None
    if not seeds:  # or "all promises held" would be said of nothing
        raise click.BadParameter(f"--seeds {text} names no seed: FIRST:LAST, without the last")
    return seeds


@click.command(
    cls=Explained,
    examples=(
        ("leasehold sim --seeds 0:100 --events 5000", ""),
        ("leasehold sim --seeds 0:50 --bug no-grace", "does the instrument find a planted bug?"),
    ),
)
@click.option("--seeds", default="0:100", show_default=True, help="one seed, or FIRST:LAST (without the last)")
@click.option(
    "--events",
    default=5_000,
    show_default=True,
    type=click.IntRange(1),
    help="events of chaos per seed, before everything is healed",
)
@click.option("--jobs", default=0, help="processes side by side (default: one a core)")
@click.option("--bug", "bugs", multiple=True, type=click.Choice(BUGS), help="plant this bug: is it found?")
@click.option("--lines", default=80, show_default=True, help="lines of the story of a failing seed")
@click.option("--keep-going", is_flag=True, help="do not stop at the first seed that fails")
@click.option("--json", "as_json", is_flag=True, help="one JSON object a seed")
def sim(seeds: str, events: int, jobs: int, bugs: tuple[str, ...], lines: int, keep_going: bool, as_json: bool) -> None:
    """Search for a schedule that breaks a promise. Exit code 1 if one was found."""
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
    """What was searched, in one line."""
    broken = [str(outcome.seed) for outcome in done if not outcome.ok]
    verdict = f"{len(broken)} broken: seeds {', '.join(broken[:20])}" if broken else "all promises held"
    return (
        f"{len(done)} seeds, {sum(one.events for one in done):,} events, "
        f"{sum(one.virtual_ms for one in done) / 3_600_000:.1f} hours of virtual time in {seconds:.1f} s: "
        f"{sum(one.acknowledged for one in done):,} answers, "
        f"{sum(one.reads_checked for one in done):,} reads of memory, "
        f"{sum(one.promotions for one in done):,} promotions; {verdict}"
    )
