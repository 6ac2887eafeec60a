"""Detect a `leasehold up` that still runs on the same directory, and wait for leftovers of one that was killed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import click
import msgspec

from leasehold.base.decoding import UNDECODABLE
from leasehold.base.errors import LeaseholdError

END_TIMEOUT_S = 45.0
POLL_S = 0.1


class StillRunning(LeaseholdError):
    """Processes of a previous `leasehold up` use the same directory; the message names them."""


class Pids(msgspec.Struct):
    """Process ids in DATA/up.pids while `up` runs, so that the next one finds the leftovers of a killed one."""

    up: int
    parts: dict[str, int] = {}


def write_pids(data: Path, pids: Pids) -> None:
    (data / "up.pids").write_bytes(msgspec.json.encode(pids))


def wait_for_previous(data: Path) -> None:
    """Return when no process of a previous `up` uses this directory; raise `StillRunning` after a timeout.

    When an `up` is killed, the kernel sends SIGTERM to its parts. They stop after a while: a node that leads first
    tries to hand over.
    """
    try:
        pids = msgspec.json.decode((data / "up.pids").read_bytes(), type=Pids)
    except (*UNDECODABLE, OSError):
        return
    if _runs(pids.up):
        raise StillRunning(
            f"another `leasehold up` (process {pids.up}) uses '{data}': stop it, or choose another directory: --data"
        )
    left = {name: pid for name, pid in pids.parts.items() if _runs(pid)}
    if left:
        click.echo(f"waiting for processes of a previous `leasehold up` to stop: {_named(left)}", err=True)
    until_s = time.monotonic() + END_TIMEOUT_S
    while left := {name: pid for name, pid in left.items() if _runs(pid)}:
        if time.monotonic() > until_s:
            raise StillRunning(
                f"processes of a previous `leasehold up` still use '{data}': stop {_named(left)}, for example with kill"
            )
        time.sleep(POLL_S)


def remove_state(data: Path, names: Iterable[str] = ("up.json", "up.pids")) -> None:
    """Delete the files that describe a running `up`."""
    for name in names:
        (data / name).unlink(missing_ok=True)


def _named(left: dict[str, int]) -> str:
    return ", ".join(f"{name} (process {pid})" for name, pid in left.items())


def _runs(pid: int) -> bool:
    """Whether the process is one of ours: the kernel reuses process ids."""
    try:
        return b"leasehold" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
