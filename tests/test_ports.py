"""Ports of tests: two test processes never pick the same one, however long it takes until it is bound."""

from __future__ import annotations

import subprocess
import sys

from leasehold.testing.ports import BLOCK, free_ports

COUNT = BLOCK + 10  # more than one block
PICK = f"from leasehold.testing.ports import free_ports; print(*free_ports({COUNT}))"


def test_ports_are_given_once_also_beside_other_processes() -> None:
    mine = free_ports(COUNT)
    told = subprocess.run([sys.executable, "-c", PICK], capture_output=True, text=True, timeout=60, check=True).stdout
    others = list(map(int, told.split()))
    assert len({*mine, *others}) == 2 * COUNT
