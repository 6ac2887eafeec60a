"""One peer's lock, measured in its own virtual environment: `python lock_peer.py PEER HOST PORT`.

Stands alone: it imports nothing of ours. Each input line (`alone`, `together`, `figures`) is a command, answered with a
line of JSON. The first two run one slice of the measurement, so that all clients that are compared can take turns.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from typing import Any

UNCONTENDED_S = 3.0
CONTENDED_S = 6.0
CONTENDERS = 8
SLICES = 12
WAIT_S = 1  # python etcd3 sometimes misses a deletion and would wait forever


class Record:
    """Hand-overs seen in one process: from the moment of letting go to the moment when another one has it."""

    def __init__(self) -> None:
        self.released_at = 0.0
        self.hand_overs: list[float] = []
        self.count = 0
        self.inside = 0
        self.overlaps = 0
        self.seconds = 0.0
        self.alone_count = 0
        self.alone_seconds = 0.0

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

    def summary(self) -> dict[str, float]:
        ordered = sorted(self.hand_overs) or [0.0]
        return {
            "alone_per_s": self.alone_count / self.alone_seconds,
            "per_s": self.count / self.seconds,
            "p50_ms": ordered[len(ordered) // 2] * 1000,
            "p99_ms": ordered[int(len(ordered) * 0.99)] * 1000,
            "overlaps": self.overlaps,
        }


class Etcd3:
    """python etcd3: threads."""

    def __init__(self, host: str, port: int) -> None:
        import etcd3  # type: ignore[import-not-found]  # it lives in this peer's own environment

        self._clients = [etcd3.client(host=host, port=port) for _ in range(CONTENDERS)]

    def alone(self, stop: float, record: Record) -> None:
        while time.perf_counter() < stop:
            lock = self._clients[0].lock("bench-etcd3", ttl=60)
            lock.acquire(timeout=10)
            lock.release()
            record.alone_count += 1

    def together(self, stop: float, record: Record) -> None:
        threads = [threading.Thread(target=self._work, args=(client, stop, record)) for client in self._clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self, client: Any, stop: float, record: Record) -> None:
        while time.perf_counter() < stop:
            lock = client.lock("bench-etcd3-8", ttl=60)
            if lock.acquire(timeout=WAIT_S):
                record.entered()
                record.leaving()
                lock.release()


class Aetcd:
    """aetcd: tasks on one loop."""

    def __init__(self, host: str, port: int) -> None:
        import aetcd  # type: ignore[import-not-found]  # it lives in this peer's own environment

        self._runner = asyncio.Runner()
        self._clients = self._runner.run(self._open(aetcd, host, port))

    @staticmethod
    async def _open(aetcd: Any, host: str, port: int) -> list[Any]:
        return [aetcd.Client(host=host, port=port) for _ in range(CONTENDERS)]

    def alone(self, stop: float, record: Record) -> None:
        self._runner.run(self._alone(stop, record))

    async def _alone(self, stop: float, record: Record) -> None:
        while time.perf_counter() < stop:
            lock = self._clients[0].lock(b"bench-aetcd", ttl=60)
            await lock.acquire(timeout=10)
            await lock.release()
            record.alone_count += 1

    def together(self, stop: float, record: Record) -> None:
        self._runner.run(self._together(stop, record))

    async def _together(self, stop: float, record: Record) -> None:
        await asyncio.gather(*(self._work(client, stop, record) for client in self._clients))

    async def _work(self, client: Any, stop: float, record: Record) -> None:
        while time.perf_counter() < stop:
            lock = client.lock(b"bench-aetcd-8", ttl=60)
            if await lock.acquire(timeout=WAIT_S):
                record.entered()
                record.leaving()
                await lock.release()


def main() -> None:
    peer, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    locks = Etcd3(host, port) if peer == "etcd3" else Aetcd(host, port)
    record = Record()
    for line in sys.stdin:
        start = time.perf_counter()
        if line.strip() == "alone":
            locks.alone(start + UNCONTENDED_S / SLICES, record)
            record.alone_seconds += time.perf_counter() - start
        elif line.strip() == "together":
            record.released_at = 0.0
            locks.together(start + CONTENDED_S / SLICES, record)
            record.seconds += time.perf_counter() - start
        print(json.dumps(record.summary() if line.strip() == "figures" else {}), flush=True)


if __name__ == "__main__":
    main()
