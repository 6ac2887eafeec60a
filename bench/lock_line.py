"""A hand-over at the head of a long line: what it takes, and of whose CPU, with however many behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc.aio
from msgspec import Struct

from leasehold.concurrency import Mutex, Session
from leasehold.coord.connect import connect
from leasehold.etcd.pb import lock_pb2, rpc_pb2
from leasehold.testing.grpc_stubs import lock_pb2_grpc, rpc_pb2_grpc
from leasehold.testing.process import cpu_s

CLIENTS = 4
WARM_UP = 3
QUIET_CORES = 0.15
SETTLE_S, SETTLE_ROUNDS_MAX = 1.0, 30

# Waits for the lock, runs the body, releases.
Turn = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]
Join = Callable[[int], Awaitable[Turn]]


class LineFigures(Struct, frozen=True):
    """Of one hand-over: its median duration, and the CPU that it took on either side."""

    hand_over_ms: float
    client_cpu_ms: float
    etcd_cpu_ms: float


class _Line:
    """From the end of one body to the begin of the next; and the CPU between the first of them and the last."""

    def __init__(self, etcd_pid: int, hand_overs: int, body_s: float) -> None:
        self._etcd_pid = etcd_pid
        self._wanted = hand_overs
        self._body_s = body_s
        self._left_at = 0.0
        self._samples: list[tuple[float, float, float, int]] = []
        self.spans: list[float] = []
        self.done = asyncio.Event()

    async def body(self) -> None:
        if self._left_at:
            self.spans.append(time.perf_counter() - self._left_at)
        if len(self.spans) in (WARM_UP, self._wanted):
            self._samples.append((time.perf_counter(), time.process_time(), cpu_s(self._etcd_pid), len(self.spans)))
        if len(self.spans) == self._wanted:
            self.done.set()
        await asyncio.sleep(self._body_s)
        self._left_at = time.perf_counter()

    def figures(self, idle: tuple[float, float]) -> LineFigures:
        """`idle` is what both processes take when nothing is handed over, in cores: a thousand sessions are renewed."""
        (begun_s, client_s, etcd_s, first), (end_s, client_end_s, etcd_end_s, last) = self._samples[:2]
        ordered = sorted(self.spans[WARM_UP : self._wanted])
        per_ms, took_s = 1000 / (last - first), end_s - begun_s
        return LineFigures(
            ordered[len(ordered) // 2] * 1000,
            (client_end_s - client_s - idle[0] * took_s) * per_ms,
            (etcd_end_s - etcd_s - idle[1] * took_s) * per_ms,
        )


async def line(join: Join, etcd_pid: int, waiters: int, hand_overs: int, body_s: float = 0.0) -> LineFigures:
    """The first `hand_overs` of a line of `waiters`, each of which wants the lock once."""
    measured = _Line(etcd_pid, min(hand_overs, waiters - 1), body_s)
    holding, go = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        holding.set()
        await go.wait()

    tasks = [asyncio.ensure_future((await join(0))(hold))]
    await holding.wait()
    for number in range(waiters):
        turn = await join(number + 1)
        tasks.append(asyncio.ensure_future(turn(measured.body)))
    idle = await _quiet(etcd_pid)
    go.set()
    await measured.done.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return measured.figures(idle)


async def _quiet(etcd_pid: int) -> tuple[float, float]:
    """Until all of them wait, which takes a thousand longer than to join. What both take then, in cores."""
    for _ in range(SETTLE_ROUNDS_MAX):
        before_s, etcd_before_s = time.process_time(), cpu_s(etcd_pid)
        await asyncio.sleep(SETTLE_S)
        idle = (time.process_time() - before_s) / SETTLE_S, (cpu_s(etcd_pid) - etcd_before_s) / SETTLE_S
        if sum(idle) < QUIET_CORES:
            break
    return idle


@asynccontextmanager
async def ours(endpoint: str, name: str) -> AsyncIterator[Join]:
    clients = [await connect(f"etcd://{endpoint}") for _ in range(CLIENTS)]
    sessions: list[Session] = []

    async def join(number: int) -> Turn:
        session = await Session.open(clients[number % CLIENTS])
        sessions.append(session)

        async def turn(body: Callable[[], Awaitable[None]]) -> None:
            async with Mutex(session, name):
                await body()

        return turn

    yield join
    await asyncio.gather(*(session.close() for session in sessions))
    for client in clients:
        await client.close()


async def go_lock(
    channel: grpc.aio.Channel, name: str
) -> tuple[Callable[[], Awaitable[bytes]], Callable[[bytes], Awaitable[None]]]:
    """Go's lock `name` under a lease of its own: how to lock it, which returns the key, and how to unlock that key."""
    stub = lock_pb2_grpc.LockStub(channel)  # type: ignore[no-untyped-call]  # generated code has no types
    granted = await rpc_pb2_grpc.LeaseStub(channel).LeaseGrant(rpc_pb2.LeaseGrantRequest(TTL=600))  # type: ignore[no-untyped-call]  # as above

    async def lock() -> bytes:
        key: bytes = (await stub.Lock(lock_pb2.LockRequest(name=name.encode(), lease=granted.ID))).key
        return key

    async def unlock(key: bytes) -> None:
        await stub.Unlock(lock_pb2.UnlockRequest(key=key))

    return lock, unlock


@asynccontextmanager
async def go_mutex(endpoint: str, name: str) -> AsyncIterator[Join]:
    """Go's own `concurrency.Mutex`, run by etcd itself behind its Lock service: of its CPU, both halves are etcd's."""
    own = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(endpoint, own) for _ in range(CLIENTS)]

    async def join(number: int) -> Turn:
        lock, unlock = await go_lock(channels[number % CLIENTS], name)

        async def turn(body: Callable[[], Awaitable[None]]) -> None:
            key = await lock()
            await body()
            await unlock(key)

        return turn

    yield join
    for channel in channels:
        await channel.close()
