"""The example of the documentation, run as a reader would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "config_service" / "run.py"


def test_a_change_of_configuration_is_never_seen_late() -> None:
    run = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=110, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "0 seen late" in run.stdout
