"""The store beside a real etcd, in one run and turn by turn: served over gRPC, embedded in process, and in memory.

Every figure is the median of several short turns, taken alternately, so that a busy machine is busy for both.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import leasehold
from bench.rows import PER_SECOND, record
from leasehold.coord.api import Coord
from leasehold.mvcc.model import Compare, CompareResult, CompareTarget, Put, Range
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.store import StoreProcess

TURNS = 5
TURN_S = 0.25
FLIGHTS = (1, 64)
VALUE = b"v" * 100

Action = Callable[[Coord, int], Awaitable[object]]


async def _put(client: Coord, number: int) -> object:
    return await client.put(b"/bench/%d" % (number % 1000), VALUE)


async def _get(client: Coord, number: int) -> object:
    return await client.get(b"/bench/%d" % (number % 1000))


async def _txn(client: Coord, number: int) -> object:
    key = b"/bench/%d" % (number % 1000)
    there = Compare(key, CompareTarget.VERSION, CompareResult.GREATER, 0)
    return await client.txn([there], [Put(key, VALUE)], [Range(key)])


ACTIONS: dict[str, Action] = {"put": _put, "get": _get, "txn": _txn}


async def rate(client: Coord, action: Action, in_flight: int, turn_s: float = TURN_S) -> float:
    """Calls a second with `in_flight` of them under way."""
    done = 0
    end = time.perf_counter() + turn_s

    async def loop(number: int) -> None:
        nonlocal done
        while time.perf_counter() < end:
            await action(client, number)
            number += in_flight
            done += 1

    begun = time.perf_counter()
    await asyncio.gather(*(loop(number) for number in range(in_flight)))
    return done / (time.perf_counter() - begun)


async def watch_latency_ms(client: Coord, rounds: int = 60) -> float:
    """From the sending of a put to its event at a watcher, median."""
    taken: list[float] = []
    async with client.watch(b"/watch") as watch:
        await watch.ready()
        for _ in range(rounds):
            begun = time.perf_counter()
            put = asyncio.ensure_future(client.put(b"/watch", VALUE))
            await anext(watch)
            taken.append((time.perf_counter() - begun) * 1000)
            await put
    return statistics.median(taken)


async def compare(title: str, ours: Coord, theirs: Coord) -> None:
    """One table: ours, a real etcd's, the ratio."""
    print(f"{title:<34}{'ours':>12}{'etcd 3.5.1':>12}{'ratio':>8}")
    for name, action in ACTIONS.items():
        for in_flight in FLIGHTS:
            for client in (ours, theirs):
                await rate(client, action, in_flight, 0.1)
            turns = [(await rate(ours, action, in_flight), await rate(theirs, action, in_flight)) for _ in range(TURNS)]
            mine, others = (statistics.median(side) for side in zip(*turns, strict=True))
            label = f"  {name}/s, {in_flight} in flight"
            print(f"{label:<34}{mine:>12,.0f}{others:>12,.0f}{mine / others:>7.2f}x")
            record(f"{title.split()[0]}: {name}, {in_flight} in flight", mine, PER_SECOND)
    mine, others = await watch_latency_ms(ours), await watch_latency_ms(theirs)
    print(f"{'  put to event, ms (median)':<34}{mine:>12.2f}{others:>12.2f}{others / mine:>7.2f}x")
    record(f"{title.split()[0]}: put to event", mine, "ms")


async def _memory() -> None:
    async with await leasehold.connect("memory://") as client:
        await rate(client, _txn, 1, 0.2)
        best = [await rate(client, _txn, 1, 0.4) for _ in range(TURNS)]
    print(f"{'memory:// txn/s (aim 50,000)':<34}{statistics.median(best):>12,.0f}")
    record("memory: txn, 1 in flight", statistics.median(best), PER_SECOND)


async def _run(folder: Path) -> None:
    with EtcdCluster(1) as cluster, StoreProcess(data_dir=folder / "served") as store:
        theirs = await leasehold.connect(cluster.url)
        served = await leasehold.connect(store.url)
        embedded = await leasehold.connect(f"embedded://{folder / 'embedded'}")
        await compare("served over gRPC (aim 0.5x)", served, theirs)
        await compare("embedded in process (aim 2x)", embedded, theirs)
        for client in (theirs, served, embedded):
            await client.close()
    await _memory()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="leasehold-bench-") as folder:
        asyncio.run(_run(Path(folder)))


if __name__ == "__main__":
    main()
