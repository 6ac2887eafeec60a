"""Traces the path of one operation through the packages, and counts how often it enters one.

    python -m leasehold.testing.walk put        one block for `put_start`, one for `put_end`
    python -m leasehold.testing.walk apply      a standby applies one batch
    python -m leasehold.testing.walk failover   the leader dies, a standby is promoted
    python -m leasehold.testing.walk lock       a mutex is taken and released
    python -m leasehold.testing.walk cache      a value is read through a cache client

The real code runs on `memory://`, in one process, under `sys.setprofile`. Definitions:

- A *package* is a top-level package of `leasehold`. `etcd`, `http2` and `store` count as `coord`, from which they were
  split.
- An *entry* is a call of a Python function whose nearest caller on the stack belongs to another package. A callback
  from the event loop has no such caller and counts as an entry too.
- `base`, `runtime`, `mvcc`, code generated at run time and third-party code are transparent: calls into them do not
  count, and a call that they make counts as made by their caller. So does this module.

Each operation runs several times, and the shortest path is printed: a heartbeat may fall into one of the runs.
At commit fa642a5 this counts 34 entries for `put_start` and 34 for `put_end`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType
from typing import Any, Final

import structlog
import uvloop
from msgspec import Struct

from leasehold.cache import Authority, CacheServer, Client, MemoryStore
from leasehold.concurrency import Mutex, Session
from leasehold.coord.api import Coord
from leasehold.coord.connect import connect
from leasehold.ha.effects import ChangeRole, DrainBuffer, ForgetBuffer, PushBuffer, ReadSnapshot, Role, WriteSnapshot
from leasehold.ha.events import Decided, SnapshotRead, SnapshotStored, Started
from leasehold.ha.keys import EndMarker, end_epoch
from leasehold.ha.machine import Identity, NodeMachine
from leasehold.ha.settings import HaSettings
from leasehold.index.index import Index
from leasehold.index.settings import IndexSettings
from leasehold.node.service.functions import MasterService
from leasehold.node.worker.driver import Driver
from leasehold.runtime.clock import BootClock
from leasehold.testing.waiting import until
from leasehold.wire import messages as m
from leasehold.wire.answers import Waiting
from leasehold.wire.body import pack
from leasehold.wire.frame import request
from leasehold.wire.server import Server, listen
from leasehold.wire.tables import NEWEST

RUNS: Final = 3
CLUSTER: Final = "walk"
WRITER, STORAGE = b"w" * 16, b"s" * 16
_TRANSPARENT: Final = frozenset({"base", "runtime", "mvcc", "testing"})
_SPLIT_FROM: Final = {"etcd": "coord", "http2": "coord", "store": "coord"}


class Entry(Struct, frozen=True):
    """One call that crossed from a package into another. `depth` is how many such crossings are on the stack."""

    package: str
    function: str
    depth: int


class Path(Struct, frozen=True):
    """The entries of one operation, in order."""

    operation: str
    entries: tuple[Entry, ...]

    def __str__(self) -> str:
        lines = [f"  {'  ' * entry.depth}{entry.package}: {entry.function}" for entry in self.entries]
        return "\n".join([self.operation, *lines, f"{len(self.entries)} package entries"])


class Tracer:
    """Collects entries while `tracing`."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    @contextmanager
    def tracing(self) -> Iterator[None]:
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        package = _package_of(frame)
        if event != "call" or package is None:
            return
        callers = list(_callers(frame))
        if not callers or callers[0] != package:
            depth = sum(one != other for one, other in pairwise(callers)) + bool(callers)
            self.entries.append(Entry(package, frame.f_code.co_qualname, depth))


def _package_of(frame: FrameType) -> str | None:
    """The package that a frame counts for; None if it is transparent."""
    module: str = frame.f_globals.get("__name__") or ""
    if not module.startswith("leasehold."):
        return None
    top = module.split(".")[1]
    return None if top in _TRANSPARENT else _SPLIT_FROM.get(top, top)


def _callers(frame: FrameType) -> Iterator[str]:
    """The packages on the stack below a frame, the nearest first."""
    back = frame.f_back
    while back is not None:
        if (package := _package_of(back)) is not None:
            yield package
        back = back.f_back


async def trace(operation: str, run: Callable[[Tracer], Awaitable[None]]) -> Path:
    """The shortest of several traced runs. `run` decides which part of itself is traced."""
    shortest: list[Entry] | None = None
    for _ in range(RUNS):
        tracer = Tracer()
        await run(tracer)
        if shortest is None or len(tracer.entries) < len(shortest):
            shortest = tracer.entries
    return Path(operation, tuple(shortest or ()))


# --- a node in this process ---


class _NoFiles:
    """Implements the driver's `Keeper`: this node has no disk and no buffer."""

    def __init__(self) -> None:
        self.driver: Driver | None = None

    def read_snapshot(self, _: ReadSnapshot) -> None:
        self._tell_later(SnapshotRead(None))

    def write_snapshot(self, effect: WriteSnapshot) -> None:
        if effect.last:
            self._tell_later(SnapshotStored(effect.snapshot))

    def _tell_later(self, event: SnapshotRead | SnapshotStored) -> None:
        assert self.driver is not None
        asyncio.get_running_loop().call_soon(self.driver.tell, event)

    def push(self, _: PushBuffer) -> None: ...

    def forget(self, _: ForgetBuffer) -> None: ...

    def drain(self, _: DrainBuffer) -> None: ...


class WalkNode:
    """The real machine, driver, service and server over one store, without a guardian."""

    def __init__(self, coord: Coord, name: str) -> None:
        self.machine = NodeMachine(
            Identity(name, f"{name}-run", CLUSTER),
            HaSettings(),
            lambda: Index(IndexSettings(), random.Random(1).randrange),
        )
        clock = BootClock()
        files = _NoFiles()
        self.driver = files.driver = Driver(
            self.machine,
            coord,
            clock,
            keeper=files,
            on_role=self._on_role,
            on_answers=self._on_answers,
            on_fatal=self._on_fatal,
        )
        self.server = Server(self.machine.outbox)
        self._primary = asyncio.Event()
        self.driver.tell(Started())

    def _on_role(self, change: ChangeRole) -> None:
        if change.role is Role.PRIMARY:
            self._primary.set()

    def _on_answers(self, answers: list[Waiting]) -> None:
        self.server.release(answers)

    @staticmethod
    def _on_fatal(error: BaseException) -> None:
        raise error

    async def has_role(self, role: Role) -> None:
        await until(lambda: self.machine.role is role, f"{self.machine.identity.name} is {role.value}")

    async def promoted(self) -> None:
        await self._primary.wait()

    def serve(self) -> tuple[str, int]:
        """Serve clients on a free port."""
        service = MasterService(self.machine.serving, NEWEST)
        return self.server.serve(listen("127.0.0.1", 0), service.handlers(), NEWEST).address

    async def close(self) -> None:
        self.server.close()
        await self.driver.close()


class WalkCaller:
    """A client of this process: one request at a time."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = socket.create_connection(address)
        self._sock.setblocking(False)

    async def call(self, frame: bytes) -> None:
        """Send one request and wait for its answer, which is small enough to arrive whole."""
        await self._loop.sock_sendall(self._sock, frame)
        await self._loop.sock_recv(self._sock, 1 << 16)

    def close(self) -> None:
        self._sock.close()


def _request(name: str, *arguments: Any) -> bytes:
    function = NEWEST.functions[name]
    assert function.request is not None
    return request(1, function.id, pack(function.request, arguments))


async def _serving(coord: Coord) -> tuple[WalkNode, WalkCaller]:
    """A primary with one mounted segment, and a client of it."""
    node = WalkNode(coord, "primary")
    await node.promoted()
    caller = WalkCaller(node.serve())
    segment = m.Segment(b"i" * 16, "s", 1 << 40, 256 << 20, "127.0.0.1:1", "tcp")
    await caller.call(_request("MountSegment", segment, STORAGE))
    return node, caller


# --- the operations ---


async def walk_put() -> list[Path]:
    """A durable put, from the request's first byte to the answer's last."""
    node, caller = await _serving(await connect("memory://"))
    keys = iter(range(2 * RUNS))
    started: list[bytes] = []

    async def start(tracer: Tracer) -> None:
        key = b"key-%d" % next(keys)
        started.append(key)
        frame = _request("PutStart", WRITER, key, 64, m.ReplicateConfig(), m.DEFAULT_TENANT)
        with tracer.tracing():
            await caller.call(frame)

    async def end(tracer: Tracer) -> None:
        frame = _request("PutEnd", WRITER, m.ObjectMeta(started.pop(), None), 4, m.DEFAULT_TENANT)
        with tracer.tracing():
            await caller.call(frame)

    paths = [await trace("put_start", start), await trace("put_end", end)]
    caller.close()
    await node.close()
    return paths


async def walk_apply() -> list[Path]:
    """A standby applies one batch of the journal, from the watch's delivery on."""
    coord = await connect("memory://")
    node, caller = await _serving(coord)
    standby = WalkNode(coord, "standby")
    await standby.has_role(Role.STANDBY)
    keys = iter(range(2 * RUNS))

    async def apply(tracer: Tracer) -> None:
        applied_n = standby.machine.index.log.last_n
        index, now_ms = node.machine.index, node.machine.leader_ms(BootClock().now_ms())
        index.removes.remove(now_ms, m.DEFAULT_TENANT, b"key-%d" % next(keys), False, b"walk")
        node.driver.tell(Decided())  # on this store the record is durable when the call returns
        with tracer.tracing():
            await until(lambda: standby.machine.index.log.last_n > applied_n, "the batch is applied", poll_s=0)

    paths = [await trace("apply", apply)]
    caller.close()
    await node.close()
    await standby.close()
    return paths


async def walk_failover() -> list[Path]:
    """The leader's process dies, its guardian gives up the key, and the standby is promoted."""

    async def failover(tracer: Tracer) -> None:
        coord = await connect("memory://")
        leader, caller = await _serving(coord)
        standby = WalkNode(coord, "standby")
        await standby.has_role(Role.STANDBY)
        caller.close()
        await leader.close()
        machine = leader.machine
        marker = EndMarker("primary", machine.identity.run, "reaped")
        txn = end_epoch(machine.ctx.keys, machine.epoch, marker)
        await coord.txn(txn.compare, txn.success, txn.failure)
        with tracer.tracing():
            await standby.promoted()
        await standby.close()

    return [await trace("failover", failover)]


async def walk_lock() -> list[Path]:
    """A mutex that is free is taken and released."""
    coord = await connect("memory://")
    async with Session.open(coord) as session:

        async def lock(tracer: Tracer) -> None:
            mutex = Mutex(session, "/walk")
            with tracer.tracing():
                await mutex.lock()
                await mutex.unlock()

        return [await trace("lock", lock)]


async def walk_cache() -> list[Path]:
    """A cache client reads a value that it does not have."""
    server = CacheServer()
    authority = await Authority.open(MemoryStore())
    server.install(authority)
    keys = iter(range(2 * RUNS))
    async with Client(server.address) as client:
        await client.connected(10.0)

        async def read(tracer: Tracer) -> None:
            key = b"key-%d" % next(keys)
            with tracer.tracing():
                await client.get(key)

        paths = [await trace("cache", read)]
    await authority.close()
    server.close()
    return paths


WALKS: Final[dict[str, Callable[[], Awaitable[list[Path]]]]] = {
    "put": walk_put,
    "apply": walk_apply,
    "failover": walk_failover,
    "lock": walk_lock,
    "cache": walk_cache,
}


async def _show(name: str) -> None:
    for path in await WALKS[name]():
        print(path)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m leasehold.testing.walk", description="Trace one operation.")
    parser.add_argument("operation", choices=WALKS)
    name: str = parser.parse_args().operation
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_show(name))


if __name__ == "__main__":
    main()
