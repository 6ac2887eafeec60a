"""Real bytes through real processes: a master, storage hosts, our own client."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from zlib import crc32

import pytest
from tests.pool.conftest import Stage

from leasehold.base.errors import LeaseholdError
from leasehold.pool import BytesDamaged, LeaseExpired, Pool, SyncPool, TransferFailed
from leasehold.pool.host import Host
from leasehold.pool.transfer import Transfer
from leasehold.testing.ports import free_ports
from leasehold.testing.waiting import until
from leasehold.wire.errors import MasterError
from leasehold.wire.messages import BufferDescriptor, MemoryReplica


async def ready(pool: Pool, replicas: int = 1) -> None:
    """Wait until the pool has that many hosts."""

    async def enough() -> bool:
        key = b"probe-%d" % time.monotonic_ns()
        try:
            await pool.put(key, b"x", replicas=replicas)
            found = await pool.client.get_replica_list(key)
            await pool.remove(key, force=True)
        except LeaseholdError:
            return False
        return len(found.replicas) == replicas

    await until(enough, f"the pool has {replicas} hosts")


async def test_bytes_come_back(stage: Stage) -> None:
    stage.start_master()
    stage.start_host("one")
    async with Pool(stage.master) as pool:
        await ready(pool)
        blob = os.urandom(1_000_000)
        await pool.put("k", blob)
        assert await pool.get("k") == blob
        assert await pool.exists("k")
        assert await pool.get("absent") is None
        with pytest.raises(MasterError) as refused:
            await pool.put("k", b"other")
        assert refused.value.code == -705
        await pool.put("k", b"new", replace=True)
        assert await pool.get("k") == b"new"
        with pytest.raises(MasterError):
            await pool.remove("k")
        await pool.remove("k", force=True)
        assert await pool.get("k") is None


async def test_batches_and_the_synchronous_face(stage: Stage) -> None:
    stage.start_master()
    stage.start_host("one")
    async with Pool(stage.master) as pool:
        await ready(pool)
        objects: dict[str | bytes, bytes] = {f"k{number}": os.urandom(5_000) for number in range(200)}
        assert await pool.put_many(objects) == {}
        assert await pool.get_many(list(objects)) == objects
        again = await pool.put_many({"k0": b"x", "fresh": b"y"})
        assert isinstance(again["k0"], MasterError)
        assert list(again) == ["k0"]

    def synchronously() -> None:
        with SyncPool(stage.master) as plain:
            assert plain.get("k7") == objects["k7"]
            plain.put("from-sync", b"bytes")
            assert plain.get_many(["from-sync"]) == {"from-sync": b"bytes"}
            assert plain.exists("from-sync")
            plain.remove("from-sync", force=True)

    await asyncio.to_thread(synchronously)


async def test_a_dead_host_is_read_around(stage: Stage) -> None:
    stage.start_master()
    hosts = {name: stage.start_host(name) for name in ("one", "two")}
    async with Pool(stage.master) as pool:
        await ready(pool, replicas=2)
        await pool.put("k", b"precious", replicas=2)
        await pool.put("single", b"alone")
        found = await pool.client.get_replica_list("k")
        places = [replica.place for replica in found.replicas]
        assert len({place.buffer.transport_endpoint for place in places if isinstance(place, MemoryReplica)}) == 2
        hosts["one"].kill()
        hosts["one"].wait()
        assert await pool.get("k") == b"precious"
        hosts["two"].kill()
        hosts["two"].wait()
        with pytest.raises(TransferFailed):
            await pool.get("k")
        with pytest.raises(TransferFailed):
            await pool.put("new", b"x")
        assert await pool.get("new") is None  # its space was given back


async def test_a_read_that_outlives_its_lease_is_not_returned(stage: Stage) -> None:
    stage.start_master("--lease-ttl", "2s")
    host = stage.start_host("one")
    async with Pool(stage.master) as pool:
        await ready(pool)
        await pool.put("k", b"value")
        assert await pool.get("k") == b"value"
        host.send_signal(signal.SIGSTOP)  # a slow host: the bytes will come, too late
        reading = asyncio.create_task(pool.get("k"))
        await asyncio.sleep(3)  # the lease, which has no other sign, and a margin
        host.send_signal(signal.SIGCONT)
        with pytest.raises(LeaseExpired):
            await reading


async def test_a_restarted_host_supersedes_its_earlier_life(stage: Stage) -> None:
    stage.start_master()
    port = free_ports(1)[0]
    first = stage.start_host("one", port=port)
    async with Pool(stage.master) as pool:
        await ready(pool)
        await pool.put("k", b"of the first life")
        first.kill()
        first.wait()
        stage.start_host("one-again", port=port)

        async def gone() -> bool:
            """Long before the lease expires: never the zeros of the restarted host."""
            try:
                return await pool.get("k") is None
            except (BytesDamaged, TransferFailed):  # until it is mounted, it refuses
                return False

        await until(gone, "the object is evicted")
        await pool.put("k", b"of the second life")
        assert await pool.get("k") == b"of the second life"


async def test_a_master_that_forgot_everything_gets_the_segment_again(stage: Stage) -> None:
    master = stage.start_master()
    stage.start_host("one")
    async with Pool(stage.master) as pool:
        await ready(pool)
        master.kill()
        master.wait()
        stage.start_master()
        await ready(pool)


async def test_a_stopped_host_unmounts_its_memory(stage: Stage) -> None:
    stage.start_master()
    host = stage.start_host("one")
    async with Pool(stage.master) as pool:
        await ready(pool)
        await pool.put("k", b"v")
        host.terminate()
        assert host.wait(60) == 0
        assert await pool.get("k") is None


async def test_damaged_bytes_are_noticed() -> None:
    host = Host(1 << 16)
    await host.start("127.0.0.1:0")
    transfer = Transfer()
    place = BufferDescriptor(5, host.base + 64, "leasehold", host.endpoint)
    await transfer.write(place, b"right", 1)
    assert await transfer.read(place) == b"right"
    outside = BufferDescriptor(5, host.base + (1 << 16) - 2, "leasehold", host.endpoint)
    with pytest.raises(TransferFailed, match="out of bounds"):
        await transfer.read(outside)
    with pytest.raises(TransferFailed, match="out of bounds"):
        await transfer.write(outside, b"wrong", 1)
    transfer.close()
    await host.close()


async def test_an_objects_checksum_is_checked_on_every_replica(stage: Stage) -> None:
    stage.start_master()
    stage.start_host("one")
    async with Pool(stage.master) as pool:
        await ready(pool)
        await pool.put("k", b"right")
        (replica,) = (await pool.client.get_replica_list("k")).replicas
        assert isinstance(replica.place, MemoryReplica)
        await pool._transfer.write(replica.place.buffer, b"wrong", replica.id)
        assert crc32(b"wrong") != crc32(b"right")
        with pytest.raises(BytesDamaged):
            await pool.get("k")
