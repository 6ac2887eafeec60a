"""What an earlier `leasehold up` may have left in its directory: itself, or parts that are still ending."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import click
import msgspec

from leasehold.base.errors import LeaseholdError

END_TIMEOUT_S = 45.0
POLL_S = 0.1


class StillRunning(LeaseholdError):
    """Processes of an earlier `leasehold up` work on the same directory; the message names them."""


class Pids(msgspec.Struct):
    """In DATA/up.pids while it runs, so that the next one knows what a killed one has left."""

    up: int
    parts: dict[str, int] = {}


def write_pids(data: Path, pids: Pids) -> None:
    (data / "up.pids").write_bytes(msgspec.json.encode(pids))


def after_the_earlier_one(data: Path) -> None:
    """Return when nothing of an earlier `up` runs on this directory; `StillRunning` if that does not come about.

    Parts whose `up` was killed are told by the kernel to end, and do: nodes first try to give up what they lead.
    """
    try:
        pids = msgspec.json.decode((data / "up.pids").read_bytes(), type=Pids)
    except (OSError, msgspec.MsgspecError):
        return
    if _runs(pids.up):
        raise StillRunning(f"`leasehold up` runs on {data} already (process {pids.up}): end it, or name another --data")
    left = {name: pid for name, pid in pids.parts.items() if _runs(pid)}
    if left:
        click.echo(f"waiting for what an earlier `leasehold up` has left: {_named(left)}", err=True)
    until_s = time.monotonic() + END_TIMEOUT_S
    while left := {name: pid for name, pid in left.items() if _runs(pid)}:
        if time.monotonic() > until_s:
            raise StillRunning(f"an earlier `leasehold up` has left processes on {data}: end {_named(left)} by hand")
        time.sleep(POLL_S)


def forget(data: Path, names: Iterable[str] = ("up.json", "up.pids")) -> None:
    """Nothing of it is true any more."""
    for name in names:
        (data / name).unlink(missing_ok=True)


def _named(left: dict[str, int]) -> str:
    return ", ".join(f"{name} (process {pid})" for name, pid in left.items())


def _runs(pid: int) -> bool:
    """Whether that process is one of ours: numbers are used again."""
    try:
        return b"leasehold" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
