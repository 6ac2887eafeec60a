"""A cancellation that arrives together with the awaited result is not lost.

Until Python 3.12 `asyncio.wait_for` returns the result in that case and drops the cancellation. The task then goes on,
and its owner, who has cancelled it once, waits for it forever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from leasehold.base.errors import Unavailable
from leasehold.concurrency import Session
from leasehold.coord.connect import connect
from leasehold.etcd.watch import EtcdWatch
from leasehold.etcd.watch_stream import Hub
from leasehold.mvcc.model import Watch
from leasehold.node.guardian.main import Guardian
from leasehold.node.settings import NodeConfig, NodeSettings
from leasehold.store.engine import Engine
from leasehold.store.group_commit import OnSettled


async def is_cancelled(waiting: Coroutine[Any, Any, object], happen: Callable[[], None]) -> bool:
    """Start to wait. Then let the awaited thing happen and cancel the wait, in the same turn of the loop."""
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0.01)
    assert not task.done()
    happen()
    task.cancel()
    await asyncio.wait({task}, timeout=5)
    return task.cancelled()


async def test_of_a_guardian_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guardian, "_tell", lambda guardian, event: None)  # it decides nothing, so no worker starts
    guardian = Guardian(NodeConfig(NodeSettings(name="n1", rpc="127.0.0.1:0", admin="127.0.0.1:0")))
    assert await is_cancelled(guardian.run(), guardian._ended.set)


async def test_of_a_guardian_between_two_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guardian, "_tell", lambda guardian, event: None)
    guardian = Guardian(NodeConfig(NodeSettings(name="n1", rpc="127.0.0.1:0", admin="127.0.0.1:0")))
    assert await is_cancelled(guardian.run(), lambda: None)


class SlowDisk(Engine):
    """An engine whose disk answers when the test calls `answer`."""

    def __init__(self) -> None:
        self.waiting: list[OnSettled] = []

    @property
    def _prompt(self) -> bool:
        return False

    @property
    def unsettled(self) -> bool:
        return True

    def when_settled(self, notify: OnSettled) -> bool:
        self.waiting.append(notify)
        return True

    def answer(self) -> None:
        self.waiting.pop()(None)


async def test_of_a_write_that_reaches_the_disk() -> None:
    engine = SlowDisk()
    assert await is_cancelled(engine.settled(5), engine.answer)


async def test_of_a_watch_that_is_created() -> None:
    watch = EtcdWatch(cast(Hub, None), 1, Watch(b"k"), 10)
    assert await is_cancelled(watch.ready(5), lambda: watch.created(7))


async def test_of_a_request_whose_session_is_lost() -> None:
    async def unavailable() -> None:
        raise Unavailable("of the test")

    async with await connect("memory://") as coord:
        session = await Session.open(coord)
        assert await is_cancelled(session.settle(unavailable), lambda: session._end("of the test"))
        await session.close()
