"""A network between the client and etcd that delays, falls silent, and cuts."""

from __future__ import annotations

import asyncio
import time

import pytest

import leasehold
from leasehold.base.errors import Unavailable, UnknownOutcome
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.proxy import TcpProxy
from leasehold.testing.waiting import until


async def test_a_half_open_connection_is_replaced(etcd: EtcdCluster, prefix: bytes) -> None:
    """In a silent network a write ends as unknown and a read times out. Afterwards the watch resumes without loss."""
    async with TcpProxy(etcd.endpoints[0]) as proxy, await leasehold.connect(f"etcd://{proxy.endpoint}") as client:
        stream = client.watch(prefix)
        await stream.ready()
        await client.put(prefix, b"1")
        proxy.silence()
        with pytest.raises(UnknownOutcome):
            await client.put(prefix, b"2", timeout_s=1)
        start = time.monotonic()
        with pytest.raises(Unavailable):
            await client.get(prefix, timeout_s=0.5)
        assert time.monotonic() - start < 10
        proxy.heal()
        await client.put(prefix, b"3", timeout_s=60)
        seen: list[bytes] = []
        async with asyncio.timeout(60):
            while b"3" not in seen:
                seen += [event.kv.value for event in (await anext(aiter(stream))).events]
        assert seen in ([b"1", b"3"], [b"1", b"2", b"3"])


async def test_a_cut_connection_is_replaced(etcd: EtcdCluster, prefix: bytes) -> None:
    async with TcpProxy(etcd.endpoints[0]) as proxy, await leasehold.connect(f"etcd://{proxy.endpoint}") as client:
        sent_ms = client.now_ms()
        lease = await client.lease_grant(6)
        keeper = client.keep_alive(lease.id, lease.ttl_s, sent_ms)
        stream = client.watch(prefix)
        await stream.ready()
        for number in range(3):
            proxy.cut()
            await asyncio.sleep(0.2)
            proxy.heal()
            await client.put(prefix, b"%d" % number, timeout_s=60)
        healed_ms = client.now_ms()
        seen: list[bytes] = []
        async with asyncio.timeout(60):
            while len(seen) < 3:
                seen += [event.kv.value for event in (await anext(aiter(stream))).events]
        assert seen == [b"0", b"1", b"2"]
        await until(lambda: keeper.deadline_ms > healed_ms + lease.ttl_s * 1_000, "it is renewed again")
        assert not keeper.lost
        assert (await client.lease_time_to_live(lease.id)).ttl_s > 0
        keeper.close()


async def test_a_slow_network_is_only_slow(etcd: EtcdCluster, prefix: bytes) -> None:
    async with TcpProxy(etcd.endpoints[0]) as proxy, await leasehold.connect(f"etcd://{proxy.endpoint}") as client:
        await client.put(prefix, b"1")
        proxy.delay(0.2)
        start = time.monotonic()
        kv = await client.get_one(prefix)
        assert kv is not None
        assert time.monotonic() - start >= 0.4
