"""Some releases of etcd crash when a read-only transaction is cancelled: the client never cancels one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import leasehold
from leasehold.base.errors import Unavailable
from leasehold.coord.api import Coord
from leasehold.mvcc.model import Put, Range, prefix_end
from leasehold.testing.etcd import EtcdBinary, EtcdCluster, etcd_binaries, etcd_binary

# Enough to read for some milliseconds, so that there is a time in which it can be cut off.
KEYS = 100
READS = [Range(b"k", prefix_end(b"k"))] * 40
MOMENTS_MS = [moment / 5 for moment in range(40)]


async def cancelled(cluster: EtcdCluster, moment_s: float) -> None:
    async with await leasehold.connect(cluster.url) as client:
        reading = asyncio.create_task(client.txn(success=READS))
        await asyncio.sleep(moment_s)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await client.get(b"k")


async def out_of_time(cluster: EtcdCluster, moment_s: float) -> None:
    async with await leasehold.connect(cluster.url) as client:
        await client.get(b"k")
        try:
            await client.txn(success=READS, timeout_s=moment_s)
        except Unavailable:
            await client.get(b"k")


async def closed_under_it(cluster: EtcdCluster, moment_s: float) -> None:
    async with await leasehold.connect(cluster.url) as client:
        await client.get(b"k")
        reading = asyncio.create_task(client.txn(success=READS))
        await asyncio.sleep(moment_s)
    await asyncio.gather(reading, return_exceptions=True)


async def fill(client: Coord) -> None:
    await client.txn(success=[Put(b"k%d" % number, b"x" * 500) for number in range(KEYS)])


@pytest.mark.parametrize("cut_off", [cancelled, out_of_time, closed_under_it], ids=lambda way: way.__name__)
@pytest.mark.parametrize("binary", etcd_binaries(), ids=str)
async def test_no_etcd_dies_of_an_impatient_reader(
    binary: EtcdBinary, cut_off: Callable[[EtcdCluster, float], Awaitable[None]]
) -> None:
    async with EtcdCluster(1, binary=binary) as cluster:
        async with await leasehold.connect(cluster.url) as client:
            await fill(client)
        for moment_ms in MOMENTS_MS:
            await cut_off(cluster, moment_ms / 1_000)
            assert cluster.nodes[0].running, f"after {moment_ms} ms: {cluster.nodes[0].log_tail(50)}"


async def test_a_reader_that_gave_up_does_not_wait() -> None:
    """The request stays at the server, the caller stops waiting; and a frozen etcd does not keep a client from closing.

    Closing does cancel the request, so this test uses an etcd that survives it.
    """
    async with EtcdCluster(1, binary=etcd_binary(survives_kills=True)) as cluster:
        loop = asyncio.get_running_loop()
        async with await leasehold.connect(cluster.url) as client:
            await fill(client)
            cluster.nodes[0].freeze()
            started_s = loop.time()
            with pytest.raises(Unavailable):
                await client.txn(success=READS, timeout_s=0.2)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await client.txn(success=READS)
            assert loop.time() - started_s < 10  # an unhurried one has 30 s
        assert loop.time() - started_s < 20
        cluster.nodes[0].thaw()
        async with await leasehold.connect(cluster.url) as client:
            assert (await client.txn(success=READS, timeout_s=60)).succeeded
