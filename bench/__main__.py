"""Run benchmarks: `python -m bench [--json FILE] [name ...]`, all of them or the named ones, one after the other.

Each benchmark (`bench/bench_NAME.py`) runs in its own process: no memory, thread or event loop of one is in the figures
of the next. The figures are written as JSON to FILE, by default a new file in `.cache/bench`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench.result import ROOT, Rows, describe
from bench.rows import Row

RESULTS = ROOT / ".cache" / "bench"


def names() -> list[str]:
    return sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))


def run_all(chosen: list[str]) -> tuple[list[Row], list[str]]:
    """The rows of all benchmarks, and those that failed."""
    found: list[Row] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="leasehold-bench-rows-") as folder:
        for name in chosen:
            print(f"\n== {name}", flush=True)
            output = Path(folder) / name
            code = subprocess.run([sys.executable, "-m", "bench.one", name, str(output)], check=False).returncode
            if code != 0 or not output.exists():
                print(f"benchmark {name} failed: exit code {code}", file=sys.stderr, flush=True)
                failed.append(name)
            else:
                found += msgspec.json.decode(output.read_bytes(), type=Rows).rows
    return found, failed


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Run benchmarks, each in its own process.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of: {', '.join(names())} (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(names())):
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(names())}")
    started = datetime.now(UTC)
    found, failed = run_all(options.names or names())
    file = options.json or RESULTS / f"{started:%Y%m%d-%H%M%S}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(describe(found, started)), indent=1) + b"\n")
    print(f"\n{len(found)} figures in {file}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
