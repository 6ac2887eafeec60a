"""The cache: hits in one process, writes with holders, and eight clients beside the peers, all in one run."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import cachetools
import redis
import uvloop

import leasehold
from bench.clients.redis_tracking import RedisClient
from leasehold.cache import Authority, AuthoritySettings, Client, MemoryStore
from leasehold.testing.cache import CacheProcess
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.redis import RedisProcess

HITS = 200_000
CLIENTS = 8
KEYS = 1_000
VALUE = b"x" * 100
SECONDS = 1.2
Get = Callable[[bytes], Awaitable[object]]
Put = Callable[[bytes, bytes], Awaitable[object]]


def key(number: int) -> bytes:
    return b"key-%05d" % number


# --- one process ---


async def hits() -> None:
    authority = await Authority.open(MemoryStore(), AuthoritySettings(term_ms=60_000))
    async with Client(authority) as client:
        keys = [key(number) for number in range(KEYS)]
        await asyncio.gather(*(client.put(each, VALUE) for each in keys))
        await client.get_many(keys)
        order = random.Random(1).choices(keys, k=HITS)
        plain = dict.fromkeys(keys, VALUE)
        ttl: cachetools.TTLCache[bytes, bytes] = cachetools.TTLCache(2 * KEYS, 60)
        ttl.update(plain)

        async def awaited() -> None:
            for each in order:
                await client.get(each)

        rows = {"dict.get": rate(lambda: [plain.get(each) for each in order])}
        rows["cachetools.TTLCache"] = rate(lambda: [ttl.get(each) for each in order])
        rows["Client.get_local"] = rate(lambda: [client.get_local(each) for each in order])
        started = time.perf_counter()
        await awaited()
        rows["await Client.get"] = HITS / (time.perf_counter() - started)
        for name, per_s in rows.items():
            print(f"  hits, one process   {name:<24} {per_s / 1e6:6.2f} M/s")
    await authority.close()


def rate(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return HITS / (time.perf_counter() - started)


# --- what a write costs ---


async def writes(address: str) -> None:
    clients = [Client(address) for _ in range(CLIENTS)]
    writer = clients[0]
    await writer.put(b"w", VALUE)
    alone = await latencies(lambda: writer.put(b"w", VALUE), lambda: asyncio.sleep(0))
    held = await latencies(
        lambda: writer.put(b"w", VALUE), lambda: asyncio.gather(*(client.get(b"w") for client in clients[1:]))
    )
    miss = await latencies(lambda: clients[1].get_many([b"w"]), lambda: writer.put(b"w", VALUE))
    tell("read that misses", miss)
    tell("write, nobody holds the value", alone)
    tell(f"write, {CLIENTS - 1} holders alive (callback)", held)
    for client in clients:
        await client.close()


async def latencies(work: Callable[[], Awaitable[object]], before: Callable[[], Awaitable[object]]) -> list[float]:
    found = []
    for _ in range(150):
        await before()
        started = time.perf_counter()
        await work()
        found.append((time.perf_counter() - started) * 1e3)
    return found


def tell(name: str, found: list[float]) -> None:
    p99 = sorted(found)[int(len(found) * 0.99)]
    print(f"  {name:<42} p50 {statistics.median(found):6.2f} ms   p99 {p99:6.2f} ms")


# --- eight clients, one in a hundred operations a write ---


def reads_per_s(name: str, worker: Callable[..., Any], *arguments: object) -> float:
    """Fork eight clients, let them work for a while, add up what they read."""
    context = multiprocessing.get_context("fork")
    results: Any = context.Queue()
    barrier: Any = context.Barrier(CLIENTS)
    processes = [
        context.Process(target=worker, args=(number, barrier, results, *arguments)) for number in range(CLIENTS)
    ]
    for process in processes:
        process.start()
    total = sum(results.get() for _ in processes)
    for process in processes:
        process.join()
    print(f"  8 clients, 1 % writes   {name:<34} {total / SECONDS:>10,.0f} reads/s")
    return float(total) / SECONDS


def choices(seed: int, skewed: bool) -> tuple[list[bytes], list[bytes]]:
    """Keys to read and to write: writes are spread evenly, reads evenly or by popularity (Zipf)."""
    chance = random.Random(seed)
    weights = [1 / (number + 1) for number in range(KEYS)] if skewed else None
    numbers = range(KEYS)
    return [key(n) for n in chance.choices(numbers, weights, k=20_000)], [
        key(n) for n in chance.choices(numbers, k=200)
    ]


async def work_async(number: int, barrier: Any, skewed: bool, get: Get, put: Put) -> int:
    """Read, and at every hundredth turn write, until the time is over. Caches are warm when it begins."""
    read_keys, write_keys = choices(number, skewed)
    await in_chunks(get)
    barrier.wait()
    done, end = 0, time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for each in read_keys[done % 19_000 : done % 19_000 + 99]:
            await get(each)
        await put(write_keys[done % 200], VALUE)
        done += 99
    return done


async def in_chunks(work: Callable[[bytes], Awaitable[object]]) -> None:
    """For every key once, a hundred at a time."""
    for start in range(0, KEYS, 100):
        await asyncio.gather(*(work(key(number)) for number in range(start, start + 100)))


def cache_worker(number: int, barrier: Any, results: Any, address: str, skewed: bool, cached: bool) -> None:
    async def run() -> int:
        async with Client(address) as client:

            async def uncached(each: bytes) -> bytes | None:
                client.machine.entries.drop(each)
                return await client.get(each)

            return await work_async(number, barrier, skewed, client.get if cached else uncached, client.put)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        results.put(runner.run(run()))


def etcd_worker(number: int, barrier: Any, results: Any, url: str, skewed: bool) -> None:
    async def run() -> int:
        async with await leasehold.connect(url) as coord:
            return await work_async(number, barrier, skewed, coord.get_one, coord.put)

    results.put(asyncio.run(run()))


def redis_worker(number: int, barrier: Any, results: Any, port: int, skewed: bool, tracked: bool) -> None:
    """A client as lean as ours; redis-py's own tracking needs Redis 7.4 or newer."""

    async def run() -> int:
        client = await RedisClient.open(port, tracked)
        try:
            return await work_async(number, barrier, skewed, client.get, client.put)
        finally:
            client.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        results.put(runner.run(run()))


def redis_py_worker(number: int, barrier: Any, results: Any, port: int, skewed: bool) -> None:
    client = redis.Redis(port=port)
    read_keys, write_keys = choices(number, skewed)
    barrier.wait()
    done, end = 0, time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for each in read_keys[done % 19_000 : done % 19_000 + 99]:
            client.get(each)
        client.set(write_keys[done % 200], VALUE)
        done += 99
    results.put(done)


async def fill(cached: str, plain: str, redis_port: int) -> None:
    """The same values everywhere."""
    for address in (cached, plain):
        async with Client(address) as client:
            await in_chunks(lambda each, client=client: client.put(each, VALUE))  # type: ignore[misc]  # a default
    server = await RedisClient.open(redis_port, tracked=False)
    await in_chunks(lambda each: server.put(each, VALUE))
    server.close()


def compare(folder: Path) -> None:
    with (
        CacheProcess(folder, "--term", "30s") as served,
        CacheProcess(folder, "--term", "10ms", name="uncached") as plain,
        RedisProcess(folder / "redis") as server,
    ):
        asyncio.run(fill(served.address, plain.address, server.port))
        asyncio.run(writes(served.address))
        for skewed in (False, True):
            print(f"  -- reads {'by popularity (Zipf)' if skewed else 'spread evenly'} over {KEYS} keys")
            ours = reads_per_s("leasehold cache", cache_worker, served.address, skewed, True)
            rest = {
                "the same clients without cache": reads_per_s(
                    "the same clients without cache", cache_worker, plain.address, skewed, False
                ),
                "redis": reads_per_s("Redis, GET, lean client", redis_worker, server.port, skewed, False),
                "redis-py": reads_per_s("Redis, GET, redis-py", redis_py_worker, server.port, skewed),
            }
            tracking = reads_per_s("Redis, tracking (may be stale)", redis_worker, server.port, skewed, True)
            if not skewed:
                with EtcdCluster(1) as etcd:
                    rest["etcd"] = reads_per_s("etcd, linearizable", etcd_worker, etcd.url, skewed)
            best = max(rest.values())
            print(f"  = {ours / best:.1f} x the best uncached, {ours / tracking:.2f} x Redis with tracking")


def main() -> None:
    asyncio.run(hits())
    with tempfile.TemporaryDirectory(prefix="leasehold-bench-cache-") as folder:
        compare(Path(folder))


if __name__ == "__main__":
    main()
