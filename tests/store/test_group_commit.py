"""Concurrent writes are written together, and every waiting caller is notified in any case."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest
from tests.store.support import opened

from leasehold.base.errors import UnknownOutcome
from leasehold.mvcc.model import FROM_KEY
from leasehold.store.client import LocalClient
from leasehold.store.group_commit import Waiters
from leasehold.store.log import SegmentedLog
from leasehold.store.opening import open_folder


def frames_written(client: LocalClient) -> int:
    log = client.engine._log
    assert isinstance(log, SegmentedLog)
    return log._segment.number


async def first_write(client: LocalClient) -> None:
    """After it the disk counts as prompt, also on a busy machine: it is loops that write, not the keeper."""
    await client.put(b"first")
    client.engine._write_s = 0.0


async def test_writes_of_one_turn_are_one_frame(tmp_path: Path) -> None:
    async with opened(tmp_path) as client:
        await first_write(client)
        before = frames_written(client)
        await asyncio.gather(*(client.put(b"%d" % number) for number in range(64)), client.get(b"0"))
        assert frames_written(client) == before + 1


async def test_a_write_of_a_cancelled_caller_is_written_and_delivered(tmp_path: Path) -> None:
    """If it was cancelled between its turn and the disk, it stayed in memory until the next write."""
    async with opened(tmp_path) as client, client.watch(b"a") as watch:
        await first_write(client)
        caller = asyncio.create_task(client.put(b"a"))
        await asyncio.sleep(0)  # it is done, and waits for the disk
        caller.cancel()
        async with asyncio.timeout(10):
            batch = await anext(watch)
        assert [event.kv.key for event in batch.events] == [b"a"]
        with pytest.raises(asyncio.CancelledError):
            await caller


async def test_others_in_the_loop_have_two_turns_for_every_sync(tmp_path: Path) -> None:
    """While one writes without a pause: what takes several turns would take as many syncs."""
    async with opened(tmp_path) as client:
        await first_write(client)
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        turning = asyncio.create_task(turn())
        for number in range(20):
            client.engine._write_s = 0.0
            await client.put(b"%d" % number)
        turning.cancel()
        assert turns >= 2 * 20 - 2


async def test_callers_in_several_loops_share_one_store(tmp_path: Path) -> None:
    engine = open_folder(tmp_path)
    client = LocalClient(engine)
    done = []

    async def write(thread: int) -> None:
        for number in range(40):
            await asyncio.gather(*(client.put(b"%d/%d/%d" % (thread, number, each)) for each in range(3)))
            done.append(await client.get_one(b"%d/%d/2" % (thread, number)))

    threads = [threading.Thread(target=lambda n=n: asyncio.run(write(n))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join, 60)
    assert len(done) == 4 * 40
    assert None not in done
    engine.close()
    async with opened(tmp_path) as again:
        assert (await again.get(b"\0", FROM_KEY, count_only=True)).count == 4 * 40 * 3


async def test_a_disk_that_fails_is_reported_to_every_waiting_caller(tmp_path: Path) -> None:
    engine = open_folder(tmp_path)
    client = LocalClient(engine)
    await first_write(client)
    notified: list[BaseException | None] = []
    writing = [asyncio.create_task(client.put(b"%d" % number)) for number in range(10)]
    await asyncio.sleep(0)
    assert engine.when_settled(notified.append)
    os.close(engine._log._segment._file)  # type: ignore[union-attr]  # the disk goes away
    outcomes = await asyncio.gather(*writing, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [UnknownOutcome] * 10
    assert [type(error) for error in notified] == [UnknownOutcome]


async def test_a_failing_callback_does_not_keep_others_waiting() -> None:
    loop, waiters, notified, broken = asyncio.get_running_loop(), Waiters(), list[str](), list[object]()
    loop.set_exception_handler(lambda _loop, context: broken.append(context["exception"]))

    def raises(_error: BaseException | None) -> None:
        raise ValueError

    waiters.add(loop, raises)
    waiters.add(loop, lambda _error: notified.append("notified"))
    waiters.release(None)
    assert notified == ["notified"]
    assert [type(error) for error in broken] == [ValueError]
