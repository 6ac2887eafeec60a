"""Planned changes of leadership: nothing fails beyond one retry, and the index is the same afterwards."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import msgspec
import pytest

from leasehold.testing.load import Burst
from leasehold.testing.node import NodeGroup
from leasehold.testing.process import wait_until
from leasehold.testing.workload import Lender, Putter, missing

pytestmark = pytest.mark.xdist_group("switchover")  # its processes are shared by the module


def test_switchover_to_a_named_node_by_the_command_line(pair: NodeGroup) -> None:
    old = pair.primary()
    new = next(node for node in pair.nodes if node is not old)
    done = subprocess.run(
        [sys.executable, "-m", "leasehold", "switchover", "--admin", new.admin, "--to", new.node_name],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout.strip() == f"{new.node_name} leads now"
    assert pair.primary() is new
    pair.settle()
    assert new.switchover(new.node_name)[0] == 409, "it leads already, and is no standby"
    history = [(line.node, line.role) for line in new.history()]
    assert (new.node_name, "primary") in history


async def test_switchover_under_load_loses_nothing_and_needs_no_remount(pair: NodeGroup) -> None:
    master = ",".join(pair.addresses)
    async with Lender(master, size=8 << 30) as lender:
        before = pair.primary()
        async with Burst(master) as writers:
            status, body = await asyncio.to_thread(before.switchover)
            assert status == 200, body
            await asyncio.sleep(0.5)
        assert pair.primary() is not before
        assert await missing(master, writers.acknowledged) == []
        assert all(len(failures) <= 1 for failures in writers.failures), writers.failures
        assert lender.remounts == 0


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=[pytest.mark.chaos, pytest.mark.timeout(900)])])
async def test_a_rolling_restart_under_load_keeps_the_index(pair: NodeGroup, rounds: int) -> None:
    master = ",".join(pair.addresses)
    async with Lender(master, size=8 << 30) as lender:
        kept = Putter(master, "kept")
        await kept.put_batch(200)
        async with Burst(master, writers=2) as writers:
            for node in pair.nodes * rounds:
                await asyncio.to_thread(node.stop)  # SIGTERM: it hands over first
                await asyncio.to_thread(node.start)
                await asyncio.to_thread(pair.settle)
        assert await missing(master, sorted(kept.results.acknowledged)) == []
        assert await missing(master, writers.acknowledged) == []
        assert lender.remounts == 0
        kept.close()


def test_a_paused_cluster_elects_no_leader_until_resume(pair: NodeGroup) -> None:
    admin = ",".join(node.admin for node in pair.nodes)

    def operate(*words: str) -> str:
        command = [sys.executable, "-m", "leasehold", *words, "--admin", admin]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode in (0, 3), done.stderr  # 3: a problem is listed, such as the pause
        return done.stdout

    operate("pause", "--reason", "work on the store")
    assert "work on the store" in operate("status")
    victim = pair.primary()
    other = next(node for node in pair.nodes if node is not victim)
    victim.kill_worker()
    wait_until(lambda: other.cluster_status().leader == "", "the leader key is deleted")
    with pytest.raises(Exception, match="a node serves"):
        pair.primary(timeout_s=1.5)
    operate("resume")
    pair.primary()
    status = msgspec.json.decode(operate("status", "--json"))
    assert status["cluster"]["paused"] == ""
