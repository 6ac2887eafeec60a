"""A shared server that dies: the test that killed it is reported, and the next test gets a new one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONFTEST = 'pytest_plugins = ["leasehold.testing.pytest_plugin"]\n'
TESTS = """
import leasehold

async def test_before(etcd, served_store):
    async with await leasehold.connect(etcd.url) as client:
        await client.put(b"kept", b"1")

def test_harm(etcd, served_store):
    etcd.nodes[0].kill()
    served_store.kill()

async def test_after(etcd, served_store):
    for url in (etcd.url, served_store.url):
        async with await leasehold.connect(url) as client:
            assert (await client.get_one(b"kept") is not None) == (url == etcd.url)
"""


def test_the_test_that_ended_a_shared_server_is_named_and_later_ones_do_not_suffer(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 1, done.stdout
    assert "3 passed, 1 error" in done.stdout
    assert "ERROR at teardown of test_harm" in done.stdout
    assert "the shared node0 stopped; its log ends with" in done.stdout
    assert "the shared leasehold store stopped" in done.stdout
