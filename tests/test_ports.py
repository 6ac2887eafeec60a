"""Ports of tests: two test processes never pick the same one, however long it takes until it is bound."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from leasehold.testing.ports import BLOCK, free_ports

COUNT = BLOCK + 10  # more than one block
PICK = f"from leasehold.testing.ports import free_ports; print(*free_ports({COUNT}))"


def test_ports_are_given_once_also_beside_other_processes() -> None:
    mine = free_ports(COUNT)
    output = subprocess.run([sys.executable, "-c", PICK], capture_output=True, text=True, timeout=60, check=True).stdout
    others = list(map(int, output.split()))
    assert len({*mine, *others}) == 2 * COUNT


def test_threads_may_ask_at_the_same_time() -> None:
    """Clusters are started in threads."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            given = [port for ports in threads.map(free_ports, [20] * 40) for port in ports]
    finally:
        sys.setswitchinterval(interval)
    assert len(given) == 800
