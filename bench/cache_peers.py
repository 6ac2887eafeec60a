"""Clients of Redis with client-side caching, as people use them, and stale reads counted on one key.

None of the Redis clients is coherent: between an acknowledged write and the arrival of its invalidation a reader gets
the old value. `stale_worker` counts such reads.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import coredis
import redis
import uvloop
from coredis.patterns.cache import LRUCache
from redis.cache import CacheConfig
from redis.connection import CacheProxyConnection

from bench.clients.redis_tracking import RedisClient
from bench.workers import Start
from leasehold.cache import Client
from leasehold.cache.sync import SyncClient

Get = Callable[[bytes], Awaitable[bytes | None]]
HOT = b"hot"
STALE_S = 1.0
# redis-py refuses to cache with servers older than this; the protocol is the same since Redis 6.
CacheProxyConnection.MIN_ALLOWED_VERSION = "6.0.0"


def redis_py(port: int) -> redis.Redis:
    """redis-py with its own cache."""
    return redis.Redis(port=port, protocol=3, cache_config=CacheConfig(max_size=10_000))


@asynccontextmanager
async def opened_coredis(port: int) -> AsyncIterator[coredis.Redis[bytes]]:
    """coredis with its own cache."""
    async with coredis.Redis(port=port, cache=LRUCache(max_keys=10_000)) as client:
        yield client


# --- stale reads ---


class Writer(threading.Thread):
    """Writes 1, 2, 3... to one key; `acknowledged` is the last number whose write was answered."""

    def __init__(self, put: Callable[[bytes, bytes], object]) -> None:
        super().__init__(daemon=True)
        self.acknowledged = 0
        self.going = True
        self._put = put

    def run(self) -> None:
        while self.going:
            self._put(HOT, b"%d" % (self.acknowledged + 1))
            self.acknowledged += 1
            time.sleep(0.001)


@asynccontextmanager
async def _reader(kind: str, where: str) -> AsyncIterator[Get]:
    if kind == "leasehold":
        async with Client(where) as client:
            yield client.get
    elif kind == "lean":
        lean = await RedisClient.open(int(where), tracked=True)
        yield lean.get  # type: ignore[misc]  # its values are bytes
        lean.close()
    elif kind == "coredis":
        async with opened_coredis(int(where)) as other:
            yield other.get
    else:
        client_py = redis_py(int(where))

        async def get(key: bytes) -> bytes | None:
            value = client_py.get(key)
            assert value is None or isinstance(value, bytes)
            return value

        yield get
        client_py.close()


def stale_worker(number: int, start: Start, kind: str, where: str) -> tuple[int, int, int]:
    """Read one key while a thread writes it: (reads, writes, reads that were older than an acknowledged write)."""
    put = SyncClient(where).put if kind == "leasehold" else redis.Redis(port=int(where)).set
    put(HOT, b"0")

    async def run() -> tuple[int, int, int]:
        reader: AbstractAsyncContextManager[Get] = _reader(kind, where)
        async with reader as get:
            await get(HOT)
            writer = Writer(put)
            start.wait()
            writer.start()
            reads = stale = 0
            end_s = time.perf_counter() + STALE_S
            while time.perf_counter() < end_s:
                wanted = writer.acknowledged
                stale += int(await get(HOT) or b"0") < wanted
                reads += 1
                await asyncio.sleep(0)  # lets the loop read invalidations
            writer.going = False
            await asyncio.to_thread(writer.join)
            return reads, writer.acknowledged, stale

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())
