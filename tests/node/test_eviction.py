"""Fast eviction: nothing is written to etcd for it, and a successor with a full pool has space immediately."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from leasehold.coord.connect import connect
from leasehold.pool import Pool
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.load import Burst
from leasehold.testing.node import NodeGroup
from leasehold.testing.process import ServerProcess
from leasehold.testing.waiting import until
from leasehold.testing.workload import Lender

pytestmark = pytest.mark.xdist_group("eviction")  # its processes are shared by the module

SEGMENT = 8 << 20
LONG = [pytest.mark.chaos, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def nodes(etcd: EtcdCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeGroup]:
    folder = tmp_path_factory.mktemp("nodes")
    with NodeGroup(etcd.url, 2, cluster=f"c{uuid4().hex[:8]}", folder=folder) as group:
        yield group


async def evictions_are_replicated(nodes: NodeGroup) -> None:
    """Wait until the standby knows every eviction: it does up to the last unlogged batch."""
    primary, (standby,) = nodes.primary(), nodes.standbys()
    await until(
        lambda: standby.status().index.objects == primary.status().index.objects, "the standby knows", poll_s=0.05
    )


async def test_evictions_are_not_written_and_a_full_pool_accepts_puts_immediately_after_failover(
    etcd: EtcdCluster, nodes: NodeGroup
) -> None:
    master = ",".join(nodes.addresses)
    async with Lender(master, size=SEGMENT), await connect(etcd.url) as coord:
        async with Burst(master, writers=4, batch=100) as writers:
            before = await asyncio.to_thread(nodes.primary)
            await until(lambda: before.status().index.evicted > 2_000, "the pool is full and evicts", poll_s=0.1)
            start = before.status().index.evicted, (await coord.get(b"x")).header.revision
            acknowledged = len(writers.acknowledged)
            await until(lambda: before.status().index.evicted > start[0] + 2_000, "it goes on evicting", poll_s=0.1)
            evicted = before.status().index.evicted - start[0]
            revisions = (await coord.get(b"x")).header.revision - start[1]
            put = len(writers.acknowledged) - acknowledged
        print(f"{evicted} evictions and {put} puts in {revisions} revisions of etcd")
        assert revisions < evicted / 10
        # A successor allocates the space that the old primary had evicted and reported. The rest is in its grace
        # period, so a longer burst would correctly be refused.
        await evictions_are_replicated(nodes)
        before.kill_worker()
        async with Burst(master, writers=1, batch=20, prefix="after") as writers:
            await until(lambda: len(writers.acknowledged) >= 100, "the successor takes puts")
        assert await asyncio.to_thread(nodes.primary) is not before
        refused = [failure for failures in writers.failures for failure in failures if "-200" in failure]
        assert refused == [], "no space, in spite of what was evicted"


def value_of(key: str, version: int) -> bytes:
    """Bytes that identify their object, so that bytes of another object are detected."""
    return f"{key}/{version};".encode() * 160


@pytest.mark.parametrize(
    ("objects", "segment", "reads"), [(3_000, "2MiB", 2_000), pytest.param(12_000, "8MiB", 100_000, marks=LONG)]
)
async def test_real_bytes_are_right_after_a_failover_on_a_full_pool(
    nodes: NodeGroup, objects: int, segment: str, reads: int, tmp_path: Path
) -> None:
    """P3 with real memory: every key reads as its own bytes or as absent, never as another object's."""
    master = ",".join(nodes.addresses)
    host = ServerProcess(
        "host",
        [sys.executable, "-m", "leasehold", "host", "--segment", segment, "--master", master],
        log_path=tmp_path / "host.log",
        probe=lambda: b"lending" in (tmp_path / "host.log").read_bytes(),
    )
    nodes.revive()
    host.start()
    try:
        async with Pool(master, timeout_ms=20_000) as pool:
            await until(lambda: nodes.primary().status().index.segments > 0, "the host has mounted", poll_s=0.1)
            written: list[str | bytes] = []
            for at in range(0, objects, 200):  # 1.5 times the space: the first objects are evicted
                batch: dict[str | bytes, bytes] = {
                    f"pool-{reads}-{at + i}": value_of(f"{at + i}", 1) for i in range(200)
                }
                await pool.put_many(batch)
                written += batch
            await evictions_are_replicated(nodes)
            nodes.primary().kill_worker()
            found = wrong = 0
            for at in range(0, reads, 200):
                keys = [written[(at + i) * 7919 % len(written)] for i in range(200)]
                for key, got in (await pool.get_many(keys)).items():
                    number = str(key).rpartition("-")[2]
                    found += isinstance(got, bytes)
                    wrong += isinstance(got, bytes) and got != value_of(number, 1)
                if at % 1000 == 0:  # and puts work immediately
                    await pool.put(f"after-{reads}-{at}", value_of("after", at))
            print(f"{reads} reads after a failover on a full pool: {found} found, {wrong} wrong")
            assert wrong == 0
            assert found > reads // 4
    finally:
        host.stop()
