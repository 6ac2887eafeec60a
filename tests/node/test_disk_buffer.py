"""`buffered` on the disk over real processes: what was acknowledged is written later, or kept for a person."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from leasehold.testing.etcd import EtcdCluster, etcd_binary
from leasehold.testing.node import NodeGroup, NodeProcess
from leasehold.testing.process import wait_until
from leasehold.testing.waiting import until
from leasehold.testing.workload import Lender, Putter, missing, recovery_ms
from leasehold.wire.client import Client

# The absence of the store takes long; a short version of the test is in test_node_faults.
pytestmark = [pytest.mark.chaos, pytest.mark.xdist_group("disk_buffer")]  # its processes are shared by the module

ARGUMENTS = ["--durability", "buffered", "--leader-ttl", "2s", "--flush-interval", "500ms"]


@pytest.fixture(scope="module")
def own_etcd() -> Iterator[EtcdCluster]:
    """An etcd that may be killed."""
    with EtcdCluster(1, binary=etcd_binary(survives_kills=True)) as etcd:
        yield etcd


@pytest.fixture
def nodes(own_etcd: EtcdCluster, tmp_path: Path) -> Iterator[NodeGroup]:
    with NodeGroup(own_etcd.url, 2, cluster=f"c{uuid4().hex[:8]}", folder=tmp_path, arguments=ARGUMENTS) as nodes:
        yield nodes


def leasehold(*arguments: str) -> str:
    """The output of the command, on one line."""
    command = [sys.executable, "-m", "leasehold", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stderr  # 3: a problem is listed
    return " ".join(done.stdout.split())


async def remove_without_the_store(nodes: NodeGroup, etcd: EtcdCluster, putter: Putter) -> NodeProcess:
    """Remove a key while etcd is dead, so only the buffer has the record; returns the node with that buffer."""
    await putter.put_batch(3)
    async with Client(nodes.primary().rpc) as client:
        await client.service_ready()
        etcd.nodes[0].kill()
        await client.remove(putter.key(0), force=True)
    return next(node for node in nodes.nodes if list(node.data_dir.rglob("*.buffer")))


async def test_a_guardian_drains_the_disk_buffer_after_a_long_store_outage(
    own_etcd: EtcdCluster, nodes: NodeGroup
) -> None:
    """The guardian used to give up after three TTLs, and the next leader lacked acknowledged writes."""
    master = ",".join(nodes.addresses)
    async with Lender(master):
        putter = Putter(master, "k")
        victim = await remove_without_the_store(nodes, own_etcd, putter)
        victim.kill_worker()
        await until(
            lambda: "retrying in the background" in victim.log_path.read_text(), "the usual limit has passed", 20
        )
        await until(lambda: victim.answers() and victim.status().buffer_waiting_bytes > 0, "the status says it", 20)
        await asyncio.to_thread(own_etcd.nodes[0].start)
        await recovery_ms(master, putter.key(1))
        assert await missing(master, [putter.key(0)]) == [putter.key(0)], "removed, acknowledged, and back"
        assert "its leader key is deleted" in victim.log_path.read_text()
        await asyncio.to_thread(nodes.settle)
        assert victim.status().buffer_waiting_bytes == 0
        putter.close()


async def test_a_restarted_guardian_drains_the_buffer_of_the_previous_worker(
    own_etcd: EtcdCluster, nodes: NodeGroup
) -> None:
    """The guardian did not reap that worker, so it keeps its leader key, but its acknowledged batches are written."""
    master = ",".join(nodes.addresses)
    async with Lender(master):
        putter = Putter(master, "k")
        victim = await remove_without_the_store(nodes, own_etcd, putter)
        victim.kill_guardian()
        victim.spawn()
        await until(lambda: "cannot be written yet" in victim.log_path.read_text(), "the new guardian tries", 20)
        await asyncio.to_thread(own_etcd.nodes[0].start)  # etcd renews the dead worker's lease for a full term
        await until(lambda: "wrote a batch from the buffer" in victim.log_path.read_text(), "it is written", 20)
        await recovery_ms(master, putter.key(1))
        assert await missing(master, [putter.key(0)]) == [putter.key(0)], "removed, acknowledged, and back"
        await asyncio.to_thread(nodes.settle)
        await until(lambda: victim.status().buffer_waiting_bytes == 0, "and has left the buffer", 10)
        assert victim.status().buffer_quarantined_batches == 0
        putter.close()


async def test_a_batch_that_cannot_be_added_is_quarantined_and_named(own_etcd: EtcdCluster, nodes: NodeGroup) -> None:
    """`disk` does not cover the death of a host: acknowledged batches are kept for an operator, not deleted."""
    master = ",".join(nodes.addresses)
    async with Lender(master):
        putter = Putter(master, "k")
        victim = await remove_without_the_store(nodes, own_etcd, putter)
        victim.kill_host()
        await asyncio.to_thread(own_etcd.nodes[0].start)
        await recovery_ms(master, putter.key(1))
        await asyncio.to_thread(victim.start)
        await asyncio.to_thread(
            wait_until, lambda: victim.status().buffer_quarantined_batches == 1, "the batch is quarantined", 20
        )
        assert "they are quarantined" in victim.log_path.read_text()
        assert not list(victim.data_dir.rglob("*.buffer"))
        shown = leasehold("journal", "quarantined", "--data-dir", str(victim.data_dir / "data"))
        assert putter.key(0) in shown, "an operator can inspect the batch"
        assert "1 quarantined batches" in leasehold("status", "--admin", victim.admin)
        putter.close()
