"""The package, installed without extras into an empty environment, imports everything that running it needs."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Adapters: installing Leasehold alone installs none of their frameworks. module -> extra
NEED_EXTRAS = {
    "leasehold.contrib.aiocache": "aiocache",
    "leasehold.contrib.apscheduler": "apscheduler",
    "leasehold.contrib.apscheduler4": "apscheduler",
    "leasehold.contrib.celery": "celery",
    "leasehold.contrib.django": "django",
    "leasehold.contrib.tooz": "tooz",
}
# Modules of the test kit that need the extra `testing`. Everything else must work without it.
NEED_TESTING = [
    "leasehold.testing.certificates",
    "leasehold.testing.grpc_stubs",
    "leasehold.testing.grpc_stubs.election_pb2_grpc",
    "leasehold.testing.grpc_stubs.health_pb2_grpc",
    "leasehold.testing.grpc_stubs.lock_pb2_grpc",
    "leasehold.testing.grpc_stubs.rpc_pb2_grpc",
    "leasehold.testing.pytest_plugin",
]
# Prints, for every module of the installed package, the error of its import ("" if there was none).
IMPORT_ALL = """
import importlib.util, json, pathlib, sys
root = pathlib.Path(importlib.util.find_spec("leasehold").origin).parent
outcomes = {}
for path in sorted(root.rglob("*.py")):
    parts = path.relative_to(root.parent).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    if parts == ("leasehold", "__main__"):
        continue  # runs the command
    try:
        importlib.import_module(name)
        outcomes[name] = ""
    except Exception as error:
        outcomes[name] = f"{type(error).__name__}: {error}"
frameworks = ("aiocache", "apscheduler", "celery", "django", "tooz")
unwanted = [name for name in ("grpc", "cryptography", "pytest", *frameworks) if importlib.util.find_spec(name)]
print(json.dumps({"outcomes": outcomes, "unwanted": unwanted, "root": str(root)}))
"""


@pytest.mark.timeout(300)
def test_an_empty_environment_imports_every_module(tmp_path: Path) -> None:
    """Fails where neither pip's cache nor a package index has the dependencies: then nothing was tested."""
    venv.create(tmp_path / "empty", with_pip=False)
    python = str(tmp_path / "empty/bin/python")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "--quiet"]
    installing = subprocess.run(
        [*pip, "install", "--no-compile", str(ROOT)], capture_output=True, text=True, check=False, timeout=280
    )
    assert installing.returncode == 0, f"the package cannot be installed:\n{installing.stderr[-3000:]}"
    run = subprocess.run(
        [python, "-I", "-c", IMPORT_ALL], capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path
    )
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["root"].startswith(str(tmp_path)), "it imported another installation"
    assert report["unwanted"] == []
    failed = {name: error for name, error in report["outcomes"].items() if error}
    assert sorted(failed) == sorted([*NEED_TESTING, *NEED_EXTRAS]), failed
    for name, error in failed.items():
        assert error.startswith("ImportError:"), (name, error)
        assert f"leasehold[{NEED_EXTRAS.get(name, 'testing')}]" in error, (name, error)
