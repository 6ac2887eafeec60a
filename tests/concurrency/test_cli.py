"""`leasehold lock` and `leasehold elect`, as processes on the served store and on a real etcd."""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest
from tests.concurrency.helpers import keys_under, runs, waiters

from leasehold.concurrency import Election, Mutex, Session
from leasehold.coord.api import Coord
from leasehold.testing.process import START_TIMEOUT_S
from leasehold.testing.waiting import until

pytestmark = pytest.mark.parametrize("url", ["served", "etcd"], indirect=True)

PIPE = asyncio.subprocess.PIPE


async def leasehold(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, "-m", "leasehold", *arguments, stdout=PIPE, stderr=PIPE)


async def line(child: asyncio.subprocess.Process) -> str:
    assert child.stdout is not None
    assert child.stderr is not None
    text = (await asyncio.wait_for(child.stdout.readline(), START_TIMEOUT_S)).decode()
    assert text, (await child.stderr.read()).decode()
    return text.strip()


async def test_ctl_v3_lock(coord: Coord, url: str, name: str) -> None:
    """TestCtlV3Lock: the first prints its key and holds; the second waits until the first is stopped."""
    first = await leasehold("lock", name, "--coord", url)
    assert (await line(first)).startswith(f"{name}/")
    second = await leasehold("lock", name, "--coord", url)
    await waiters(coord, name, 2)
    first.send_signal(signal.SIGINT)
    assert (await line(second)).startswith(f"{name}/")
    assert await first.wait() == 0
    second.send_signal(signal.SIGTERM)
    assert await second.wait() == 0
    assert await keys_under(coord, name) == []


async def test_ctl_v3_lock_with_cmd(coord: Coord, url: str, name: str) -> None:
    """TestCtlV3LockWithCmd: the command runs with the lock, finds its key in the environment; its code is passed on."""
    script = 'echo "$ETCD_LOCK_KEY $ETCD_LOCK_REV $LEASEHOLD_LOCK_TOKEN"; exit 7'
    child = await leasehold("lock", name, "--coord", url, "--", "sh", "-c", script)
    key, revision, token = (await line(child)).split()
    assert await child.wait() == 7
    assert key.startswith(f"{name}/")
    assert int(revision) >= int(token) > 0
    assert await keys_under(coord, name) == []


async def test_a_signal_goes_to_the_command(coord: Coord, url: str, name: str) -> None:
    script = "trap 'exit 9' TERM; echo ready; while true; do sleep 0.05; done"
    child = await leasehold("lock", name, "--coord", url, "--", "sh", "-c", script)
    assert await line(child) == "ready"
    child.send_signal(signal.SIGTERM)
    assert await child.wait() == 9
    assert await keys_under(coord, name) == []


async def test_the_command_is_ended_when_the_lock_is_lost(coord: Coord, url: str, name: str) -> None:
    child = await leasehold("lock", name, "--ttl", "5", "--coord", url, "--", "sh", "-c", "echo $$; exec sleep 600")
    pid = int(await line(child))
    [key] = await keys_under(coord, name)
    await coord.lease_revoke(int(key.decode().rpartition("/")[2], 16))
    assert await asyncio.wait_for(child.wait(), START_TIMEOUT_S) == 1
    assert not runs(pid)
    assert child.stderr is not None
    assert b"is lost" in await child.stderr.read()


async def test_the_command_dies_with_its_guard(coord: Coord, url: str, name: str) -> None:
    """kill -9 of `leasehold lock` takes the command along: it must not run on without the lock."""
    child = await leasehold("lock", name, "--coord", url, "--", "sh", "-c", "echo $$; exec sleep 600")
    pid = int(await line(child))
    child.kill()
    await child.wait()
    await until(lambda: not runs(pid))


async def test_waiting_ends_by_signal_or_timeout_and_leaves_nothing(coord: Coord, url: str, name: str) -> None:
    async with Session.open(coord) as session, Mutex(session, name):
        late = await leasehold("lock", name, "--timeout", "0.2", "--coord", url)
        waiting = await leasehold("lock", name, "--coord", url, "--", "true")
        assert await late.wait() == 1
        await waiters(coord, name, 2)  # the holder and `waiting`: by now there is no other
        waiting.send_signal(signal.SIGTERM)
        assert await waiting.wait() == 128 + signal.SIGTERM
        assert len(await keys_under(coord, name)) == 1


async def test_ctl_v3_elect(coord: Coord, url: str, name: str) -> None:
    """TestCtlV3Elect: key and value of the leader; the next one leads when the first is stopped."""
    first = await leasehold("elect", name, "p1", "--coord", url)
    assert (await line(first)).startswith(f"{name}/")
    assert await line(first) == "p1"
    listener = await leasehold("elect", name, "--listen", "--coord", url)
    assert (await line(listener)).startswith(f"{name}/")
    assert await line(listener) == "p1"
    second = await leasehold("elect", name, "p2", "--endpoints", url.removeprefix("etcd://"))
    await waiters(coord, name, 2)
    first.send_signal(signal.SIGINT)
    await line(second)
    assert await line(second) == "p2"
    await line(listener)
    assert await line(listener) == "p2"
    async with Session.open(coord) as session:
        assert (await Election(session, name).leader()).value == b"p2"
    for child in (second, listener):
        child.send_signal(signal.SIGINT)
    assert await first.wait() == await second.wait() == 0
    await listener.wait()
