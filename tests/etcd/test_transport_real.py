"""The client's transport on real servers: what is large, a loop that stands still, and one that is left behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import uvloop

import leasehold
from leasehold.coord.api import Coord
from leasehold.mvcc.errors import StoreError
from leasehold.testing.etcd import EtcdBinary, EtcdCluster, etcd_binaries
from leasehold.testing.store import StoreProcess

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
MIB = 1 << 20

LEFT_BEHIND = """
import asyncio, gc, sys, uvloop, leasehold

async def main():
    client = await leasehold.connect(sys.argv[1])
    await client.put(b"left", b"")
    watch = client.watch(b"left")
    await watch.ready()
    tasks = [asyncio.create_task(client.put(b"left", bytes(100_000))) for _ in range(50)]
    tasks.append(asyncio.create_task(anext(aiter(watch))))
    await asyncio.sleep(0)

factory = uvloop.new_event_loop if sys.argv[2] == "uvloop" else asyncio.new_event_loop
with asyncio.Runner(loop_factory=factory) as runner:
    runner.run(main())
gc.collect()
"""


async def large(client: Coord) -> None:
    """The largest write, one that is larger, and an answer of 64 MiB."""
    for each in range(64):
        await client.put(b"large/%d" % each, bytes(MIB), timeout_s=60)
    found = await client.get(b"large/", b"large0", timeout_s=60)
    assert sum(len(kv.value) for kv in found.kvs) == 64 * MIB
    for size in (2 * MIB, 12 * MIB):
        with pytest.raises(StoreError, match="large"):
            await client.put(b"larger", bytes(size), timeout_s=60)
    await client.put(b"largest", bytes(1_536 * 1_024 - 100), timeout_s=60)
    assert len((await client.get(b"largest")).kvs[0].value) == 1_536 * 1_024 - 100


@pytest.mark.parametrize("binary", etcd_binaries(), ids=str)
async def test_large_requests_and_answers_of_etcd(binary: EtcdBinary) -> None:
    async with EtcdCluster(1, binary=binary) as cluster, await leasehold.connect(cluster.url) as client:
        await large(client)


async def test_large_requests_and_answers_of_the_served_store() -> None:
    with StoreProcess() as store:
        async with await leasehold.connect(store.url) as client:
            await large(client)


async def test_a_slow_reader_of_many_megabytes(etcd: EtcdCluster) -> None:
    """Of 50 MB of events, in fragments, none is lost."""
    async with await leasehold.connect(etcd.url) as client, await leasehold.connect(etcd.url) as writer:
        async with client.watch(b"slow/", b"slow0", fragment=True) as watch:
            await watch.ready()
            for each in range(50):
                await writer.put(b"slow/%d" % (each % 4), bytes(1_000_000 + each), timeout_s=60)
            sizes: list[int] = []
            while len(sizes) < 50:
                await asyncio.sleep(0.005)
                sizes += [len(event.kv.value) for event in (await anext(aiter(watch))).events]
        assert sizes == [1_000_000 + each for each in range(50)]
        await writer.delete(b"slow/", b"slow0")


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_a_loop_that_stood_still_finds_its_answers(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], etcd: EtcdCluster
) -> None:
    """Longer than the calls had: they were answered in time, and the connection was not dead."""

    async def run() -> None:
        async with await leasehold.connect(etcd.url) as client:
            await client.put(b"still", b"1")
            connection = client._endpoints.current.channel.connection  # type: ignore[attr-defined]  # of etcd's client
            # Reads: etcd must answer in time, too, and a write would wait for its disk.
            calls = [asyncio.create_task(client.get(b"still", timeout_s=1)) for _ in range(3)]
            for _ in range(3):
                await asyncio.sleep(0)  # combined writes happen at the end of a turn
            time.sleep(1.5)  # the point of it
            await asyncio.gather(*calls)
            assert client._endpoints.current.channel.connection is connection  # type: ignore[attr-defined]

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_loop_that_is_left_behind_says_nothing(loop: str, etcd: EtcdCluster) -> None:
    """Running calls, a watch, a client that was not closed: no destroyed task, no unretrieved error."""
    command = [sys.executable, "-c", LEFT_BEHIND, etcd.url, loop]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    assert done.stderr == ""
