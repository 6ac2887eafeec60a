"""For tests of `leasehold adopt`: real clients of the wheel, and the command as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leasehold.testing import mooncake

_SCRIPT = Path(__file__).parent / "clients" / "pool_user.py"


class PoolUser:
    """One real client, which lends memory and uses the pool."""

    def __init__(self, master: str, segment_mib: int, cluster: str) -> None:
        self._process = subprocess.Popen(
            [str(mooncake.venv() / "bin" / "python"), str(_SCRIPT), master, str(segment_mib)],
            env={**os.environ, **mooncake.client_environment(), "MC_STORE_CLUSTER_ID": cluster},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        if self._line() != "0":
            self.end()
            raise RuntimeError("the client could not be set up")

    @property
    def pid(self) -> int:
        return self._process.pid

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ask(self, command: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._line()

    def fill(self, prefix: str, count: int) -> int:
        return int(self.ask(f"fill {prefix} {count}"))

    def read(self, prefix: str, count: int) -> tuple[int, int, int]:
        """How many of these objects are right, missing, wrong."""
        right, missing, wrong = map(int, self.ask(f"read {prefix} {count}").split())
        return right, missing, wrong

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def pool_user(master: str, segment_mib: int, cluster: str) -> Iterator[PoolUser]:
    """A client of the master at this address; in an etcd, of this Mooncake cluster."""
    user = PoolUser(master, segment_mib, cluster)
    try:
        yield user
    finally:
        user.end()


def run_adopt(*arguments: str, timeout_s: float = 120) -> tuple[int, dict[str, Any], str]:
    """Exit code, the numbers that it prints, and what it wrote to standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "leasehold", "adopt", "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr
