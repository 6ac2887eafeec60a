"""The result of the demo: its figures, the verdict, and the closing table."""

from __future__ import annotations

from msgspec import Struct
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from leasehold.base.units import format_bytes


class SceneResult(Struct, kw_only=True):
    """One fault and the state after it."""

    name: str
    what: str
    fault_wall_us: int  # when the fault began, or when a frozen store continued
    next_answer_ms: int  # from then on: the longest time without a good answer
    answer_wall_us: int  # when that answer arrived
    keys: int  # compared byte by byte
    bytes: int
    lost: int  # acknowledged keys that are absent or have other bytes
    stale: int  # reads that returned less than was acknowledged before
    leases: int  # checked: held through the fault, and not expired
    leases_broken: int
    leader: str
    epoch: int

    @property
    def held(self) -> bool:
        return not (self.lost or self.stale or self.leases_broken) and self.leases > 0 and self.keys > 0


class DemoReport(Struct, kw_only=True):
    """Everything that the demo found. `differences`: figures that the cluster itself reports otherwise."""

    ok: bool
    seconds: float
    admin: list[str]
    filled_bytes: int
    pool_bytes: int
    objects: int  # in the pool at the end
    good_answers: int  # of the client that puts and reads without pause
    scenes: list[SceneResult]
    differences: list[str]

    def problems(self) -> list[str]:
        found = [
            f"{scene.name}: {scene.lost} lost, {scene.stale} stale, "
            f"{scene.leases_broken} of {scene.leases} leases broken"
            for scene in self.scenes
            if not scene.held
        ]
        return found + self.differences


def show(report: DemoReport, console: Console) -> None:
    """Print the closing table and the verdict."""
    table = Table(pad_edge=False, box=SIMPLE_HEAD)
    table.add_column("fault", no_wrap=True)
    for column in ("next good\nanswer", "keys\ncompared", "lost", "stale", "leases\nbroken"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("leader,\nepoch", no_wrap=True)
    for scene in report.scenes:
        table.add_row(
            scene.name,
            f"{scene.next_answer_ms:,} ms",
            f"{scene.keys:,}",
            *(_count(wrong) for wrong in (scene.lost, scene.stale)),
            f"{_count(scene.leases_broken)} of {scene.leases}",
            f"{scene.leader}, {scene.epoch}",
        )
    console.print()
    console.print(table)
    console.print()
    for problem in report.problems():
        console.print(f"[bold red]![/] {problem}")
    if report.ok:
        compared = format_bytes(sum(scene.bytes for scene in report.scenes))
        console.print(
            f"[bold green]All promises held[/] in {report.seconds:.0f} s: {compared} compared byte by byte, nothing "
            f"lost, nothing stale, no lease broken. History and metrics agree."
        )


def _count(wrong: int) -> str:
    return f"[bold red]{wrong:,}[/]" if wrong else "[green]0[/]"
