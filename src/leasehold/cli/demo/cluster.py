"""The demo's own cluster: a store, two nodes and two storage hosts, each a real process on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from pathlib import Path
from typing import Final

import msgspec

from leasehold.admin.status import HistoryLine, NodeStatus
from leasehold.testing.node import NodeProcess
from leasehold.testing.ports import listens
from leasehold.testing.process import ServerFailed, ServerProcess
from leasehold.testing.store import StoreProcess
from leasehold.testing.waiting import until

CLUSTER: Final = "demo"
SEGMENT_BYTES: Final = 40 << 20
LEASE_TTL_S: Final = 30  # longer than any fault below, so that every lease can be checked after it
ANSWER_S: Final = 1.0  # for one request to an admin port: a frozen node costs all of it
POLL_S: Final = 0.05


class DemoCluster:
    """All processes of the demo. `kill` ends them and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.store = StoreProcess(data_dir=folder / "store").die_with_parent()
        self.nodes = [
            NodeProcess(
                self.store.url,
                name,
                cluster=CLUSTER,
                data_dir=folder / f"node-{name}",
                arguments=("--lease-ttl", f"{LEASE_TTL_S}s"),
            ).die_with_parent()
            for name in ("a", "b")
        ]
        host = [sys.executable, "-m", "leasehold", "host", "--segment", str(SEGMENT_BYTES), "--coord", self.store.url]
        self.hosts = [
            ServerProcess(
                f"host {number}",
                [*host, "--cluster", CLUSTER, "--name", f"host-{number}"],
                log_path=folder / f"host-{number}.log",
                probe=lambda: True,
            ).die_with_parent()
            for number in (1, 2)
        ]

    @property
    def masters(self) -> str:
        """The addresses for clients."""
        return ",".join(node.rpc for node in self.nodes)

    @property
    def admin(self) -> list[str]:
        return [node.admin for node in self.nodes]

    # --- start and end

    async def start(self, started: Callable[[str], None]) -> None:
        """Start all processes; `started(name)` is called as each becomes ready."""
        self.store.spawn()
        await self._ready(self.store, lambda: listens(self.store.port))
        started(self.store.name)
        for node in self.nodes:
            node.spawn()
            await self._ready(node, lambda node=node: self._serves_or_follows(node))  # type: ignore[misc]  # early binding
            started(node.name)
        for host in self.hosts:
            host.spawn()
        for number, host in enumerate(self.hosts, start=1):
            await self._ready(host, lambda number=number: self._lends(number))  # type: ignore[misc]  # early binding
            started(host.name)

    async def restart(self, node: NodeProcess) -> None:
        node.spawn()
        await self._ready(node, lambda: self._serves_or_follows(node))

    def kill(self) -> None:
        """End every process of the demo, also frozen ones."""
        for node in self.nodes:
            if node.running:
                node.kill_host()
        for process in (*self.hosts, self.store):
            process.kill()

    async def _ready(self, process: ServerProcess, condition: Callable[[], bool | Awaitable[bool]]) -> None:
        async def holds() -> bool:
            if not process.running:
                raise ServerFailed(f"{process.name} stopped; its log ends with:\n{process.log_tail()}")
            held = condition()
            return await held if isawaitable(held) else held

        await until(holds, f"{process.name} is ready; see '{process.log_path}'", poll_s=POLL_S)

    # --- state

    async def status(self, node: NodeProcess) -> NodeStatus | None:
        """The status that a node reports; None if it does not answer."""
        code, body = await asyncio.to_thread(node.http, "/api/status", timeout_s=ANSWER_S)
        return msgspec.json.decode(body, type=NodeStatus) if code == 200 else None

    async def leader(self) -> tuple[NodeProcess, NodeStatus]:
        """The node that serves, and its status; waits until there is one."""
        found: list[tuple[NodeProcess, NodeStatus]] = []

        async def serves() -> bool:
            for node in self.nodes:
                status = await self.status(node) if node.running else None
                if status is not None and status.may_serve:
                    found[:] = [(node, status)]
            return bool(found)

        await until(serves, "a node serves", poll_s=POLL_S)
        return found[0]

    async def settle(self) -> None:
        """Wait until one node serves and the other one may be promoted."""

        async def settled() -> bool:
            found = [await self.status(node) for node in self.nodes]
            return all(one is not None and one.ready for one in found) and any(one and one.may_serve for one in found)

        await until(settled, "one node serves and the other one is ready", poll_s=POLL_S)

    async def history(self) -> list[HistoryLine]:
        _, body = await asyncio.to_thread(self.nodes[0].http, "/api/history?limit=1000")
        return msgspec.json.decode(body, type=list[HistoryLine])

    async def metric(self, node: NodeProcess, name: str) -> float:
        """One sample without labels of a node's /metrics."""
        _, body = await asyncio.to_thread(node.http, "/metrics")
        for line in body.decode().splitlines():
            with contextlib.suppress(ValueError):
                found, value = line.split(" ")
                if found == name:
                    return float(value)
        raise ServerFailed(f"{node.name} exports no metric {name}")

    async def _serves_or_follows(self, node: NodeProcess) -> bool:
        status = await self.status(node)
        return status is not None and status.ready

    async def _lends(self, segments: int) -> bool:
        _, status = await self.leader()
        return status.index.segments >= segments
