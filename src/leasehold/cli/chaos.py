"""`leasehold chaos`: faults on a real cluster of this machine, and a report."""

from __future__ import annotations

import asyncio
import secrets
import sys
import tempfile
from pathlib import Path

import click

import leasehold
from leasehold.cli.help import Explained
from leasehold.testing.chaos.options import Options


@click.command(
    cls=Explained,
    examples=(
        ("leasehold chaos --minutes 20 --out report.html", "a full run"),
        ("leasehold chaos --minutes 1 --seed 7 --out report.html", "a short run, with the faults of seed 7"),
    ),
)
@click.option(
    "--minutes", default=20.0, show_default=True, type=click.FloatRange(0.1, 600), help="minutes in which faults begin"
)
@click.option("--out", default="report.html", show_default=True, help="file for the report")
@click.option("--seed", type=click.IntRange(0), help="seed of faults and calls (default: a random one)")
@click.option(
    "--other-release",
    default="fa642a5",
    show_default=True,
    help="release that nodes change to and from: a commit of this checkout, or a folder with its sources; '': none",
)
@click.option("--history", default="", help="file for the histories of all keys, as JSON lines, for other checkers")
@click.option("--inside", default="", hidden=True)  # the working folder, for the process inside the namespaces
def chaos(minutes: float, out: str, seed: int | None, other_release: str, history: str, inside: str) -> None:
    """Run a real cluster on this machine, break it for some minutes, and check every answer.

    It exits with 1 if a promise was broken. It starts three etcd members, three nodes, three storage hosts and eight
    clients in network and process namespaces of its own: as root, or where users may create namespaces. Nothing of it
    is left when it ends.
    """
    from leasehold.testing.chaos import sandbox

    if inside:
        sys.exit(_run(Options(seed or 0, minutes, other_release, history), Path(inside), Path(out)))
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    report = Path(out).absolute()
    report.parent.mkdir(parents=True, exist_ok=True)
    arguments = ["chaos", "--minutes", str(minutes), "--seed", str(seed), "--other-release", other_release]
    arguments += ["--out", str(report), "--history", str(Path(history).absolute()) if history else ""]
    click.echo(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="leasehold-chaos-") as folder:
        code = sandbox.run_inside([*arguments, "--inside", folder])
    sys.exit(code)


def _run(options: Options, folder: Path, out: Path) -> int:
    """The run itself, inside the namespaces."""
    from leasehold.testing.chaos import report
    from leasehold.testing.chaos.run import run

    finished = asyncio.run(run(options, folder, click.echo))
    out.write_text(report.render(finished, leasehold.__version__))
    click.echo(report.summary(finished))
    click.echo(f"report: {out}")
    return 0 if report.is_good(finished) else 1
