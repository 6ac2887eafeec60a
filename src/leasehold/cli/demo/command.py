"""The command `leasehold demo`."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from leasehold.cli.child import run_once
from leasehold.cli.demo.cluster import DemoCluster
from leasehold.cli.demo.report import DemoReport, show
from leasehold.cli.demo.scenes import Demo
from leasehold.cli.help import Explained
from leasehold.cli.operate import json_option, print_json
from leasehold.runtime.private_files import make_files_private


class Bars:
    """One progress bar for each step; without a terminal, one line for each finished step."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = TaskID(0)
        self._what = ""

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, name: str, what: str, steps: int) -> None:
        self._what = what
        self._task = self._progress.add_task(name, total=steps, note="")

    def advance(self, steps: int = 1, *, what: str = "") -> None:
        self._progress.update(self._task, advance=steps, note=what)

    def end(self, result: str) -> None:
        self._progress.update(self._task, note=f"[green]{result}[/]")
        self._progress.stop_task(self._task)
        if not self._console.is_terminal:
            self._console.print(f"{self._what}: {result}", soft_wrap=True)


class Silence:
    """No progress: standard output is for JSON."""

    def begin(self, name: str, what: str, steps: int) -> None: ...

    def advance(self, steps: int = 1, *, what: str = "") -> None: ...

    def end(self, result: str) -> None: ...


@click.command(
    cls=Explained,
    examples=(
        ("leasehold demo", "about 40 seconds; open the dashboard that it prints to watch the failovers"),
        ("leasehold demo --json | jq '.scenes[] | [.name, .next_answer_ms]'", "the figures, for programs"),
        ("leasehold demo --keep-running", "look around afterwards with status, top, history and the dashboard"),
    ),
)
@json_option
@click.option("--keep-running", is_flag=True, help="keep the cluster running after the table, until Ctrl-C")
def demo(as_json: bool, keep_running: bool) -> None:
    """Break a local cluster in five ways, and check every answer. Exits with 1 if a promise was broken.

    It starts its own store, two nodes and two storage hosts on free ports of loopback, fills the pool, and then kills
    the primary, freezes it, switches over and freezes the store, while clients put, read and hold leases.
    """
    make_files_private()
    folder = Path(tempfile.mkdtemp(prefix="leasehold-demo-"))
    cluster = DemoCluster(folder)
    ok = False
    try:
        ok = run_once(_run(cluster, Console(highlight=False), as_json=as_json, keep_running=keep_running))
    except BaseException as error:
        ok = isinstance(error, KeyboardInterrupt | SystemExit)  # stopped by the user: nothing to look into
        raise
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        cluster.kill()
        if ok:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            click.echo(f"leasehold: logs and data of the demo are in '{folder}'", err=True)
    if not ok:
        sys.exit(1)


async def _run(cluster: DemoCluster, console: Console, *, as_json: bool, keep_running: bool) -> bool:
    if as_json:
        report = await _played(Demo(cluster, Silence()))
        print_json(report)
        sys.stdout.flush()
    else:
        with Bars(console) as bars:
            report = await _played(Demo(cluster, bars))
        show(report, console)
    if keep_running:
        if not as_json:
            console.print(
                f"running: `leasehold top --admin {','.join(cluster.admin)}`, or http://{cluster.admin[0]}/ ; "
                "Ctrl-C stops it"
            )
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    return report.ok


async def _played(play: Demo) -> DemoReport:
    try:
        return await play.run()
    finally:
        play.close()
