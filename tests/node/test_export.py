"""An index exported from one cluster and imported into another, empty one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeGroup, NodeProcess
from leasehold.testing.waiting import until
from leasehold.testing.workload import Lender, Putter, missing
from leasehold.wire.client import Client

pytestmark = pytest.mark.xdist_group("export")  # its processes are shared by the module


def leasehold(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "leasehold", *words], capture_output=True, text=True, timeout=100, check=False
    )


async def test_an_exported_index_starts_another_cluster(pair: NodeGroup, etcd: EtcdCluster, tmp_path: Path) -> None:
    master = ",".join(pair.addresses)
    async with Lender(master) as lender:
        putter = Putter(master, "moved")
        await putter.put_batch(300)
        admin = ",".join(node.admin for node in pair.nodes)
        file = tmp_path / "index"
        done = await asyncio.to_thread(leasehold, "export", "--admin", admin, "--json", str(file))
        assert done.returncode == 0, done.stderr
        assert msgspec.json.decode(done.stdout)["node"] == pair.standbys()[0].node_name
        where = ["--coord", etcd.url, "--cluster", pair.cluster]
        data = str(tmp_path / "new" / "data")
        taken = await asyncio.to_thread(leasehold, "import", *where, "--data-dir", data, str(file))
        assert "is in use in this store" in taken.stderr
        prefix = ["--prefix", f"/imported/{pair.cluster}"]
        done = await asyncio.to_thread(leasehold, "import", *where, *prefix, "--data-dir", data, str(file))
        assert done.returncode == 0, done.stderr
        node = NodeProcess(
            etcd.url, "new", cluster=pair.cluster, data_dir=tmp_path / "new", arguments=[*prefix, "--copies", "1"]
        )
        with node:
            await until(node.is_primary, "it leads")
            async with Client(node.rpc, client_id=lender.client.client_id) as owner:
                await owner.ping()  # the owner of the memory is alive: its objects may be read
                assert await missing(node.rpc, sorted(putter.results.acknowledged)) == []
        putter.close()
