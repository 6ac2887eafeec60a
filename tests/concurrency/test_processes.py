"""Better than the original, 9 and 10: frozen servers, frozen clients, forks, blocked loops, forgotten sessions."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.concurrency.helpers import PATIENCE_S, keys_under, waiters
from tests.measured import until_met

from leasehold.concurrency import Mutex, Session, SessionLost, SessionState
from leasehold.coord.api import Coord
from leasehold.coord.connect import connect
from leasehold.testing.etcd import EtcdCluster, EtcdNode
from leasehold.testing.process import START_TIMEOUT_S
from leasehold.testing.waiting import until

on_servers = pytest.mark.parametrize("url", ["served", "etcd"], indirect=True)


async def script(text: str, *arguments: str) -> asyncio.subprocess.Process:
    """Run `text` as a Python program."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", text, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


async def line_of(child: asyncio.subprocess.Process) -> str:
    assert child.stdout is not None
    assert child.stderr is not None
    line = (await asyncio.wait_for(child.stdout.readline(), START_TIMEOUT_S)).decode()
    assert line, (await child.stderr.read()).decode()
    return line.strip()


async def a_frozen_raft_leader(name: str) -> float:
    """The leader freezes; the holder still holds, and unlocks. How long until the waiter has the lock."""
    with EtcdCluster(3, arguments=["--heartbeat-interval=50", "--election-timeout=500"]) as cluster:
        async with (
            await connect(cluster.url) as c1,
            await connect(cluster.url) as c2,
            Session.open(c1, ttl_s=10) as s1,
            Session.open(c2, ttl_s=10) as s2,
        ):
            mutex = Mutex(s1, name)
            held = await mutex.lock()
            waiting = asyncio.create_task(Mutex(s2, name).lock())
            await waiters(c1, name, 2)
            leader = cluster.leader()
            leader.freeze()
            frozen_at = time.monotonic()
            await mutex.unlock()
            await asyncio.wait_for(waiting, PATIENCE_S)
            gone_on_s = time.monotonic() - frozen_at
            held_on = s1.state, s2.state
            leader.thaw()
        assert SessionState.LOST not in held_on
        assert held.released
    return gone_on_s


@pytest.mark.alone
async def test_a_frozen_raft_leader_delays_no_client(name: str) -> None:
    """9: the waiter has the lock within 1.5 s."""
    for took_s in until_met(1.5, "s from the freeze of the raft leader to the next holder"):
        took_s.append(await a_frozen_raft_leader(name))


async def test_a_blocked_event_loop_does_not_lose_the_session(coord: Coord, name: str) -> None:
    """10: renewals come from a thread; a loop that is blocked for longer than the TTL loses nothing."""
    async with Session.open(coord, ttl_s=3) as session, Mutex(session, name) as held:
        time.sleep(3.5)
        held.check()
        await asyncio.sleep(0)
        held.check()
        assert len(await keys_under(coord, name)) == 1


FORKING = """
import asyncio, os, sys
from leasehold.concurrency import Session, Mutex, SessionLost, SessionState
from leasehold.coord.connect import connect
async def main():
    coord = await connect(sys.argv[1])
    async with Session.open(coord, ttl_s=60) as session, Mutex(session, sys.argv[2]) as held:
        outcomes = set()
        for _ in range(20):  # gRPC's own handlers for fork made one child in ten crash
            child = os.fork()
            if child == 0:
                try:
                    held.check()
                except SessionLost as error:
                    os._exit(3 if session.state is SessionState.LOST and "fork" in str(error) else 4)
                os._exit(5)
            outcomes.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            await coord.get_one(b"x")
        held.check()
        print(outcomes, flush=True)
asyncio.run(main())
"""


@on_servers
async def test_fork(url: str, coord: Coord, name: str) -> None:
    """10: in a forked child the session is lost, in the parent it stays alive, and the child's end revokes nothing."""
    child = await script(FORKING, url, name)
    assert await line_of(child) == "{3}"
    assert await child.wait() == 0
    assert await keys_under(coord, name) == []


FORGETFUL_ASYNC = """
import asyncio, sys
from leasehold.concurrency import Session, Mutex
from leasehold.coord.connect import connect
async def main():
    coord = await connect(sys.argv[1])
    session = await Session.open(coord, ttl_s=60)
    await Mutex(session, sys.argv[2]).lock()
    print("held", flush=True)
asyncio.run(main())
"""

FORGETFUL_SYNC = """
import sys
import leasehold.sync
from leasehold.concurrency.sync import Session, Mutex
store = leasehold.sync.connect(sys.argv[1])
session = Session.open(store, ttl_s=60)
Mutex(session, sys.argv[2]).lock()
print("held", flush=True)
"""


@on_servers
@pytest.mark.parametrize("program", [FORGETFUL_ASYNC, FORGETFUL_SYNC], ids=["async", "sync"])
async def test_interpreter_exit_frees_locks_that_were_not_released(
    url: str, coord: Coord, name: str, program: str
) -> None:
    """10: the session was not closed; its lease is revoked at exit, and no thread hangs."""
    child = await script(program, url, name)
    assert await line_of(child) == "held"
    assert await asyncio.wait_for(child.wait(), START_TIMEOUT_S) == 0
    assert await keys_under(coord, name) == []


FROZEN = """
import asyncio, os, sys, time
from leasehold.runtime import log
from leasehold.concurrency import Session, Mutex, SessionLost
from leasehold.coord.connect import connect
async def main():
    log.configure()
    coord = await connect(sys.argv[1])
    session = await Session.open(coord, ttl_s=2)
    try:
        async with Mutex(session, sys.argv[2]) as held:
            print("held", flush=True)
            while True:
                time.sleep(0.01)
                another_has_it = os.path.exists(sys.argv[3])
                held.check()
                if another_has_it:
                    print("trusts", flush=True)
    except SessionLost:
        print("lost", flush=True)
asyncio.run(main())
"""


@on_servers
async def test_a_client_frozen_past_its_ttl_knows_when_it_wakes(
    url: str, coord: Coord, name: str, tmp_path: Path
) -> None:
    """10: the next holder has the lock; the first one says "lost" before it does anything else."""
    another_has_it = tmp_path / "another has it"
    child = await script(FROZEN, url, name, str(another_has_it))
    assert await line_of(child) == "held"
    child.send_signal(signal.SIGSTOP)
    async with Session.open(coord) as session:
        await asyncio.wait_for(Mutex(session, name).lock(), PATIENCE_S)
        another_has_it.touch()
        child.send_signal(signal.SIGCONT)
        assert await line_of(child) == "lost"
        await child.wait()


async def test_a_store_that_dies_ends_holders_and_waiters(name: str) -> None:
    """The server stays down: the body is cancelled, and the waiter ends."""
    with EtcdCluster(1) as cluster:
        async with await connect(cluster.url) as coord:
            s1, s2 = await Session.open(coord, ttl_s=2), await Session.open(coord, ttl_s=2)

            async def hold() -> None:
                async with Mutex(s1, name):
                    await asyncio.sleep(60)

            holding = asyncio.create_task(hold())
            await waiters(coord, name, 1)
            waiting = asyncio.create_task(Mutex(s2, name).lock())
            await waiters(coord, name, 2)
            os.kill(cluster.nodes[0].pid, signal.SIGKILL)
            for task in (holding, waiting):
                with pytest.raises(SessionLost):
                    await asyncio.wait_for(task, PATIENCE_S)
            await asyncio.gather(s1.close(timeout_s=0.1), s2.close(timeout_s=0.1))


async def lost_in_time(harm: Callable[[EtcdNode], None]) -> None:
    """A session of 2 s whose server is harmed: 2 s later it is not reported alive any more."""
    async with EtcdCluster(1) as cluster, await connect(cluster.url, timeout_s=1) as coord:
        session = await Session.open(coord, ttl_s=2)
        harm(cluster.nodes[0])
        lease_end_ms = coord.now_ms() + 2_000
        async with asyncio.timeout(PATIENCE_S):
            await until(lambda: coord.now_ms() >= lease_end_ms)
            assert session.state is SessionState.LOST, "by the clock, whenever this process gets its turn"
            await session.wait_lost()
        await session.close(timeout_s=0.1)


async def test_a_session_is_lost_before_its_lease_can_be() -> None:
    """Whatever the silence of the server means. TestLeaseKeepAliveTTLTimeout"""
    await asyncio.gather(lost_in_time(EtcdNode.kill), lost_in_time(EtcdNode.freeze))


async def test_suspended_and_healthy_again(name: str) -> None:
    """Renewals that are not answered for a while suspend the session; locks stay held."""
    with EtcdCluster(1) as cluster:
        async with (
            await connect(cluster.url) as coord,
            Session.open(coord, ttl_s=6) as session,
            Mutex(session, name) as held,
        ):
            cluster.nodes[0].freeze()
            await until(lambda: session.state is SessionState.SUSPENDED)
            held.check()
            cluster.nodes[0].thaw()
            await until(lambda: session.state is SessionState.HEALTHY)
            held.check()
