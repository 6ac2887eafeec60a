"""One peer's lock, measured in its own virtual environment: `python lock_peer.py PEER HOST PORT`. Prints JSON.

Stands alone: it imports nothing of ours. `measure` in `bench_lock.py` does the same for the async clients.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time

UNCONTENDED_S = 1.5
CONTENDED_S = 3.0
CONTENDERS = 8


class Record:
    """Hand-overs seen in one process: from the moment of letting go to the moment when another one has it."""

    def __init__(self) -> None:
        self.released_at = 0.0
        self.hand_overs: list[float] = []
        self.count = 0
        self.inside = 0
        self.overlaps = 0

    def entered(self) -> None:
        now = time.perf_counter()
        self.inside += 1
        self.overlaps += self.inside > 1
        if self.released_at:
            self.hand_overs.append(now - self.released_at)
        self.count += 1

    def leaving(self) -> None:
        self.inside -= 1
        self.released_at = time.perf_counter()

    def summary(self, seconds: float) -> dict[str, float]:
        ordered = sorted(self.hand_overs) or [0.0]
        return {
            "per_s": self.count / seconds,
            "p50_ms": ordered[len(ordered) // 2] * 1000,
            "p99_ms": ordered[int(len(ordered) * 0.99)] * 1000,
            "overlaps": self.overlaps,
        }


def measure_etcd3(host: str, port: int) -> dict[str, float]:
    import etcd3  # type: ignore[import-not-found]  # it lives in this peer's own environment

    client = etcd3.client(host=host, port=port)
    count, start = 0, time.perf_counter()
    while time.perf_counter() < start + UNCONTENDED_S:
        lock = client.lock("bench-etcd3", ttl=60)
        lock.acquire(timeout=10)
        lock.release()
        count += 1
    alone = count / (time.perf_counter() - start)
    record = Record()
    stop = time.perf_counter() + CONTENDED_S

    def work() -> None:
        mine = etcd3.client(host=host, port=port)
        while time.perf_counter() < stop:
            lock = mine.lock("bench-etcd3-8", ttl=60)
            if lock.acquire(timeout=10):
                record.entered()
                record.leaving()
                lock.release()

    threads = [threading.Thread(target=work) for _ in range(CONTENDERS)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"alone_per_s": alone, **record.summary(time.perf_counter() - start)}


async def measure_aetcd(host: str, port: int) -> dict[str, float]:
    import aetcd  # type: ignore[import-not-found]  # it lives in this peer's own environment

    client = aetcd.Client(host=host, port=port)
    count, start = 0, time.perf_counter()
    while time.perf_counter() < start + UNCONTENDED_S:
        lock = client.lock(b"bench-aetcd", ttl=60)
        await lock.acquire(timeout=10)
        await lock.release()
        count += 1
    alone = count / (time.perf_counter() - start)
    record = Record()
    stop = time.perf_counter() + CONTENDED_S

    async def work() -> None:
        mine = aetcd.Client(host=host, port=port)
        while time.perf_counter() < stop:
            lock = mine.lock(b"bench-aetcd-8", ttl=60)
            if await lock.acquire(timeout=10):
                record.entered()
                record.leaving()
                await lock.release()

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(CONTENDERS)))
    return {"alone_per_s": alone, **record.summary(time.perf_counter() - start)}


if __name__ == "__main__":
    peer, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    figures = measure_etcd3(host, port) if peer == "etcd3" else asyncio.run(measure_aetcd(host, port))
    print(json.dumps(figures))
