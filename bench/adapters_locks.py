"""Locks through the interfaces that programs use: lock and unlock alone, and four threads that contend."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

import leasehold.sync
from leasehold.concurrency import sync as blocking
from leasehold.contrib import etcd3
from leasehold.testing.process import cpu_s

ALONE_S = 1.5
TOGETHER_S = 2.0
CONTENDERS = 4
TTL_S = 30


class LockFigures(Struct, frozen=True):
    """Locks a second alone and with four contenders, microseconds of CPU per lock on both sides, alone, and fairness.

    `busiest` is the part of the contended locks that the luckiest of the four got: 0.25 is fair.
    """

    alone_per_s: float
    cpu_us: float
    together_per_s: float
    busiest: float


class Lock(Struct, frozen=True):
    """One client with a lock."""

    acquire: Callable[[], object]
    release: Callable[[], object]
    close: Callable[[], object]


def ours(url: str, name: str) -> Lock:
    store = leasehold.sync.connect(url)
    session = blocking.Session.open(store, ttl_s=TTL_S)
    mutex = blocking.Mutex(session, name)

    def close() -> None:
        session.close()
        store.close()

    return Lock(mutex.lock, mutex.unlock, close)


def our_etcd3(url: str, name: str) -> Lock:
    client = etcd3.client(host="127.0.0.1", port=int(url.rpartition(":")[2]))
    lock = client.lock(name, ttl=TTL_S)
    return Lock(lambda: lock.acquire(timeout=60), lock.release, client.close)


def redis_py(url: str, name: str) -> Lock:
    import redis

    client = redis.Redis.from_url(url)
    lock = client.lock(name, timeout=TTL_S, thread_local=False)
    return Lock(lock.acquire, lock.release, client.close)


def tooz(url: str, name: str) -> Lock:
    from tooz import coordination

    coordinator: Any = coordination.get_coordinator(url, f"{name}-{threading.get_ident()}-{time.time_ns()}".encode())
    coordinator.start()
    lock = coordinator.get_lock(name.encode())
    return Lock(lock.acquire, lock.release, coordinator.stop)


def measure(make: Callable[[str, str], Lock], url: str, server_pid: int, name: str) -> LockFigures:
    lock = make(url, f"{name}-alone")
    lock.acquire()
    lock.release()
    used_s, began_s, count = time.process_time() + cpu_s(server_pid), time.perf_counter(), 0
    while time.perf_counter() < began_s + ALONE_S:
        lock.acquire()
        lock.release()
        count += 1
    seconds = time.perf_counter() - began_s
    cpu_us = (time.process_time() + cpu_s(server_pid) - used_s) / count * 1e6
    lock.close()
    return LockFigures(count / seconds, cpu_us, *_together(make, url, name))


def _together(make: Callable[[str, str], Lock], url: str, name: str) -> tuple[float, float]:
    """Locks a second of four threads, and the part of the luckiest."""
    locks = [make(url, f"{name}-together") for _ in range(CONTENDERS)]
    counts = [0] * CONTENDERS
    end_s = time.perf_counter() + TOGETHER_S

    def work(number: int) -> None:
        while time.perf_counter() < end_s:
            locks[number].acquire()
            locks[number].release()
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CONTENDERS)]
    began_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began_s
    for lock in locks:
        lock.close()
    return sum(counts) / seconds, max(counts) / sum(counts)
