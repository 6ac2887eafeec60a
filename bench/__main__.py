"""Run benchmarks: `python -m bench [name ...]`, all of them or the named ones, one after the other.

Each benchmark (`bench/bench_NAME.py`) runs in its own process: no memory, thread or event loop of one is in the figures
of the next. The figures are written as JSON, by default to a new file in `.cache/bench`. `--write-docs` also replaces
the sections of these benchmarks in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench import page
from bench.result import ROOT, Rows, describe
from bench.rows import Row

RESULTS = ROOT / ".cache" / "bench"
# For benchmarks that read them: about a minute instead of several.
QUICK = {"LEASEHOLD_BENCH_SECONDS": "0.1", "LEASEHOLD_BENCH_ROUNDS": "1"}


def names() -> list[str]:
    return sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))


def run_all(chosen: list[str], environment: dict[str, str]) -> tuple[list[Row], dict[str, str], list[str]]:
    """The rows of all benchmarks, their output by name, and those that failed."""
    found: list[Row] = []
    printed: dict[str, str] = {}
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="leasehold-bench-rows-") as folder:
        for name in chosen:
            print(f"\n== {name}", flush=True)
            output = Path(folder) / name
            code, text = run_one(name, output, environment)
            if code != 0 or not output.exists():
                print(f"benchmark {name} failed: exit code {code}", file=sys.stderr, flush=True)
                failed.append(name)
            else:
                found += msgspec.json.decode(output.read_bytes(), type=Rows).rows
                printed[name] = text
    return found, printed, failed


def run_one(name: str, output: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Run a benchmark in its own process; pass its output on, and return its exit code and output."""
    command = [sys.executable, "-u", "-m", "bench.one", name, str(output)]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return process.returncode, "".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Run benchmarks, each in its own process.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of: {', '.join(names())} (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--quick", action="store_true", help="measure for a shorter time, where the benchmark can")
    parser.add_argument("--write-docs", action="store_true", help="write the output to docs/benchmarks.md")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(names())):
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(names())}")
    started = datetime.now(UTC)
    found, printed, failed = run_all(options.names or names(), {**os.environ, **(QUICK if options.quick else {})})
    result = describe(found, started)
    file = options.json or RESULTS / f"{started:%Y%m%d-%H%M%S}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    print(f"\n{len(found)} figures in {file}")
    if options.write_docs:
        page.write(result, printed)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
