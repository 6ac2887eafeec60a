"""The cache: hits in one process, writes with holders, and eight clients beside the peers, all in one run."""

from __future__ import annotations

import asyncio
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
from msgspec import Struct

import leasehold
from bench.cache_peers import STALE_S, opened_coredis, redis_py, stale_worker
from bench.clients.redis_tracking import RedisClient
from bench.rows import PER_SECOND, record
from bench.workers import Start, run_workers
from leasehold.cache import Authority, AuthoritySettings, Client, MemoryStore
from leasehold.testing.cache import CacheProcess
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.process import cpu_s
from leasehold.testing.redis import RedisProcess

HITS = 200_000
CLIENTS = 8
KEYS = 1_000
VALUE = b"x" * 100
SECONDS = 1.0
ROUNDS = 3
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
        for name in ("Client.get_local", "await Client.get"):
            record(f"hits, {name}", rows[name], PER_SECOND)
    await authority.close()


def rate(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return HITS / (time.perf_counter() - started)


# --- the cost of a write ---


async def writes(address: str) -> None:
    clients = [Client(address) for _ in range(CLIENTS)]
    writer = clients[0]
    await writer.put(b"w", VALUE)
    alone = await latencies(lambda: writer.put(b"w", VALUE), lambda: asyncio.sleep(0))
    held = await latencies(
        lambda: writer.put(b"w", VALUE), lambda: asyncio.gather(*(client.get(b"w") for client in clients[1:]))
    )
    miss = await latencies(lambda: clients[1].get_many([b"w"]), lambda: writer.put(b"w", VALUE))
    show("read that misses", miss)
    show("write, no holders", alone)
    show(f"write, {CLIENTS - 1} holders alive (callback)", held)
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


def show(name: str, found: list[float]) -> None:
    p99 = sorted(found)[int(len(found) * 0.99)]
    print(f"  {name:<42} p50 {statistics.median(found):6.2f} ms   p99 {p99:6.2f} ms")
    record(f"{name}, p50", statistics.median(found), "ms")


# --- eight clients, one in a hundred operations a write ---


class Row(Struct, frozen=True):
    """Figures of eight clients of one kind: reads a second, and microseconds of CPU per read on both sides."""

    reads_per_s: float
    client_us: float
    server_us: float

    @property
    def cpu_us(self) -> float:
        return self.client_us + self.server_us

    def __str__(self) -> str:
        return f"{self.reads_per_s:>10,.0f} {self.client_us:>9.1f} {self.server_us:>9.1f} {self.cpu_us:>9.1f}"


class Contender(Struct, frozen=True):
    """A server and its eight clients. Each runs `worker(number, start, skewed, *arguments)`: reads, CPU seconds."""

    name: str
    server_pid: int
    worker: Callable[..., Any]
    arguments: tuple[object, ...]


def measure(contender: Contender, skewed: bool) -> Row:
    """Start eight client processes, each with one request in flight, and add up their reads."""
    before_s = 0.0

    def started() -> None:
        nonlocal before_s
        before_s = cpu_s(contender.server_pid)

    done: list[tuple[int, float]] = run_workers(contender.worker, CLIENTS, (skewed, *contender.arguments), started)
    server_s = cpu_s(contender.server_pid) - before_s
    reads = sum(read for read, _ in done)
    return Row(reads / SECONDS, sum(used_s for _, used_s in done) / reads * 1e6, server_s / reads * 1e6)


def in_turn(contenders: list[Contender], skewed: bool, rounds: int) -> list[Row]:
    """Measure all of them in turn, each alone on the machine: the median of each figure.

    Other load on the machine, and changes of its speed, then affect all of them equally.
    """
    seen: list[list[Row]] = [[] for _ in contenders]
    for _ in range(rounds):
        for contender, rows in zip(contenders, seen, strict=True):
            rows.append(measure(contender, skewed))
    return [
        Row(
            statistics.median(row.reads_per_s for row in rows),
            statistics.median(row.client_us for row in rows),
            statistics.median(row.server_us for row in rows),
        )
        for rows in seen
    ]


def choices(seed: int, skewed: bool) -> tuple[list[bytes], list[bytes]]:
    """Keys to read and to write: writes are spread evenly, reads evenly or by popularity (Zipf)."""
    chance = random.Random(seed)
    weights = [1 / (number + 1) for number in range(KEYS)] if skewed else None
    numbers = range(KEYS)
    return [key(n) for n in chance.choices(numbers, weights, k=20_000)], [
        key(n) for n in chance.choices(numbers, k=200)
    ]


async def work_async(number: int, start: Start, skewed: bool, get: Get, put: Put) -> tuple[int, float]:
    """Read for `SECONDS`, with a write after every 99 reads: reads, CPU seconds.

    Every key is read twice before: caches are warm and know the keys in use, as in the middle of a long run.
    """
    read_keys, write_keys = choices(number, skewed)
    await in_chunks(get)
    await in_chunks(get)
    start.wait()
    used_s = time.process_time()
    done, end = 0, time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for each in read_keys[done % 19_000 : done % 19_000 + 99]:
            await get(each)
        await put(write_keys[done % 200], VALUE)
        done += 99
    return done, time.process_time() - used_s


async def in_chunks(work: Callable[[bytes], Awaitable[object]]) -> None:
    """For every key once, a hundred at a time."""
    for start in range(0, KEYS, 100):
        await asyncio.gather(*(work(key(number)) for number in range(start, start + 100)))


def cache_worker(number: int, start: Start, skewed: bool, address: str, cached: bool) -> tuple[int, float]:
    async def run() -> tuple[int, float]:
        async with Client(address) as client:

            async def uncached(each: bytes) -> bytes | None:
                client.machine.entries.drop(each)
                return await client.get(each)

            return await work_async(number, start, skewed, client.get if cached else uncached, client.put)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def etcd_worker(number: int, start: Start, skewed: bool, url: str) -> tuple[int, float]:
    async def run() -> tuple[int, float]:
        async with await leasehold.connect(url) as coord:
            return await work_async(number, start, skewed, coord.get_one, coord.put)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def redis_worker(number: int, start: Start, skewed: bool, port: int, tracked: bool) -> tuple[int, float]:
    """A client as lean as ours; redis-py's own tracking needs Redis 7.4 or newer."""

    async def run() -> tuple[int, float]:
        client = await RedisClient.open(port, tracked)
        try:
            return await work_async(number, start, skewed, client.get, client.put)
        finally:
            client.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def redis_py_worker(number: int, start: Start, skewed: bool, port: int) -> tuple[int, float]:
    """The client that people have, in its cheapest form: without asyncio, parsing with hiredis. The same loop."""
    return work_sync(number, start, skewed, redis.Redis(port=port), warm=False)


def work_sync(number: int, start: Start, skewed: bool, client: redis.Redis, *, warm: bool) -> tuple[int, float]:
    """As `work_async`, for a client of Redis without asyncio."""
    read_keys, write_keys = choices(number, skewed)
    for each in map(key, range(KEYS if warm else 1)):
        client.get(each)
    start.wait()
    used_s = time.process_time()
    done, end = 0, time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for each in read_keys[done % 19_000 : done % 19_000 + 99]:
            client.get(each)
        client.set(write_keys[done % 200], VALUE)
        done += 99
    return done, time.process_time() - used_s


def redis_py_cache_worker(number: int, start: Start, skewed: bool, port: int) -> tuple[int, float]:
    """redis-py with its own client-side cache, without asyncio."""
    return work_sync(number, start, skewed, redis_py(port), warm=True)


def coredis_worker(number: int, start: Start, skewed: bool, port: int) -> tuple[int, float]:
    """coredis with its own client-side cache."""

    async def run() -> tuple[int, float]:
        async with opened_coredis(port) as client:
            return await work_async(number, start, skewed, client.get, client.set)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


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
            contest(served, plain, server, skewed)
        stale(served.address, server.port)


def stale(address: str, redis_port: int) -> None:
    """Count reads of one key that are older than a write acknowledged before the read began."""
    print(f"  {'one reader, one writer, one key':<38} {'reads/s':>10} {'writes/s':>9} {'stale reads':>12}")
    for name, kind, where in (
        ("leasehold cache", "leasehold", address),
        ("Redis, tracking, a lean client", "lean", str(redis_port)),
        ("Redis, redis-py's own cache", "redis-py", str(redis_port)),
        ("Redis, coredis's own cache", "coredis", str(redis_port)),
    ):
        ((reads, writes, old),) = run_workers(stale_worker, 1, (kind, where), lambda: None)
        print(f"  {name:<38} {reads / STALE_S:>10,.0f} {writes / STALE_S:>9,.0f} {old:>12,}")
        if kind == "leasehold":
            record("stale reads", old, "reads")


def contest(served: CacheProcess, plain: CacheProcess, server: RedisProcess, skewed: bool) -> None:
    """Ours beside clients that send every read to a server, and beside a cache that may be stale."""
    ours = Contender("leasehold cache", served.pid, cache_worker, (served.address, True))
    uncached = [
        Contender("the same clients without cache", plain.pid, cache_worker, (plain.address, False)),
        Contender("Redis GET, redis-py with hiredis", server.pid, redis_py_worker, (server.port,)),
        Contender("Redis GET, a client as lean as ours", server.pid, redis_worker, (server.port, False)),
    ]
    caching = [
        Contender("Redis, tracking, a lean client", server.pid, redis_worker, (server.port, True)),
        Contender("Redis, redis-py's own cache", server.pid, redis_py_cache_worker, (server.port,)),
        Contender("Redis, coredis's own cache", server.pid, coredis_worker, (server.port,)),
    ]
    contenders = [ours, *uncached, *caching]
    rows = dict(zip([each.name for each in contenders], in_turn(contenders, skewed, ROUNDS), strict=True))
    if not skewed:
        with EtcdCluster(1) as etcd:
            uncached.append(Contender("etcd, linearizable", etcd.nodes[0].pid, etcd_worker, (etcd.url,)))
            rows[uncached[-1].name] = measure(uncached[-1], skewed)
    print(
        f"  {CLIENTS} client processes, one request in flight each, 99 reads to 1 write over {KEYS} keys, "
        f"reads {'by popularity (Zipf)' if skewed else 'spread evenly'}; medians of {ROUNDS} rounds in turn"
    )
    print(f"  {'CPU: microseconds a read':<38} {'reads/s':>10} {'client':>9} {'server':>9} {'both':>9}   ours is")
    mine = rows[ours.name]
    for name, row in rows.items():
        times = f"{mine.reads_per_s / row.reads_per_s:7.2f} x, by CPU {row.cpu_us / mine.cpu_us:.2f} x"
        print(f"  {name:<38} {row}   {times if row is not mine else ''}")
    spread = "by popularity" if skewed else "spread evenly"
    record(f"8 clients, {spread}", mine.reads_per_s, PER_SECOND)
    record(f"8 clients, {spread}, CPU per read", mine.cpu_us, "us")
    best = max((each.name for each in uncached), key=lambda name: rows[name].reads_per_s)
    print(
        f"  = {mine.reads_per_s / rows[best].reads_per_s:.1f} x the best uncached, which is {best!r} "
        f"({rows[best].cpu_us / mine.cpu_us:.1f} x by CPU)"
    )


def main() -> None:
    asyncio.run(hits())
    with tempfile.TemporaryDirectory(prefix="leasehold-bench-cache-") as folder:
        compare(Path(folder))


if __name__ == "__main__":
    main()
