"""kill -9 of the store under load: nothing acknowledged is lost, every watch is complete."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import leasehold
from leasehold.base.errors import Unavailable, UnknownOutcome
from leasehold.coord.api import Coord
from leasehold.mvcc.model import Event, prefix_end
from leasehold.testing.store import StoreProcess
from leasehold.testing.waiting import until

WRITERS = 8


class Load:
    """Writers that record acknowledged writes, and a watcher that records events."""

    def __init__(self, client: Coord) -> None:
        self._client = client
        self.acknowledged: dict[bytes, int] = {}
        self.unknown: set[bytes] = set()
        self.delivered: list[Event] = []

    async def write(self, writer: int) -> None:
        number = 0
        while True:
            key = b"/load/%d/%06d" % (writer, number)
            number += 1
            try:
                self.acknowledged[key] = (await self._client.put(key, b"x" * 100)).header.revision
            except UnknownOutcome:
                self.unknown.add(key)
            except Unavailable:
                await asyncio.sleep(0.01)

    async def watch(self) -> None:
        async with self._client.watch(b"/load/", prefix_end(b"/load/"), start_revision=1) as stream:
            async for batch in stream:
                self.delivered += batch.events

    async def until_acknowledged(self, more: int) -> None:
        goal = len(self.acknowledged) + more
        await until(lambda: len(self.acknowledged) >= goal, timeout_s=60)


async def kill_under_load(store: StoreProcess, times: int) -> Load:
    """Run the load while the store is killed. In the end everything must be stored, and delivered to the watch."""
    async with await leasehold.connect(store.url) as client:
        load = Load(client)
        writers = [asyncio.create_task(load.write(number)) for number in range(WRITERS)]
        watching = asyncio.create_task(load.watch())
        for time in range(times):
            await load.until_acknowledged(50 + 53 * (time % 7))
            await asyncio.to_thread(store.restart)
        await load.until_acknowledged(50)
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
        await check(client, load)
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        return load


async def check(client: Coord, load: Load) -> None:
    found = await client.get(b"/load/", prefix_end(b"/load/"))
    there = {kv.key: kv.mod_revision for kv in found.kvs}
    lost = {key: revision for key, revision in load.acknowledged.items() if there.get(key) != revision}
    assert not lost, f"acknowledged and lost: {lost}"
    # A cancelled writer's last put may be stored as well, without an answer.
    await until(lambda: len(load.delivered) >= len(there), timeout_s=60)
    delivered = [(event.kv.key, event.kv.mod_revision) for event in load.delivered]
    assert sorted(delivered) == sorted(there.items())
    revisions = [revision for _, revision in delivered]
    assert revisions == sorted(set(revisions)), "events came twice, or out of order"


@pytest.fixture
def restless(tmp_path: Path) -> Iterator[StoreProcess]:
    """A store whose log is so short that kills fall into rotations and snapshots as well."""
    with StoreProcess(data_dir=tmp_path, arguments=["--segment", "64KiB"]) as process:
        yield process


async def test_ten_kills_lose_nothing(restless: StoreProcess) -> None:
    load = await kill_under_load(restless, 10)
    assert len(load.acknowledged) >= 10 * 20
    assert list(restless.data_dir.glob("*.snapshot"))


@pytest.mark.chaos
async def test_fifty_kills_lose_nothing(restless: StoreProcess) -> None:
    await kill_under_load(restless, 50)
