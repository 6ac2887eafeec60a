"""Our client against bare grpc.aio stubs, on one real etcd: 1 and 64 calls in flight.

Rounds of both alternate, and so does the order within a round, so that other load on the machine affects both equally.
The result is the median. The CPU time of a call is the more stable of the two figures on a busy machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from statistics import median

import grpc.aio

import leasehold
from bench.rows import PER_SECOND, record
from leasehold.etcd.pb import rpc_pb2
from leasehold.mvcc.model import Put
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.grpc_stubs import rpc_pb2_grpc

ROUNDS = 16
ROUND_S = 0.15
AIM = 0.95
Call = Callable[[], Awaitable[object]]


async def run_round(call: Call, in_flight: int) -> tuple[float, float]:
    """Calls a second, and microseconds of this process's CPU a call, over one round."""
    done = 0
    end = time.perf_counter() + ROUND_S

    async def worker() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await call()
            done += 1

    start, start_cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return done / (time.perf_counter() - start), (time.process_time() - start_cpu) / done * 1e6


async def measure() -> None:
    async with (
        EtcdCluster(1) as cluster,
        await leasehold.connect(cluster.url) as client,
        grpc.aio.insecure_channel(cluster.endpoints[0]) as channel,
    ):
        kv = rpc_pb2_grpc.KVStub(channel)  # type: ignore[no-untyped-call]  # generated

        # Like ours, the bare calls build a new request each time, as a program does.
        def bare_put() -> Awaitable[object]:
            return kv.Put(rpc_pb2.PutRequest(key=b"key", value=b"value"), timeout=5)  # type: ignore[no-any-return]  # untyped stubs

        def bare_get() -> Awaitable[object]:
            return kv.Range(rpc_pb2.RangeRequest(key=b"key"), timeout=5)  # type: ignore[no-any-return]  # untyped stubs

        def bare_txn() -> Awaitable[object]:
            op = rpc_pb2.RequestOp(request_put=rpc_pb2.PutRequest(key=b"key", value=b"value"))
            return kv.Txn(rpc_pb2.TxnRequest(success=[op]), timeout=5)  # type: ignore[no-any-return]  # untyped stubs

        pairs: dict[str, tuple[Call, Call]] = {
            "put": (lambda: client.put(b"key", b"value"), bare_put),
            "get": (lambda: client.get(b"key"), bare_get),
            "txn": (lambda: client.txn((), [Put(b"key", b"value")]), bare_txn),
        }
        print(f"{cluster.binary}: calls a second, median of {ROUNDS} alternating rounds")
        print(f"{'':6}{'':10}{'calls a second':^31}{'CPU a call, us':^31}")
        heads = ("in flight", "leasehold", "bare", "ratio", "leasehold", "bare", "ratio")
        print("{:6}{:>10}{:>12}{:>12}{:>7}{:>14}{:>10}{:>7}".format("", *heads))
        for name, (ours, bare) in pairs.items():
            for in_flight in (1, 64):
                await compare(name, ours, bare, in_flight)


async def compare(name: str, ours: Call, bare: Call, in_flight: int) -> None:
    """One line of the table: both in alternating rounds."""
    await run_round(ours, in_flight)
    await run_round(bare, in_flight)
    measured: dict[Call, list[tuple[float, float]]] = {ours: [], bare: []}
    for number in range(ROUNDS):
        for call in (ours, bare) if number % 2 else (bare, ours):
            measured[call].append(await run_round(call, in_flight))
    (our_rate, our_cpu), (bare_rate, bare_cpu) = (
        (median(rate for rate, _ in measured[call]), median(cpu for _, cpu in measured[call])) for call in (ours, bare)
    )
    ratio, cpu_ratio = our_rate / bare_rate, bare_cpu / our_cpu
    note = "" if in_flight == 1 or max(ratio, cpu_ratio) >= AIM else f"  below the aim of {AIM}"
    print(
        f"{name:6}{in_flight:>10}{our_rate:>12,.0f}{bare_rate:>12,.0f}{ratio:>7.2f}"
        f"{our_cpu:>14,.0f}{bare_cpu:>10,.0f}{cpu_ratio:>7.2f}{note}"
    )
    record(f"{name}, {in_flight} in flight", our_rate, PER_SECOND)
    record(f"{name}, {in_flight} in flight, client CPU", our_cpu, "us")


def main() -> None:
    asyncio.run(measure())


if __name__ == "__main__":
    main()
