"""A process of `bench_adapters`: reads or writes one value through one library. Commands come on standard input.

python -m bench.adapters_worker KIND ADDRESS read     reads in a loop until "stop"; prints what it has seen as JSON
python -m bench.adapters_worker KIND ADDRESS write    "N" writes the number N; prints when that was acknowledged
"""

from __future__ import annotations

import asyncio
import json
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

KEY = "limit"
KEPT = 2_000  # the last reads of each value; more stale reads of one value are not counted
Get = Callable[[], int]


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def django_cache(backend: str, location: str) -> Any:
    from django.conf import settings

    settings.configure(CACHES={"default": {"BACKEND": backend, "LOCATION": location, "TIMEOUT": None}})
    from django.core.cache import cache

    return cache


class Seen:
    """When each value was read: the start of the last reads, and how many reads there were."""

    def __init__(self) -> None:
        self._starts: dict[int, deque[int]] = {}
        self._reads = 0
        self._cpu_s = time.process_time()
        self._began_s = time.perf_counter()

    def note(self, started_ns: int, value: int) -> None:
        self._reads += 1
        self._starts.setdefault(value, deque(maxlen=KEPT)).append(started_ns)

    def report(self) -> str:
        seconds = time.perf_counter() - self._began_s
        cpu_s = time.process_time() - self._cpu_s
        starts = {value: list(each) for value, each in self._starts.items()}
        return json.dumps({"reads": self._reads, "seconds": seconds, "cpu_s": cpu_s, "starts": starts})


def read_in_a_loop(get: Get) -> None:
    print("ready", flush=True)
    get()
    seen = Seen()
    while True:
        for _ in range(200):
            started_ns = now_ns()
            seen.note(started_ns, get())
        if select.select([sys.stdin], [], [], 0)[0]:
            break
    print(seen.report(), flush=True)


async def read_in_a_loop_async(get: Callable[[], Awaitable[int]]) -> None:
    stop = threading.Event()

    def wait_for_stop() -> None:
        sys.stdin.readline()
        stop.set()

    threading.Thread(target=wait_for_stop, daemon=True).start()
    print("ready", flush=True)
    await get()
    seen = Seen()
    while not stop.is_set():
        for _ in range(200):
            started_ns = now_ns()
            seen.note(started_ns, await get())
        await asyncio.sleep(0)  # an application that only reads must yield, in each of the libraries
    print(seen.report(), flush=True)


def write_on_command(put: Callable[[int], object]) -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        put(int(line))
        print(now_ns(), flush=True)


def redis_py(address: str, tracking: bool) -> Any:
    import redis
    from redis.cache import CacheConfig
    from redis.connection import CacheProxyConnection

    # redis-py requires 7.4; the commands that it uses exist since Redis 6.
    CacheProxyConnection.MIN_ALLOWED_VERSION = "7.0.0"
    return redis.Redis.from_url(address, protocol=3, cache_config=CacheConfig() if tracking else None)


def main(kind: str, address: str, role: str) -> None:
    if kind in ("leasehold, Django", "django-redis"):
        ours = kind.startswith("leasehold")
        backend = "leasehold.contrib.django.LeaseholdCache" if ours else "django_redis.cache.RedisCache"
        cache = django_cache(backend, address)
        if role == "read":
            read_in_a_loop(lambda: int(cache.get(KEY, -1)))
        else:
            write_on_command(lambda number: cache.set(KEY, number))
    elif role == "write" and "redis" in address:
        writer = redis_py(address, tracking=False)
        write_on_command(lambda number: writer.set(KEY, number))
    elif kind.startswith("redis-py"):
        client = redis_py(address, tracking=True)
        read_in_a_loop(lambda: int(client.get(KEY) or -1))
    elif kind.startswith("coredis"):
        asyncio.run(coredis_reader(address))
    else:
        asyncio.run(aiocache(address, role))


async def coredis_reader(address: str) -> None:
    import coredis
    from coredis.patterns.cache import LRUCache

    host, _, port = address.removeprefix("redis://").rpartition(":")
    async with coredis.Redis(host=host, port=int(port), cache=LRUCache()) as client:

        async def get() -> int:
            return int(await client.get(KEY) or -1)

        await read_in_a_loop_async(get)


async def aiocache(address: str, role: str) -> None:
    from leasehold.contrib.aiocache import LeaseholdCache

    async with LeaseholdCache(address) as cache:
        if role == "read":

            async def get() -> int:
                return int(await cache.get(KEY, -1))

            await read_in_a_loop_async(get)
            return
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            await cache.set(KEY, int(line))
            print(now_ns(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
