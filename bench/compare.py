"""Compare the speed of two checkouts: `make bench-compare BASE=<commit or folder>`, or `scripts/bench-compare`.

Both run each benchmark several times, in turn and in alternating order, so that a busy machine slows both. For every
row the medians are compared. A row is slower if its median is worse by more than the limit, and worse than every round
of the base: otherwise the difference is within the base's own noise. Benchmarks with a slower row run as many rounds
again, and all rounds count: among a hundred rows some are slower by chance.

The base runs with this checkout's interpreter and packages, so that only our own code differs; `--own-venv` installs
the base and its requirements into an environment of its own. A folder with a `.venv` uses that one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.before_json import KNOWN as PRINTED
from bench.result import ROOT, Rows
from bench.rows import Row

BENCHES = ("index", "calls", "master", "promotion", "lock", "store")
ROUNDS = 5
LIMIT_PERCENT = 5.0
# Memory is not noisy: more than this is more.
BYTES_LIMIT_PERCENT = 0.5
LOG_LINES = 30


class CannotCompare(Exception):
    """A benchmark failed, or the two sides have different rows."""


class Side(Struct, frozen=True):
    """One checkout and the interpreter that runs it."""

    name: str
    folder: Path
    python: str

    @property
    def environment(self) -> dict[str, str]:
        mooncake = os.environ.get("LEASEHOLD_MOONCAKE_CACHE", str(ROOT / ".cache"))
        path = os.pathsep.join([str(self.folder / "src"), str(self.folder)])
        return {**os.environ, "PYTHONPATH": path, "LEASEHOLD_MOONCAKE_CACHE": mooncake}

    def check(self) -> None:
        """The package must be imported from this checkout, or the comparison is of one side with itself."""
        code = "import leasehold; print(leasehold.__file__)"
        done = self._run([self.python, "-c", code], None)
        if self.folder.resolve() not in Path(done.strip()).resolve().parents:
            raise CannotCompare(f"{self.name}: leasehold is imported from {done.strip()}, not from {self.folder}")

    def run(self, bench: str, output: Path) -> list[Row]:
        if (self.folder / "bench" / "one.py").exists():
            command = [self.python, "-m", "bench.one", bench, str(output)]
        elif bench in PRINTED:
            command = [self.python, str(Path(__file__).with_name("before_json.py")), bench, str(output)]
        else:
            known = ", ".join(PRINTED)
            raise CannotCompare(f'{self.name}: "{bench}" of this commit writes no JSON; comparable are: {known}')
        self._run(command, output)
        rows = msgspec.json.decode(output.read_bytes(), type=Rows).rows
        if not rows:
            raise CannotCompare(f"{self.name}: {bench} measured nothing; run it alone to see why")
        return rows

    def _run(self, command: list[str], output: Path | None) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0 or (output is not None and not output.exists()):
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-LOG_LINES:])
            raise CannotCompare(f"{self.name}: {' '.join(command)} failed (exit code {done.returncode}):\n{tail}")
        return done.stdout


@contextmanager
def base_side(base: str, own_venv: bool) -> Iterator[Side]:
    """A folder unchanged, or a commit in a temporary folder."""
    if Path(base).is_dir():
        folder = Path(base).resolve()
        own = folder / ".venv" / "bin" / "python"
        yield Side("base", folder, str(own) if own.exists() else sys.executable)
        return
    with tempfile.TemporaryDirectory(prefix="leasehold-base-") as temporary:
        folder = Path(temporary)
        unpack(base, folder)
        # The peers' environments are large and the same for both.
        (ROOT / ".cache").mkdir(exist_ok=True)
        (folder / ".cache").symlink_to(ROOT / ".cache")
        python = sys.executable
        if own_venv:
            subprocess.run([sys.executable, "-m", "venv", str(folder / ".venv")], check=True)
            python = str(folder / ".venv" / "bin" / "python")
            subprocess.run([python, "-m", "pip", "install", "--quiet", "-e", f"{folder}[dev]"], check=True)
        yield Side("base", folder, python)


def unpack(commit: str, folder: Path) -> None:
    """The files of a commit, without git's own: nothing has to be cleaned up in the repository."""
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=False)
    if packed.returncode != 0:
        reason = packed.stderr.decode().strip()
        raise CannotCompare(f'"{commit}" is neither a folder nor a commit of this repository: {reason}')
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)


Figures = dict[tuple[str, str], list[Row]]
"""(benchmark, row) -> one row for each round."""


def measure(sides: tuple[Side, Side], benches: list[str], rounds: int, old: Figures, new: Figures) -> None:
    """Run every benchmark `rounds` times on both sides and add the rows to `old` and `new`."""
    found = dict(zip((side.name for side in sides), (old, new), strict=True))
    with tempfile.TemporaryDirectory(prefix="leasehold-compare-") as folder:
        for number in range(rounds):
            for bench in benches:
                for side in sides if number % 2 == 0 else reversed(sides):
                    print(f"round {number + 1} of {rounds}: {bench}, {side.name}", file=sys.stderr, flush=True)
                    for row in side.run(bench, Path(folder) / f"{side.name}-{bench}-{number}.json"):
                        found[side.name].setdefault((row.bench, row.row), []).append(row)
            check_rows(old, new)  # after the first round, not after the last


def compare(sides: tuple[Side, Side], benches: list[str], rounds: int, limit: float) -> list[Verdict]:
    for side in sides:
        side.check()
    old, new = Figures(), Figures()
    measure(sides, benches, rounds, old, new)
    found = verdicts(old, new, limit)
    if suspects := sorted({each.bench for each in found if each.slower}):
        print(f"again, as rows were slower: {', '.join(suspects)}", file=sys.stderr, flush=True)
        measure(sides, suspects, rounds, old, new)
        found = verdicts(old, new, limit)
    return found


class Verdict(Struct, frozen=True):
    """One row of both sides. `slowdown` is above 1 if the new side is worse, whatever the unit."""

    bench: str
    row: str
    unit: str
    base: float
    new: float
    slowdown: float
    spread: float
    limit: float
    beyond_noise: bool

    @property
    def over_limit(self) -> bool:
        return self.slowdown > 1 + self.limit

    @property
    def slower(self) -> bool:
        return self.over_limit and self.beyond_noise

    def __str__(self) -> str:
        remark = "SLOWER" if self.slower else "within the noise of the base" if self.over_limit else ""
        return (
            f"{self.bench:<10} {self.row:<46} {self.base:>14,.4g} {self.new:>14,.4g} {self.unit:<10}"
            f" {self.slowdown:>6.3f} {self.spread:>7.1%}  {remark}"
        )


HEADING = (
    f"{'benchmark':<10} {'row':<46} {'base, median':>14} {'new, median':>14} {'unit':<10} {'slower':>6} {'spread':>7}"
)


def judge(base: list[Row], new: list[Row], limit: float) -> Verdict:
    olds, news = [row.value for row in base], [row.value for row in new]
    old, recent = statistics.median(olds), statistics.median(news)
    higher_is_better, unit = base[0].higher_is_better, base[0].unit
    better, worse = (old, recent) if not higher_is_better else (recent, old)
    slowdown = worse / better if better > 0 else 1.0
    beyond = recent < min(olds) if higher_is_better else recent > max(olds)
    spread = (max(olds) - min(olds)) / old if old else 0.0
    limit = min(limit, BYTES_LIMIT_PERCENT / 100) if unit == "bytes" else limit
    return Verdict(base[0].bench, base[0].row, unit, old, recent, slowdown, spread, limit, beyond)


def named(keys: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{bench}: {row}" for bench, row in sorted(keys))


def check_rows(base: Figures, new: Figures) -> None:
    """A removed row could hide that it got slower. Rows that were added since the base have nothing to compare with."""
    if removed := base.keys() - new.keys():
        raise CannotCompare(f"rows that only the base has: {named(removed)}")


def verdicts(base: Figures, new: Figures, limit: float) -> list[Verdict]:
    check_rows(base, new)
    if added := new.keys() - base.keys():
        print(f"not compared, as the base lacks them: {named(added)}", file=sys.stderr, flush=True)
    return [judge(base[key], new[key], limit) for key in base]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench-compare", description="Compare the speed of two checkouts.")
    parser.add_argument("base", metavar="BASE", help="a commit of this repository, or the folder of a checkout")
    parser.add_argument("names", nargs="*", metavar="name", help=f"benchmarks (default: {' '.join(BENCHES)})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs of each side (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=LIMIT_PERCENT, metavar="PERCENT", help="default: %(default)g")
    parser.add_argument("--own-venv", action="store_true", help="install the base into an environment of its own")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the compared rows to FILE")
    options = parser.parse_args(arguments)
    try:
        with base_side(options.base, options.own_venv) as base:
            sides = (base, Side("new", ROOT, sys.executable))
            found = compare(sides, options.names or list(BENCHES), options.rounds, options.limit / 100)
    except CannotCompare as error:
        print(f"bench-compare: {error}", file=sys.stderr)
        return 2
    print(HEADING)
    for each in found:
        print(each)
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    slower = [each for each in found if each.slower]
    for each in slower:
        print(f"slower: {each.bench}, {each.row}: {each.slowdown - 1:.1%}")
    print(f"{len(slower)} of {len(found)} rows are slower beyond noise")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
