"""Figures of a benchmark as rows: what `python -m bench` writes as JSON and `make bench-compare` compares.

A benchmark prints its tables for people, and records each of our own figures with `record`. A row's name must stay
the same from commit to commit: it identifies the figure in comparisons.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).resolve().parent.parent
PER_SECOND = "1/s"


class Row(Struct, frozen=True):
    """One figure."""

    bench: str
    row: str
    value: float
    unit: str
    higher_is_better: bool


class Result(Struct, frozen=True):
    """All figures of one run, and the environment they were measured in."""

    started_at: str
    commit: str
    python: str
    cpu: str
    cores: int
    versions: dict[str, str]
    rows: list[Row]


_recorded: list[tuple[str, float, str]] = []


def record(row: str, value: float, unit: str) -> None:
    """Record a figure of the benchmark in this process. Rates have the unit "1/s": more is better."""
    _recorded.append((row, value, unit))


def recorded(bench: str) -> list[Row]:
    return [Row(bench, row, value, unit, unit == PER_SECOND) for row, value, unit in _recorded]


def describe(rows: list[Row], started: datetime) -> Result:
    needed = [requirement.split(">")[0].split("=")[0].split(";")[0].strip() for requirement in _requirements()]
    versions = {name: importlib.metadata.version(name) for name in needed}
    cores = os.cpu_count() or 0
    started_at = started.isoformat(timespec="seconds")
    return Result(started_at, _commit(), platform.python_version(), _cpu(), cores, versions, rows)


def now() -> datetime:
    return datetime.now(UTC)


def _requirements() -> list[str]:
    return [each for each in importlib.metadata.requires("leasehold") or [] if "extra ==" not in each]


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
