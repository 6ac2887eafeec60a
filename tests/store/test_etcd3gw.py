"""The own tests of etcd3gw, a client that speaks only JSON, on the served store. They are downloaded for the run."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from leasehold.testing.store import StoreProcess

RELEASE = "2.7.0"
NEEDED = ("testtools", "oslotest", "urllib3", "requests", "futurist", "pytest")


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_etcd3gws_own_tests_pass(tmp_path: Path, store: StoreProcess) -> None:
    def run(*command: str | Path, **environment: str) -> str:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(sys.executable, "-m", "venv", "venv")
    python = tmp_path / "venv/bin/python"
    source = f"etcd3gw=={RELEASE}"
    run(python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", source)
    with tarfile.open(tmp_path / f"etcd3gw-{RELEASE}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    run(python, "-m", "pip", "install", "-q", f"./etcd3gw-{RELEASE}", *NEEDED)
    url = f"http://localhost:{store.port}"
    tests = tmp_path / f"etcd3gw-{RELEASE}/etcd3gw/tests/test_etcd3gw.py"
    shown = run(python, "-m", "pytest", "-q", tests, TOOZ_TEST_HTTP_URL=url, TOOZ_TEST_ETCD_PORT=str(store.port))
    assert "passed" in shown
    assert "skipped" not in shown
