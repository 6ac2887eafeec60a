"""Eviction at speed: etcd hears nothing of it, and a successor on a full pool has space at once (must-show 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import pytest

from leasehold.coord.connect import connect
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.load import Burst
from leasehold.testing.node import NodeGroup
from leasehold.testing.waiting import until
from leasehold.testing.workload import Lender

SEGMENT = 8 << 20
OBJECT = 1024


@pytest.fixture(scope="module")
def nodes(etcd: EtcdCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeGroup]:
    folder = tmp_path_factory.mktemp("nodes")
    with NodeGroup(etcd.url, 2, cluster=f"c{uuid4().hex[:8]}", folder=folder) as group:
        yield group


async def test_evictions_are_not_written_and_a_full_pool_takes_puts_at_once_after_failover(
    etcd: EtcdCluster, nodes: NodeGroup
) -> None:
    master = ",".join(nodes.addresses)
    async with Lender(master, size=SEGMENT), await connect(etcd.url) as coord:
        async with Burst(master, writers=4, batch=100) as writers:
            before = await asyncio.to_thread(nodes.primary)
            await until(lambda: before.status().index.evicted > 2_000, "the pool is full and evicts", 60, poll_s=0.1)
            start = before.status().index.evicted, (await coord.get(b"x")).header.revision
            acknowledged = len(writers.acknowledged)
            await asyncio.sleep(1.5)
            evicted = before.status().index.evicted - start[0]
            revisions = (await coord.get(b"x")).header.revision - start[1]
            put = len(writers.acknowledged) - acknowledged
            before.kill_worker()
            after = await asyncio.to_thread(nodes.primary)
            assert after is not before
            taken = len(writers.acknowledged)
            await until(lambda: len(writers.acknowledged) > taken + 2_000, "the successor takes puts at once", 10)
        print(f"{evicted} evictions and {put} puts in {revisions} revisions of etcd")
        assert evicted > 300
        assert revisions < evicted / 10
        refused = [failure for failures in writers.failures for failure in failures if "-200" in failure]
        assert refused == [], "no space, in spite of what could be evicted"
