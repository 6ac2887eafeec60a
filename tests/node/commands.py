"""Run the operator's commands as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def leasehold(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "leasehold", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )


def answer(*arguments: str, exits: tuple[int, ...] = (0,)) -> Any:
    """The JSON that a command prints; it must exit with one of these codes."""
    done = leasehold(*arguments, "--json")
    assert done.returncode in exits, (done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout)
