"""The programs in the pages about the adapters run as they are printed there."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.testing.cache import CacheProcess
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.process import wait_until
from leasehold.testing.redis import RedisProcess

PAGES = Path(__file__).parents[2] / "docs" / "adapters"


def program(page: str, replacements: dict[str, str]) -> str:
    """The program of a page, with the addresses of this test."""
    found = re.search(r"^<!-- program -->\n+```python\n(.*?)^```", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page} has no program"
    text = found[1]
    for shown, real in replacements.items():
        assert shown in text, f"{page}: the program does not have {shown!r}"
        text = text.replace(shown, real)
    return text


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CacheProcess]:
    with CacheProcess(tmp_path_factory.mktemp("cache"), "--store", "memory://") as cache:
        yield cache


def run(text: str, folder: Path) -> str:
    """Run a program in a process of its own; returns what it printed."""
    file = folder / f"program_{uuid.uuid4().hex}.py"
    file.write_text(text)
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_singleton(url: str, name: str, tmp_path: Path) -> None:
    text = program("singleton.md", {"etcd://127.0.0.1:2379": url, '"nightly"': f'"{name}"'})
    output = run(text, tmp_path)
    assert "report written with fencing token" in output
    assert "None" in output.splitlines()
    assert "migrating under token" in output


def test_etcd3(url: str, tmp_path: Path) -> None:
    port = url.rpartition(":")[2]
    output = run(program("etcd3.md", {"port=2379": f"port={port}"}), tmp_path)
    assert output.splitlines()[:2] == ["b'100' 1", "b'200'"]
    assert "held, fencing token" in output


def test_tooz(url: str, name: str, tmp_path: Path) -> None:
    real = {"leasehold://127.0.0.1:2379": f"{url.replace('etcd://', 'leasehold://')}/{name}"}
    output = run(program("tooz.md", real), tmp_path)
    assert "{b'host-1'}" in output
    assert "this member leads b'workers'" in output
    assert "True" in output


def test_django(served: CacheProcess, tmp_path: Path) -> None:
    output = run(program("django.md", {"127.0.0.1:7400": served.address}), tmp_path)
    assert output.split() == ["100", "101", "shop", "None"]


def test_aiocache(served: CacheProcess, tmp_path: Path) -> None:
    output = run(program("aiocache.md", {"127.0.0.1:7400": served.address}), tmp_path)
    assert output.splitlines() == ["{'orders': 100}", "1", "False"]


def test_cached(served: CacheProcess, tmp_path: Path) -> None:
    output = run(program("cached.md", {"127.0.0.1:7400": served.address}), tmp_path)
    assert output.splitlines() == ["reading the database", "Ada Ada", "reading the database", "Grace"]


def test_apscheduler(url: str, name: str, tmp_path: Path) -> None:
    text = program("apscheduler.md", {"etcd://127.0.0.1:2379": url, '"reports"': f'"{name}"'})
    assert "under fencing token" in run(text, tmp_path)


def test_celery(etcd: EtcdCluster, name: str, tmp_path: Path) -> None:
    with RedisProcess(tmp_path / "redis") as broker:
        real = {
            "redis://127.0.0.1:6379": broker.url,
            "etcd://127.0.0.1:2379": etcd.url,
            '"reports"  #': f'"{name}"  #',
        }
        (tmp_path / "reports.py").write_text(program("celery.md", real))
        log = tmp_path / "celery.log"
        command = [sys.executable, "-m", "celery", "-A", "reports", "worker", "--beat", "--pool", "solo"]
        command += ["--scheduler", "leasehold.contrib.celery:Scheduler"]
        with log.open("wb") as output:
            process = subprocess.Popen(command, cwd=tmp_path, stdout=output, stderr=output)
        try:
            wait_until(lambda: "report under fencing token" in log.read_text(), log.read_text, 60)
        finally:
            process.terminate()
            process.wait(30)
