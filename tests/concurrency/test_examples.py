"""Every example runs, on a store in the process and on a real etcd, and says what its text promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from leasehold.testing.etcd import EtcdCluster

EXAMPLES = Path(__file__).parents[2] / "examples" / "concurrency"
SAYS = {
    "mutex.py": "ben worked, written: True",
    "election.py": "3 leaders seen, and now there is none",
    "stm.py": "together: 300",
    "leader_cache.py": "the cache knows that there is no leader",
}


def test_none_is_forgotten() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
@pytest.mark.parametrize("where", ["memory", "etcd"])
def test_example(name: str, where: str, etcd: EtcdCluster) -> None:
    arguments = [etcd.url] if where == "etcd" else []
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert SAYS[name] in done.stdout
