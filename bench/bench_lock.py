"""Locks: ours against python etcd3, aetcd and the server-side Go mutex (v3lock RPC), on one real etcd, in one run."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc.aio
from rich.console import Console
from rich.table import Table

from bench import lock_line
from bench.lock_line import LineFigures
from bench.lock_peer import CONTENDED_S, CONTENDERS, SLICES, UNCONTENDED_S, Record
from bench.rows import PER_SECOND, record
from leasehold.concurrency import Mutex, Session
from leasehold.coord.connect import connect
from leasehold.testing.etcd import EtcdCluster

CACHE = Path(__file__).parent.parent / ".cache"
# python etcd3 does not import with a current protobuf, and with a current tenacity its waiters die.
PEERS = {"etcd3": ["etcd3==0.12.0", "protobuf<3.21", "tenacity<7"], "aetcd": ["aetcd==1.0.0"]}
WAITERS = (16, 64, 1000)
HAND_OVERS = 60

Figures = dict[str, float]
Act = Callable[[], Awaitable[object]]


class Contender:
    """One client with a lock: `lock()` and `unlock()`, whatever is behind them."""

    def __init__(self, lock: Act, unlock: Act, close: Act) -> None:
        self.lock, self.unlock, self.close = lock, unlock, close


async def ours(endpoint: str, name: str) -> Contender:
    coord = await connect(f"etcd://{endpoint}")
    session = await Session.open(coord)
    mutex = Mutex(session, name)

    async def close() -> None:
        await session.close()
        await coord.close()

    return Contender(mutex.lock, mutex.unlock, close)


async def go_mutex(endpoint: str, name: str) -> Contender:
    """Go's own `concurrency.Mutex`, run by etcd itself behind its Lock service."""
    channel = grpc.aio.insecure_channel(endpoint)
    take, give_back = await lock_line.go_lock(channel, name)
    held: list[bytes] = []

    async def lock() -> None:
        held.append(await take())

    async def unlock() -> None:
        await give_back(held.pop())

    return Contender(lock, unlock, channel.close)


Maker = Callable[[str, str], Awaitable[Contender]]


class Here:
    """A lock measured in this process."""

    def __init__(self, alone: Contender, together: list[Contender]) -> None:
        self._alone, self._together = alone, together
        self._record = Record()

    @classmethod
    async def open(cls, make: Maker, endpoint: str, name: str) -> Here:
        alone = await make(endpoint, f"bench-{name}")
        return cls(alone, [await make(endpoint, f"bench-{name}-8") for _ in range(CONTENDERS)])

    async def alone(self) -> None:
        record, start = self._record, time.perf_counter()
        while time.perf_counter() < start + UNCONTENDED_S / SLICES:
            await self._alone.lock()
            await self._alone.unlock()
            record.alone_count += 1
        record.alone_seconds += time.perf_counter() - start

    async def together(self) -> None:
        record, start = self._record, time.perf_counter()
        stop = start + CONTENDED_S / SLICES
        record.released_at = 0.0

        async def work(contender: Contender) -> None:
            while time.perf_counter() < stop:
                await contender.lock()
                record.entered()
                record.leaving()
                await contender.unlock()

        await asyncio.gather(*map(work, self._together))
        record.seconds += time.perf_counter() - start

    async def figures(self) -> Figures:
        return self._record.summary()

    async def close(self) -> None:
        for contender in (self._alone, *self._together):
            await contender.close()


class Elsewhere:
    """A peer in its own virtual environment in `.cache`, made when it is not there: see `lock_peer.py`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def open(cls, name: str, endpoint: str) -> Elsewhere:
        wanted = zlib.crc32(" ".join(PEERS[name]).encode())
        python = CACHE / f"peer-{name}-{wanted:08x}" / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(python.parent.parent)], check=True)
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PEERS[name]], check=True)
        host, _, port = endpoint.partition(":")
        command = [str(python), str(Path(__file__).parent / "lock_peer.py"), name, host, port]
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe))

    async def alone(self) -> None:
        await self._tell("alone")

    async def together(self) -> None:
        await self._tell("together")

    async def figures(self) -> Figures:
        return await self._tell("figures")

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def _tell(self, what: str) -> Figures:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{what}\n".encode())
        if not (line := await self._process.stdout.readline()):
            raise RuntimeError(f"a peer's process died: exit code {await self._process.wait()}")
        figures: Figures = json.loads(line)
        return figures


async def measure(endpoint: str) -> dict[str, Figures]:
    """Lock and unlock alone, then with eight contenders.

    In turns, a slice each, and another one first each time: whatever else the machine does meets all of them alike.
    """
    locks: dict[str, Here | Elsewhere] = {
        name: await Here.open(make, endpoint, name)
        for name, make in (("leasehold", ours), ("Go mutex (v3lock)", go_mutex))
    }
    locks |= {name: await Elsewhere.open(name, endpoint) for name in PEERS}
    for number in range(SLICES):
        in_turn = list(locks.values()) if number % 2 else list(reversed(locks.values()))
        for lock in in_turn:
            await lock.alone()
        for lock in in_turn:
            await lock.together()
    figures = {name: await lock.figures() for name, lock in locks.items()}
    for lock in locks.values():
        await lock.close()
    return figures


async def many_waiters(endpoint: str, etcd_pid: int) -> dict[tuple[str, int], LineFigures]:
    """Hand-overs at the head of queues of each length, ours and Go's."""
    found: dict[tuple[str, int], LineFigures] = {}
    for who, contender in (("leasehold", lock_line.ours), ("Go mutex (v3lock)", lock_line.go_mutex)):
        for count in WAITERS:
            async with contender(endpoint, f"bench-line-{count}") as join:
                found[who, count] = await lock_line.line(join, etcd_pid, count, HAND_OVERS)
    return found


def main() -> None:
    """Print the table, and the ratios that are promised."""
    with EtcdCluster(1) as cluster:
        endpoint = cluster.endpoints[0]
        rows = asyncio.run(measure(endpoint))
        waiting = asyncio.run(many_waiters(endpoint, cluster.nodes[0].pid))
    report(rows, waiting)


def report(rows: dict[str, Figures], waiting: dict[tuple[str, int], LineFigures]) -> None:
    table = Table(title="lock + unlock on one etcd")
    for heading in ("client", "alone/s", "8 contenders/s", "hand-over p50 ms", "p99 ms", "two inside"):
        table.add_column(heading, justify="left" if heading == "client" else "right")
    for name, row in rows.items():
        figures = [f"{row[key]:.1f}" for key in ("alone_per_s", "per_s", "p50_ms", "p99_ms")]
        table.add_row(name, *figures, f"{row['overlaps']:.0f}")
    console = Console(width=120)
    console.print(table)
    mine, go = rows["leasehold"], rows["Go mutex (v3lock)"]
    best = max(row["alone_per_s"] for name, row in rows.items() if name != "leasehold")
    console.print(f"alone: {mine['alone_per_s'] / best:.2f}x the best peer (promised: 1.0)")
    console.print(f"8 contenders: {mine['per_s'] / go['per_s']:.2f}x Go's throughput (promised: 2)")
    console.print(f"p99 hand-over: {mine['p99_ms'] / go['p99_ms']:.2f}x Go's (promised: at most 0.25)")
    lines = Table(title="a hand-over at the head of a line")
    for heading in ("client", "waiters", "median ms", "CPU here ms", "CPU of etcd ms"):
        lines.add_column(heading, justify="left" if heading == "client" else "right")
    for (who, count), took in waiting.items():
        cells = [f"{value:.2f}" for value in (took.hand_over_ms, took.client_cpu_ms, took.etcd_cpu_ms)]
        lines.add_row(who, str(count), *cells)
    console.print(lines)
    few, many = (waiting["leasehold", count].hand_over_ms for count in (WAITERS[1], WAITERS[-1]))
    console.print(f"hand-over with {WAITERS[-1]} waiters: {many / few:.2f}x that with {WAITERS[1]}")
    record_ours(mine, {count: took for (who, count), took in waiting.items() if who == "leasehold"})


def record_ours(mine: Figures, waiting: dict[int, LineFigures]) -> None:
    record("lock + unlock, alone", mine["alone_per_s"], PER_SECOND)
    record("lock + unlock, 8 contenders", mine["per_s"], PER_SECOND)
    record("hand-over, p50", mine["p50_ms"], "ms")
    record("hand-over, p99", mine["p99_ms"], "ms")
    for count, took in waiting.items():
        record(f"hand-over, {count} waiters", took.hand_over_ms, "ms")
        record(f"hand-over, {count} waiters, client CPU", took.client_cpu_ms, "ms")
        record(f"hand-over, {count} waiters, etcd CPU", took.etcd_cpu_ms, "ms")


if __name__ == "__main__":
    main()
