"""Puts, removes and reads through the whole master in this process: processor time an item, without and with journal.

The machine, the driver, the outbox, the service and the server are the real ones, on one loop with one caller that
waits for every answer, and is measured too. The journal is in a store in memory, and in a real etcd. Time of this
thread, best of several rounds: neighbours on the machine count little. The cost of a commit is that of a remove with
its journal in etcd, without that of a remove without journal.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

import uvloop

from bench.rows import record
from leasehold.coord.api import Coord
from leasehold.coord.connect import connect
from leasehold.ha.effects import ChangeRole, ReadSnapshot
from leasehold.ha.events import SnapshotRead, Started
from leasehold.ha.machine import Identity, NodeMachine
from leasehold.ha.settings import HaSettings
from leasehold.index.index import Index
from leasehold.index.settings import IndexSettings
from leasehold.node.service.functions import MasterService
from leasehold.node.standalone import Standalone
from leasehold.node.worker.driver import Driver
from leasehold.runtime.clock import BootClock
from leasehold.testing.etcd import EtcdCluster
from leasehold.wire import messages as m
from leasehold.wire.answers import Waiting
from leasehold.wire.body import pack
from leasehold.wire.frame import request
from leasehold.wire.server import Server, listen
from leasehold.wire.tables import NEWEST

CLIENT, STORAGE, TENANT = b"w" * 16, b"s" * 16, m.DEFAULT_TENANT
SINGLES, BATCH, BATCHES, ROUNDS = 500, 500, 2, 6
HEAD_BYTES = 16


class Keeper:
    """The node of this benchmark has no buffer and no snapshots."""

    def __init__(self) -> None:
        self.driver: Driver | None = None

    def read_snapshot(self, effect: ReadSnapshot) -> None:
        assert self.driver is not None
        asyncio.get_running_loop().call_soon(self.driver.tell, SnapshotRead(None))

    def push(self, effect: object) -> None:
        pass

    forget = drain = write_snapshot = push


class Node:
    """A node with its journal in `coord`, in this process."""

    def __init__(self, coord: Coord) -> None:
        self.machine = NodeMachine(
            Identity("bench", "run", "bench"), HaSettings(), lambda: Index(IndexSettings(), random.Random(1).randrange)
        )
        clock = BootClock()
        keeper, self.primary = Keeper(), asyncio.Event()
        self.driver = keeper.driver = Driver(
            self.machine, coord, clock, keeper=keeper, on_role=self._on_role, on_answers=self._on_answers,
            on_fatal=self._on_fatal,
        )  # fmt: skip
        self.server = Server(self.machine.outbox)

    def _on_answers(self, answers: list[Waiting]) -> None:
        self.server.release(answers)

    def _on_role(self, change: ChangeRole) -> None:
        if change.role.value == "primary":
            self.primary.set()

    @staticmethod
    def _on_fatal(error: BaseException) -> None:
        raise error

    async def serve(self) -> tuple[str, int]:
        self.driver.tell(Started())
        await self.primary.wait()
        service = MasterService(self.machine.serving, NEWEST)
        return self.server.serve(listen("127.0.0.1", 0), service.handlers(), NEWEST).address


class Caller:
    """Sends one request, waits for its answer, sends the next: all on the server's loop."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = socket.create_connection(address)
        self._sock.setblocking(False)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames: list[bytes] = []
        self._got = bytearray()
        self._done = self._loop.create_future()
        self._loop.add_reader(self._sock.fileno(), self._on_readable)

    async def run(self, frames: Sequence[bytes]) -> float:
        """Seconds of processor time for all of them."""
        self._frames = list(reversed(frames))
        self._done = self._loop.create_future()
        started_ns = time.thread_time_ns()
        self._next()
        await self._done
        return (time.thread_time_ns() - started_ns) / 1e9

    def _next(self) -> None:
        self._sock.send(self._frames.pop())

    def _on_readable(self) -> None:
        self._got += self._sock.recv(1 << 16)
        if len(self._got) < HEAD_BYTES or len(self._got) < HEAD_BYTES + struct.unpack_from("<I", self._got, 8)[0]:
            return
        self._got.clear()
        if self._frames:
            self._next()
        else:
            self._done.set_result(None)


def frame(name: str, *arguments: Any) -> bytes:
    function = NEWEST.functions[name]
    assert function.request is not None
    return request(1, function.id, pack(function.request, arguments if len(arguments) > 1 else arguments[0]))


def keys(kind: bytes, round_number: int, count: int) -> list[bytes]:
    return [b"%s-%02d-%016d" % (kind, round_number, number) for number in range(count)]


def steps(round_number: int) -> list[tuple[str, int, list[bytes]]]:
    """(what, items, requests), in order: what one needs, the one before has made."""
    one, config = keys(b"one", round_number, SINGLES), m.ReplicateConfig()
    many = [keys(b"many%d" % batch, round_number, BATCH) for batch in range(BATCHES)]
    sizes, items = [64] * BATCH, BATCH * BATCHES
    return [
        ("put_start", SINGLES, [frame("PutStart", CLIENT, key, 64, config, TENANT) for key in one]),
        ("put_end", SINGLES, [frame("PutEnd", CLIENT, m.ObjectMeta(key, None), 4, TENANT) for key in one]),
        ("exist", SINGLES, [frame("ExistKey", key, TENANT) for key in one]),
        ("get", SINGLES, [frame("GetReplicaList", key, TENANT) for key in one]),
        ("remove", SINGLES, [frame("Remove", key, True, TENANT) for key in one]),
        ("batch put_start", items, [frame("BatchPutStart", CLIENT, each, sizes, config, TENANT) for each in many]),
        ("batch put_end", items, [
            frame("BatchPutEnd", CLIENT, [m.ObjectMeta(key, None) for key in each], 4, TENANT) for each in many
        ]),
        ("batch exist", items, [frame("BatchExistKey", each, TENANT) for each in many]),
        ("batch get", items, [frame("BatchGetReplicaList", each, TENANT) for each in many]),
        ("batch remove", items, [frame("BatchRemove", each, True, TENANT) for each in many]),
    ]  # fmt: skip


async def measure(address: tuple[str, int]) -> dict[str, float]:
    """What -> microseconds an item."""
    caller, best = Caller(address), dict[str, float]()
    segment = m.Segment(b"i" * 16, "bench", 1 << 40, 256 << 20, "127.0.0.1:1", "tcp")
    await caller.run([frame("MountSegment", segment, STORAGE)])
    for round_number in range(ROUNDS):
        await caller.run([frame("Ping", STORAGE)])
        for what, items, frames in steps(round_number):
            us = await caller.run(frames) * 1e6 / items
            best[what] = min(us, best.get(what, us))
    return best


async def run() -> None:
    in_etcd = await measure_in_etcd()  # first: what the others leave in this process makes every wake-up slower
    for _ in range(2):  # the first to be measured in a process pays for things that are none of its own: not counted
        bare = Standalone([(NEWEST, ("127.0.0.1", 0))])
        without = await measure(bare.server.listeners[0].address)
        bare.close()
    node = Node(await connect("memory://"))
    journal = await measure(await node.serve())
    await node.driver.close()
    print(f"{'us of CPU an item, caller included':<36}{'without journal':>16}{'with journal':>14}{'in etcd':>10}")
    for what, us in without.items():
        print(f"{what:<36}{us:>16.1f}{journal[what]:>14.1f}{in_etcd[what]:>10.1f}")
        record(f"{what}, without journal", us, "us")
        record(f"{what}, with journal", journal[what], "us")
        record(f"{what}, journal in etcd", in_etcd[what], "us")
    commit_us = in_etcd["remove"] - without["remove"]
    print(f"{'one commit':<36}{commit_us:>40.1f}")
    record("one commit in etcd", commit_us, "us")


async def measure_in_etcd() -> dict[str, float]:
    async with EtcdCluster(1) as etcd, await connect(etcd.url) as coord:
        node = Node(coord)
        found = await measure(await node.serve())
        await node.driver.close()
    return found


def main() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


if __name__ == "__main__":
    main()
