"""The driver passes an operation to the store unchanged, with every option that the machine set."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import leasehold
from leasehold.coord.api import Coord
from leasehold.ha.effects import NodeEffect, StoreRequest
from leasehold.ha.events import Failure, NodeEvent, StoreAnswered, Ticked
from leasehold.ha.keys import Keys
from leasehold.ha.machine import NodeMachine
from leasehold.journal.fenced_writer import FencedWriter
from leasehold.mvcc.model import Op, Put, TxnResult
from leasehold.node.worker.driver import Driver
from leasehold.runtime.clock import BootClock
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.faulty import FaultyCoord


class OneRequest:
    """A machine that requests one operation, and keeps the answer."""

    busy = False
    wake_at_ms = 1 << 60

    def __init__(self, op: Op) -> None:
        self.serving = SimpleNamespace(report_to=lambda on_decided: None)
        self.ctx = SimpleNamespace(keys=Keys("c"))
        self.answer: asyncio.Future[StoreAnswered] = asyncio.get_running_loop().create_future()
        self._op = op

    def handle(self, now_ms: int, event: NodeEvent, wall_us: int = 0) -> list[NodeEffect]:
        if isinstance(event, StoreAnswered):
            self.answer.set_result(event)
            return []
        return [StoreRequest(1, self._op, 5_000)]


def driver_of(machine: OneRequest, store: Coord) -> Driver:
    return Driver(
        cast(NodeMachine, machine),
        store,
        BootClock(),
        keeper=cast(Any, None),
        on_role=lambda _: None,
        on_answers=lambda _: None,
        on_fatal=lambda _: None,
    )


async def test_ignore_value_and_ignore_lease_of_a_put_reach_the_store() -> None:
    async with await leasehold.connect("memory://") as store:
        lease = await store.lease_grant(60)
        await store.put(b"key", b"value", lease=lease.id)
        machine = OneRequest(Put(b"key", ignore_value=True, ignore_lease=True))
        # FaultyCoord answers no request immediately, so that the request goes the way it goes on etcd.
        driver = driver_of(machine, FaultyCoord(store, lambda _: None))
        driver.tell(Ticked())
        assert (await machine.answer).failure is None
        await driver.close()
        kv = await store.get_one(b"key")
        assert kv is not None
        assert (kv.value, kv.lease, kv.version) == (b"value", lease.id, 2)


async def test_a_fenced_write_on_etcd_is_answered_without_a_task(etcd: EtcdCluster) -> None:
    key = uuid4().hex.encode()
    async with await leasehold.connect(etcd.url) as store:
        await store.put(key + b"/other", b"connected")
        machine = OneRequest(FencedWriter(key + b"/leader", 0).write(0, key, b"value"))
        driver = driver_of(machine, store)
        before = asyncio.all_tasks()
        driver.tell(Ticked())
        assert asyncio.all_tasks() == before
        result = (await machine.answer).result
        assert isinstance(result, TxnResult)
        assert result.succeeded
        await driver.close()


async def test_a_fenced_write_that_fails_is_reported_as_unknown_and_a_closed_driver_reports_nothing() -> None:
    async with EtcdCluster(1) as cluster, await leasehold.connect(cluster.url) as store:
        await store.put(b"other", b"connected")
        failing = OneRequest(FencedWriter(b"leader", 0).write(0, b"slot/1", b"value"))
        closed = OneRequest(FencedWriter(b"leader", 0).write(0, b"slot/2", b"value"))
        cluster.nodes[0].freeze()
        driver, closed_driver = driver_of(failing, store), driver_of(closed, store)
        driver.tell(Ticked())
        closed_driver.tell(Ticked())
        await closed_driver.close()
        cluster.nodes[0].kill()
        assert (await failing.answer).failure is Failure.UNKNOWN
        assert not closed.answer.done()
        await driver.close()
