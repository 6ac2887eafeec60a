"""A guardian waits longer for heartbeats of a worker that promotes: its index may be large, and it serves nothing."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from uuid import uuid4

import pytest

from leasehold.coord.connect import connect
from leasehold.ha.keys import Keys
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeProcess
from leasehold.testing.process import wait_until

BEAT_TIMEOUT_S, START_TIMEOUT_S, STEP_S, STEPS = 1.0, 8.0, 2.5, 4
SILENT = re.compile(r"sent no heartbeat for (\d+) ms")


async def _delete_leader_key(url: str, cluster: str) -> None:
    async with await connect(url) as coord:
        await coord.delete(Keys(cluster).leader)


def _promoting(node: NodeProcess) -> int:
    """The pid of the worker that was elected and waits, for minutes, until the previous epoch has lapsed."""
    wait_until(lambda: node.status().role == "promoting", lambda: f"it promotes: {node.status()}\n{node.log_tail()}")
    return node.worker_pid


@pytest.mark.chaos
def test_a_promotion_may_take_long_steps_but_must_not_hang(etcd: EtcdCluster, tmp_path: Path) -> None:
    """Freeze the worker repeatedly for longer than the heartbeat timeout, as the steps of a very large promotion do."""
    cluster = f"c{uuid4().hex[:8]}"
    patience = ["--heartbeat-timeout", f"{BEAT_TIMEOUT_S * 1000:.0f}ms", "--start-timeout", f"{START_TIMEOUT_S:.0f}s"]
    arguments = [
        "--leader-ttl",
        "60s",
        "--leader-margin",
        "2s",
        "--client-ttl",
        "10m",
        "--hold-timeout",
        "2m",
        *patience,
    ]
    with NodeProcess(etcd.url, "a", cluster=cluster, data_dir=tmp_path, arguments=arguments) as node:
        wait_until(node.is_primary, node.log_tail)
        # Delete the key directly: no end marker, and no wait for the lease to expire.
        asyncio.run(_delete_leader_key(etcd.url, cluster))
        worker = _promoting(node)
        before = len(node.log_path.read_text())  # a slow machine may have needed several starts until now
        for _ in range(STEPS):
            node.freeze_worker()
            time.sleep(STEP_S)
            node.thaw_worker()
            assert _promoting(node) == worker, node.log_tail()
            time.sleep(4 * BEAT_TIMEOUT_S / 5)  # the step has finished: the guardian sees heartbeats
        assert not SILENT.search(node.log_path.read_text()[before:]), (
            "killed, although no single gap was longer than the start timeout"
        )
        node.freeze_worker()
        wait_until(lambda: node.worker_pid != worker, lambda: f"one that stands still is killed\n{node.log_tail()}")
        (silent_ms,) = SILENT.findall(node.log_path.read_text()[before:])
        assert int(silent_ms) > START_TIMEOUT_S * 1000
