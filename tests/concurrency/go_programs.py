"""Small programs with Go's own package, built where there is a Go toolchain and kept in `.cache`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "go"
CACHE = Path(__file__).parents[2] / ".cache"


def built_with_go(package: str) -> Path:
    """The program in `package`, a folder under `go/`; the test is skipped, and says why, where Go is missing."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go toolchain on PATH, so Go's own package cannot be built; etcdctl, which uses it, was tested")
    source = SOURCE / package
    binary = CACHE / ("go-contender" if package == "." else f"go-{package}")
    if not binary.exists() or binary.stat().st_mtime < (source / "main.go").stat().st_mtime:
        CACHE.mkdir(exist_ok=True)
        subprocess.run([go, "build", "-o", str(binary), f"./{package}"], cwd=SOURCE, check=True)
    return binary
