"""A guardian on a host without free descriptors or processes: it continues, logs it, and needs no restart."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leasehold.testing.node import NodeGroup, NodeProcess
from leasehold.testing.process import wait_until
from leasehold.testing.workload import Lender, Putter, recovery_ms
from leasehold.wire.client import Client

pytestmark = pytest.mark.xdist_group("starved_guardian")  # its processes are shared by the module


@contextmanager
def no_more_descriptors(node: NodeProcess) -> Iterator[None]:
    """The guardian keeps its open descriptors, and gets no new ones."""
    before = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (4, before[1]))
    try:
        yield
    finally:
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, before)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_a_guardian_survives_failed_starts_of_its_worker(pair: NodeGroup) -> None:
    """The guardian used to exit with an exception, so the node was down until an operator restarted it."""
    victim = pair.primary()
    async with Lender(",".join(pair.addresses)):
        putter = Putter(",".join(pair.addresses), "k")
        await putter.put_batch(1)
        with no_more_descriptors(victim):
            victim.kill_worker()
            await recovery_ms(next(node.rpc for node in pair.nodes if node is not victim), putter.key(0))
            await asyncio.to_thread(
                wait_until, lambda: victim.log_path.read_text().count("cannot start a worker") >= 2, "tried again"
            )
            async with Client(victim.rpc, timeout_ms=20_000) as clinging:
                waiting = asyncio.ensure_future(clinging.exist_key(putter.key(0)))
                await asyncio.sleep(0.2)
                began_s, before_s = time.monotonic(), cpu_s(victim.pid)
                await asyncio.sleep(1.0)
                used_s = cpu_s(victim.pid) - before_s
                assert used_s < 0.5 * (time.monotonic() - began_s), "one that cannot be accepted must not make it spin"
                assert not waiting.done()
                with_more = resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE)
                resource.prlimit(victim.pid, resource.RLIMIT_NOFILE, with_more)
                assert await waiting, "forwarded as soon as it can be"
        await asyncio.to_thread(pair.settle)
        assert victim.is_standby()
        putter.close()
