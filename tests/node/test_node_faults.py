"""Faults on real nodes: standbys, leases, segments and the buffer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.load import Burst
from leasehold.testing.node import NodeGroup
from leasehold.testing.process import wait_until
from leasehold.testing.redis import RedisProcess
from leasehold.testing.waiting import until
from leasehold.testing.workload import Lender, Putter, missing, recovery_ms
from leasehold.wire.client import Client
from leasehold.wire.errors import MasterError

pytestmark = pytest.mark.xdist_group("bad_days")  # its processes are shared by the module


async def test_leases_hold_over_two_failovers_within_one_grace(pair: NodeGroup) -> None:
    """P2, H2: each `begin` lifts older ends; the second failover must not forget the first one's grace."""
    master = ",".join(pair.addresses)
    async with Lender(master):
        putter = Putter(master, "leased")
        await putter.put_batch(1)
        async with Client(master) as client:
            assert await client.exist_key(putter.key(0))  # a lease of 10 s starts here
        for _ in range(2):
            pair.primary().kill_worker()
            async with Client(master) as client:
                await client.service_ready()
                with pytest.raises(MasterError) as refused:
                    await client.remove(putter.key(0))
                assert refused.value.code == -706
            await asyncio.to_thread(pair.settle)
        putter.close()


async def test_a_storage_host_restarted_on_the_same_endpoint_supersedes_itself(pair: NodeGroup) -> None:
    """Schedule 11: new ids, same address. Nothing may still be read from the segment that was unmounted."""
    master = ",".join(pair.addresses)
    async with Lender(master, size=1 << 26) as first:
        putter = Putter(master, "old")
        await putter.put_batch(3)
        async with Lender(master, size=1 << 26, like=first):
            assert len(await missing(master, sorted(putter.results.acknowledged))) == 3
            again = Putter(master, "new")
            await again.put_batch(3)
            pair.primary().kill_worker()
            await recovery_ms(master, again.key(0))
            assert await missing(master, sorted(again.results.acknowledged)) == []
            assert len(await missing(master, sorted(putter.results.acknowledged))) == 3
            again.close()
        putter.close()


@pytest.mark.chaos
async def test_a_standby_started_cold_under_load_and_two_standbys_of_which_one_is_behind(
    etcd: EtcdCluster, tmp_path: Path
) -> None:
    arguments = ["--snapshot-records", "3000", "--snapshot", "1s"]
    nodes = NodeGroup(etcd.url, 3, cluster=f"c{uuid4().hex[:8]}", folder=tmp_path, arguments=arguments)
    first, second, third = nodes.nodes
    try:
        first.start()
        second.start()
        nodes.settle()
        master = f"{first.rpc},{second.rpc}"
        async with Lender(master, size=4 << 30):
            async with Burst(master, writers=2) as writers:
                await until(lambda: len(writers.acknowledged) > 3_000, "there is something to catch up with")
                await asyncio.to_thread(third.start)
                await asyncio.to_thread(wait_until, third.is_standby, "it has caught up under load")
                third.freeze_host()  # now it falls behind
                await asyncio.sleep(1.0)
                nodes.primary().kill_worker()
                await recovery_ms(master, writers.putters[0].key(0))
                third.thaw_host()
                await asyncio.sleep(0.5)
            assert await missing(master, writers.acknowledged) == []
            await asyncio.to_thread(nodes.settle)
            for node in (first, second):
                node.kill_host()
            await asyncio.to_thread(wait_until, third.is_primary, "the third leads")
            assert await missing(third.rpc, writers.acknowledged) == []
    finally:
        for node in nodes.nodes:
            node.kill()


@pytest.mark.chaos
async def test_a_wall_clock_that_jumps_by_an_hour_changes_nothing(etcd: EtcdCluster, tmp_path: Path) -> None:
    """No decision uses the wall clock: no failover, no lost lease, no lost object."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    assert library is not None, "libfaketime is missing: run scripts/system-deps as root"
    clock = tmp_path / "clock"
    clock.write_text("+0")
    env = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    with NodeGroup(etcd.url, 2, cluster=f"c{uuid4().hex[:8]}", folder=tmp_path, env=env) as nodes:
        master = ",".join(nodes.addresses)
        async with Lender(master, size=4 << 30) as lender:
            leader = nodes.primary()
            async with Burst(master, writers=2) as writers:
                for jump in ("+3600s", "-3600s"):
                    clock.write_text(jump)
                    await asyncio.sleep(1.5)
            assert writers.failures == [[], []]
            assert nodes.primary() is leader
            assert await missing(master, writers.acknowledged) == []
            assert lender.remounts == 0


async def test_the_guardian_drains_acknowledged_batches_from_the_disk_buffer(etcd: EtcdCluster, tmp_path: Path) -> None:
    arguments = ["--durability", "buffered"]
    with NodeGroup(etcd.url, 2, cluster=f"c{uuid4().hex[:8]}", folder=tmp_path, arguments=arguments) as nodes:
        master = ",".join(nodes.addresses)
        async with Lender(master, size=4 << 30):
            for _ in range(2):
                async with Burst(master, writers=4, batch=200) as writers:
                    await asyncio.sleep(0.5)
                    nodes.primary().kill_worker()
                    await recovery_ms(master, writers.putters[0].key(0))
                assert await missing(master, writers.acknowledged) == []
                await asyncio.to_thread(nodes.settle)


@pytest.mark.chaos
async def test_without_redis_a_promotion_waits_for_an_operator(etcd: EtcdCluster, tmp_path: Path) -> None:
    with RedisProcess(tmp_path / "redis") as redis:
        arguments = ["--durability", "buffered", "--buffer", redis.url]
        with NodeGroup(etcd.url, 2, cluster=f"c{uuid4().hex[:8]}", folder=tmp_path, arguments=arguments) as nodes:
            master = ",".join(nodes.addresses)
            async with Lender(master, size=4 << 30):
                async with Burst(master, writers=2, batch=200) as writers:
                    await asyncio.sleep(0.3)
                    nodes.primary().kill_worker()
                    await recovery_ms(master, writers.putters[0].key(0))
                assert await missing(master, writers.acknowledged) == []
                await asyncio.to_thread(nodes.settle)
                putter = Putter(master, "last")
                await putter.put_batch(5)
                redis.kill()
                victim = nodes.primary()
                victim.kill_host()
                other = next(node for node in nodes.nodes if node is not victim)
                await until(lambda: "force the promotion" in other.log_path.read_text(), "it waits for an operator")
                assert not other.is_primary()
                assert other.http("/api/force", body=b"{}")[0] == 200
                await asyncio.to_thread(wait_until, other.is_primary, "it leads on an operator's word")
                assert await missing(other.rpc, sorted(putter.results.acknowledged)) == []
                putter.close()
