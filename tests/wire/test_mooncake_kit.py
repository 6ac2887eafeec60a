"""The test kit's own promise: a master that was ended leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from leasehold.testing.mooncake import OLDER, MooncakeMaster
from leasehold.testing.process import wait_until


def test_a_master_started_by_a_script_is_ended_with_it(real_mooncake: Callable[[str], None]) -> None:
    real_mooncake(OLDER)
    with MooncakeMaster(version=OLDER) as master:
        group = master.pid
        assert members(group)
    wait_until(lambda: not members(group), "every process of the group has exited")


def members(group: int) -> list[int]:
    """The live processes of a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended while we looked
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found
