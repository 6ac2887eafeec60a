"""The public names are complete, importable, and seen by type checkers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import leasehold
import leasehold.concurrency


@pytest.mark.parametrize("package", [leasehold, leasehold.concurrency], ids=lambda each: each.__name__)
def test_everything_exported_is_there_and_sorted(package: ModuleType) -> None:
    assert sorted(package.__all__) == list(package.__all__)
    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name in dir(package)
    with pytest.raises(AttributeError):
        _ = package.no_such_name


@pytest.mark.parametrize("package", ["leasehold", "leasehold.concurrency"])
def test_a_type_checker_sees_every_lazy_name(package: str, tmp_path: Path) -> None:
    names = sys.modules[package].__all__
    program = tmp_path / "user.py"
    program.write_text("".join(f"from {package} import {name}\nreveal_type({name})\n" for name in names))
    check = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(program)]
    output = subprocess.run(check, check=False, capture_output=True, text=True, timeout=120).stdout.splitlines()
    assert len(output) == len(names), output
    assert all("note: Revealed type is" in line and '"Any"' not in line and '"object"' not in line for line in output)
