"""The result of a run: the rows of its benchmarks, and the environment they were measured in."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from bench.rows import Row
from leasehold.testing.etcd import etcd_binary
from leasehold.testing.mooncake import NEWEST, why_missing

ROOT = Path(__file__).resolve().parent.parent


class Rows(Struct, frozen=True):
    """The rows of one benchmark."""

    rows: list[Row]


class Result(Struct, frozen=True):
    """All figures of one run."""

    started_at: str
    commit: str
    python: str
    cpu: str
    cores: int
    versions: dict[str, str]
    peers: dict[str, str]  # of servers and clients that are compared with ours
    rows: list[Row]


def describe(rows: list[Row], started: datetime) -> Result:
    needed = [requirement.split(">")[0].split("=")[0].split(";")[0].strip() for requirement in _requirements()]
    versions = {name: importlib.metadata.version(name) for name in needed}
    cores = os.cpu_count() or 0
    started_at = started.isoformat(timespec="seconds")
    return Result(started_at, _commit(), platform.python_version(), _cpu(), cores, versions, _peers(), rows)


def _peers() -> dict[str, str]:
    found = {"etcd": str(etcd_binary()).removeprefix("etcd-")}
    if why_missing() is None:
        found["Mooncake"] = NEWEST
    if (redis := shutil.which("redis-server")) is not None:
        text = subprocess.run([redis, "--version"], capture_output=True, text=True, check=False).stdout
        found["Redis"] = text.partition("v=")[2].partition(" ")[0]
    return found


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
