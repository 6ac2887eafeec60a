"""The faults of the demo, and the course of one scene: hold leases, break something, wait, check everything."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Final, Protocol

from leasehold.admin.status import HistoryLine
from leasehold.base.errors import LeaseholdError
from leasehold.cli.demo.client import TIMEOUT_MS, HeldLeases, Ledger, Prober
from leasehold.cli.demo.cluster import SEGMENT_BYTES, DemoCluster
from leasehold.cli.demo.report import DemoReport, SceneResult
from leasehold.pool import Pool
from leasehold.runtime.clock import BootClock, wall_us
from leasehold.testing.node import NodeProcess
from leasehold.testing.waiting import until

FILL_OBJECTS: Final = 1_024
LEASES: Final = 64
STORE_FROZEN_S: Final = 4.0  # longer than a leader lease
STEPS: Final = 6


class Display(Protocol):
    """Where the demo shows its progress."""

    def begin(self, name: str, what: str, steps: int) -> None: ...

    def advance(self, steps: int = 1, *, what: str = "") -> None: ...

    def end(self, result: str) -> None: ...


class Since:
    """The moment from which the next good answer is counted: the fault, or its end."""

    def __init__(self) -> None:
        self._clock = BootClock()
        self.now()

    def now(self) -> None:
        self.at_ms, self.wall_us = self._clock.now_ms(), wall_us()


Fault = Callable[[NodeProcess, Since], Coroutine[None, None, None]]


class Demo:
    """One run: the cluster, its clients, and the scenes in order."""

    def __init__(self, cluster: DemoCluster, display: Display) -> None:
        self._cluster = cluster
        self._display = display
        self._ledger = Ledger()
        self._prober = Prober(cluster.masters, self._ledger)
        self._pool = Pool(cluster.masters, timeout_ms=TIMEOUT_MS)
        self._clock = BootClock()
        self._scenes: list[SceneResult] = []

    async def run(self) -> DemoReport:
        started_ms = self._clock.now_ms()
        display, cluster = self._display, self._cluster
        display.begin("start a cluster", "start a store, two nodes and two storage hosts", 5)
        await cluster.start(lambda name: display.advance(what=name))
        display.end(f"dashboard at http://{cluster.admin[0]}/")
        display.begin("fill the pool", f"put {FILL_OBJECTS:,} objects of real bytes", FILL_OBJECTS)
        await self._ledger.fill(self._pool, FILL_OBJECTS, display.advance)
        display.end(f"{FILL_OBJECTS * 64 // 1024} MiB of {len(cluster.hosts) * SEGMENT_BYTES >> 20} MiB")
        async with self._probing():
            for name, what, fault in self._faults():
                self._scenes.append(await self._scene(name, what, fault))
        report = await self._report(self._clock.now_ms() - started_ms)
        report.ok = not report.problems()
        return report

    def close(self) -> None:
        self._prober.pool.close()
        self._pool.close()

    @contextlib.asynccontextmanager
    async def _probing(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._prober.run())
        try:
            await until(lambda: len(self._prober.answers) > 1 or task.done(), "the first good answer")
            yield
            self._prober.stop()
            await task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    # --- one scene

    async def _scene(self, name: str, what: str, fault: Fault) -> SceneResult:
        display, prober, cluster = self._display, self._prober, self._cluster
        display.begin(name, what, STEPS)
        leases = HeldLeases(self._pool, [f"object/{number}" for number in range(LEASES)])
        await leases.take()
        display.advance(what="leases taken")
        leader, _ = await cluster.leader()
        first, lost, stale = len(prober.answers), prober.lost, prober.stale
        since = Since()
        await fault(leader, since)
        display.advance(what="waiting for a good answer")
        rounds = len(prober.answers)
        # the first answer may belong to a call from before; the second one cannot
        await until(lambda: len(prober.answers) >= rounds + 2, "a good answer after the fault")
        display.advance(what="checking leases")
        checked, broken = await leases.check()
        display.advance(what="waiting for both nodes")
        await cluster.settle()
        waited_ms, answer = prober.next_answer(since.at_ms, first)
        display.advance(what=f"comparing {len(self._ledger.acknowledged):,} keys")
        await self._ledger.settle_unknown(self._prober.pool)
        compared = await self._ledger.compare(self._pool, lambda _: None)
        display.advance()
        node, status = await cluster.leader()
        display.end(f"next good answer after {waited_ms:,} ms")
        return SceneResult(
            name=name,
            what=what,
            fault_wall_us=since.wall_us,
            next_answer_ms=waited_ms,
            answer_wall_us=answer.wall_us,
            keys=compared.keys,
            bytes=compared.bytes,
            lost=compared.lost + prober.lost - lost,
            stale=prober.stale - stale,
            leases=checked,
            leases_broken=broken,
            leader=node.node_name,
            epoch=status.epoch,
        )

    # --- the faults

    def _faults(self) -> list[tuple[str, str, Fault]]:
        return [
            (
                "kill -9 the worker",
                "kill -9 the worker of the primary; its guardian is left",
                self._kill_worker,
            ),
            ("kill -9 the node", "kill -9 worker and guardian, as when their machine dies", self._kill_host),
            ("freeze the primary", "stop the primary for longer than its lease, then let it continue", self._freeze),
            ("switch over", "move the leadership, as for an upgrade", self._switch_over),
            (
                "freeze the store",
                f"stop the store for {STORE_FROZEN_S:g} s, longer than a leader lease",
                self._freeze_store,
            ),
        ]

    async def _kill_worker(self, leader: NodeProcess, since: Since) -> None:
        since.now()
        leader.kill_worker()
        await self._another_leads(leader)

    async def _kill_host(self, leader: NodeProcess, since: Since) -> None:
        since.now()
        leader.kill_host()
        await self._another_leads(leader)
        await self._cluster.restart(leader)

    async def _freeze(self, leader: NodeProcess, since: Since) -> None:
        """A client that is connected only to the frozen node must not read old values from it afterwards."""
        pinned = Pool(leader.rpc, timeout_ms=TIMEOUT_MS)
        try:
            await self._prober.is_fresh(pinned)
            since.now()
            leader.freeze_host()
            try:
                reading = asyncio.create_task(self._read_late(pinned))  # waits in the socket of the frozen node
                await self._another_leads(leader)
                answers = len(self._prober.answers)
                await until(lambda: len(self._prober.answers) > answers + 1, "a good answer of the successor")
            finally:
                leader.thaw_host()
            await self._read_late(pinned)
            await reading
        finally:
            pinned.close()

    async def _read_late(self, pinned: Pool) -> None:
        with contextlib.suppress(LeaseholdError):  # a refusal is right, an old value is not
            await self._prober.is_fresh(pinned)

    async def _switch_over(self, leader: NodeProcess, since: Since) -> None:
        since.now()
        code, body = await asyncio.to_thread(leader.switchover)
        if code != 200:
            raise LeaseholdError(f"the switchover was refused: {body.decode(errors='replace')}")
        await self._another_leads(leader)

    async def _freeze_store(self, leader: NodeProcess, since: Since) -> None:
        store = self._cluster.store
        store.freeze()
        try:
            await asyncio.sleep(STORE_FROZEN_S)
        finally:
            since.now()
            store.thaw()

    async def _another_leads(self, old: NodeProcess) -> None:
        others = [node for node in self._cluster.nodes if node is not old]

        async def leads() -> bool:
            found = [await self._cluster.status(node) for node in others]
            return any(one is not None and one.may_serve for one in found)

        await until(leads, "another node leads")

    # --- the end

    async def _report(self, took_ms: int) -> DemoReport:
        """The figures, compared with what the cluster itself has counted."""
        await self._prober.settle()
        leader, _ = await self._cluster.leader()
        objects = len(self._ledger.acknowledged) + 1  # and the tally
        counted = int(await self._cluster.metric(leader, "leasehold_objects"))
        differences = [f"/metrics counts {counted:,} objects, the demo {objects:,}"] if counted != objects else []
        history = await self._cluster.history()
        differences += [
            f"the history has no promotion of {scene.leader} in epoch {scene.epoch}"
            for scene in self._scenes
            if not any(_promotes(line, scene) for line in history)
        ]
        return DemoReport(
            ok=False,
            seconds=round(took_ms / 1000, 1),
            admin=self._cluster.admin,
            filled_bytes=sum(scene.bytes for scene in self._scenes[-1:]),
            pool_bytes=len(self._cluster.hosts) * SEGMENT_BYTES,
            objects=objects,
            good_answers=len(self._prober.answers),
            scenes=self._scenes,
            differences=differences,
        )


def _promotes(line: HistoryLine, scene: SceneResult) -> bool:
    return (line.role, line.node, line.epoch) == ("primary", scene.leader, scene.epoch)
