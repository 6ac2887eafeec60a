"""The driver passes an operation to the store unchanged, with every option that the machine set."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import leasehold
from leasehold.ha.effects import NodeEffect, StoreRequest
from leasehold.ha.events import NodeEvent, StoreAnswered, Ticked
from leasehold.ha.keys import Keys
from leasehold.ha.machine import NodeMachine
from leasehold.mvcc.model import Op, Put
from leasehold.node.worker.driver import Driver
from leasehold.runtime.clock import BootClock
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


async def test_ignore_value_and_ignore_lease_of_a_put_reach_the_store() -> None:
    async with await leasehold.connect("memory://") as store:
        lease = await store.lease_grant(60)
        await store.put(b"key", b"value", lease=lease.id)
        machine = OneRequest(Put(b"key", ignore_value=True, ignore_lease=True))
        # FaultyCoord answers no request immediately, so that the request goes the way it goes on etcd.
        driver = Driver(
            cast(NodeMachine, machine),
            FaultyCoord(store, lambda _: None),
            BootClock(),
            keeper=cast(Any, None),
            on_role=lambda _: None,
            on_answers=lambda _: None,
            on_fatal=lambda _: None,
        )
        driver.tell(Ticked())
        assert (await machine.answer).failure is None
        await driver.close()
        kv = await store.get_one(b"key")
        assert kv is not None
        assert (kv.value, kv.lease, kv.version) == (b"value", lease.id, 2)
