"""The disk tier with the unmodified C++ client of Mooncake, which writes real files."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from leasehold.testing import mooncake
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.mooncake import MooncakeMaster
from leasehold.testing.node import NodeGroup
from leasehold.testing.process import wait_until

pytestmark = [pytest.mark.xdist_group("real_client"), pytest.mark.usefixtures("wheel")]

OFFLOAD = Path(__file__).parent / "clients" / "offload.py"
KEYS = 40  # of 256 KiB: two thirds of the client's memory
MORE = 80
WAIT_S = 60.0


class DiskClient:
    """One process of the client, with its commands."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def ask(self, command: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self.answer()

    def kinds(self) -> list[str]:
        return list(self.ask(f"kinds {KEYS}"))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def disk_client(master: str, folder: str) -> Iterator[DiskClient]:
    settings = {
        "MOONCAKE_OFFLOAD_FILE_STORAGE_PATH": folder,
        "MOONCAKE_OFFLOAD_HEARTBEAT_INTERVAL_SECONDS": "1",
        "MOONCAKE_OFFLOAD_BUCKET_KEYS_LIMIT": "8",
        "MOONCAKE_OFFLOAD_BUCKET_SIZE_LIMIT_BYTES": str(8 << 20),
        "MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES": str(32 << 20),
    }
    process = subprocess.Popen(
        [str(mooncake.venv() / "bin" / "python"), str(OFFLOAD), master],
        env={**os.environ, **mooncake.client_environment(), **settings},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        client = DiskClient(process)
        assert client.answer() == 0, "the client is set up"
        yield client
    finally:
        process.kill()
        process.wait()


def fill(client: DiskClient, least: int = KEYS) -> None:
    """Put objects, wait until `least` of them are on disk, and put more, until the first ones have left memory."""
    assert set(client.ask(f"put 0 {KEYS}")) == {0}
    wait_until(lambda: sum("L" in kind for kind in client.kinds()) >= least, "objects are on disk", WAIT_S)
    client.ask(f"put {KEYS} {MORE}")

    def evicted() -> bool:
        time.sleep(1.0)  # the lease of the look before must expire, or nothing is evicted
        client.ask(f"put {KEYS} {MORE}")
        return any(kind == "L" for kind in client.kinds())

    wait_until(evicted, "some objects are only on disk", WAIT_S)
    kinds, right = client.kinds(), client.ask(f"get {KEYS}")
    assert [good for kind, good in zip(kinds, right, strict=True) if "L" in kind].count(True) >= least


def readable_again(client: DiskClient) -> None:
    """All objects are there with their bytes; those of a dead process only on disk."""
    wait_until(lambda: all(client.ask(f"get {KEYS}")), "every object is read with its bytes", WAIT_S)


def test_objects_are_read_from_disk_after_kill_9_of_master_and_client(etcd: EtcdCluster, tmp_path: Path) -> None:
    arguments = ["--enable-offload", "true", "--lease-ttl", "500ms", "--client-ttl", "4s"]
    cluster = f"c{uuid4().hex[:8]}"
    with (
        tempfile.TemporaryDirectory(prefix="leasehold-disk-") as folder,
        NodeGroup(etcd.url, 2, cluster=cluster, folder=tmp_path, arguments=arguments) as nodes,
    ):
        with disk_client(nodes.primary().rpc, folder) as client:
            fill(client)
            victim = nodes.primary()
            victim.kill_worker()
            nodes.primary()
            readable_again(client)
            client.kill()
        with disk_client(nodes.primary().rpc, folder) as client:
            readable_again(client)
            assert set(client.kinds()) == {"L"}, "the memory of the dead process is unmounted"
            nodes.settle()
            victim = nodes.primary()
            victim.kill_worker()
            client.kill()
        with disk_client(nodes.primary().rpc, folder) as client:
            readable_again(client)


def test_the_real_master_has_the_same_outcome_without_faults(etcd: EtcdCluster, tmp_path: Path) -> None:
    arguments = ["--enable-offload", "true", "--lease-ttl", "500ms"]
    with (
        tempfile.TemporaryDirectory(prefix="leasehold-disk-") as folder,
        MooncakeMaster("--enable_offload=true", "--default_kv_lease_ttl=500") as theirs,
        disk_client(theirs.rpc, folder) as client,
    ):
        fill(client, KEYS // 2)  # it forgets objects that do not fill a file
    with (
        tempfile.TemporaryDirectory(prefix="leasehold-disk-") as folder,
        NodeGroup(etcd.url, 1, cluster=f"c{uuid4().hex[:8]}", folder=tmp_path, arguments=arguments) as nodes,
        disk_client(nodes.primary().rpc, folder) as client,
    ):
        fill(client)
