"""A single node that is stopped (SIGSTOP) for longer than the client TTL: its clients are not declared dead."""

from __future__ import annotations

import os
import signal
import time

import pytest
from tests.node.adopting import pool_user

from leasehold.testing.node import NodeProcess
from leasehold.testing.process import wait_until

pytestmark = [pytest.mark.xdist_group("real_client"), pytest.mark.usefixtures("wheel")]

OBJECTS = 20


def test_a_paused_node_keeps_the_objects_of_its_clients() -> None:
    with NodeProcess("memory://", "a", arguments=["--client-ttl", "4s"]) as node:
        wait_until(node.is_primary, "the node leads")
        with pool_user(node.rpc, 64, "mooncake_cluster") as user:
            assert user.fill("a", OBJECTS) == OBJECTS
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for pid in (node.pid, node.worker_pid):
                    os.kill(pid, number)
                if number == signal.SIGSTOP:
                    time.sleep(7)  # the pause is what is tested: longer than the client TTL
            wait_until(lambda: user.read("a", 1) == (1, 0, 0), "the node answers again")
            assert user.read("a", OBJECTS) == (OBJECTS, 0, 0)
