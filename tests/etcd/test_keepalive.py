"""The engine that renews leases: its own thread, and no cost for the client's calls."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time

import pytest

import leasehold
from leasehold.coord.url import ConnectOptions
from leasehold.etcd.keepalive import KeepAliveEngine
from leasehold.runtime.clock import BootClock
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.waiting import until

# In a process of its own: other tests may have left event loops behind.
SCRIPT = """
import asyncio, sys
import leasehold

async def main():
    async with await leasehold.connect(sys.argv[1]) as client:
        await client.put(b"key", b"")
        sent_ms = client.now_ms()
        granted = await client.lease_grant(5)
        renewing = client.keep_alive(granted.id, granted.ttl_s, sent_ms)
        first_ms = renewing.deadline_ms
        loop, passed_on = asyncio.get_running_loop(), 0
        directly = loop.call_soon_threadsafe
        def count(*arguments, **options):
            nonlocal passed_on
            passed_on += 1
            return directly(*arguments, **options)
        loop.call_soon_threadsafe = count
        while renewing.deadline_ms == first_ms:
            await client.put(b"key", b"")
        print(passed_on)

asyncio.run(main())
"""


def test_answers_are_not_taken_by_the_thread_that_renews(etcd: EtcdCluster) -> None:
    """Answers arrive on the event loop of the caller. With grpc.aio on two loops, half arrived on the other one."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, etcd.url], capture_output=True, text=True, timeout=90, check=True
    )
    assert run.stdout.split() == ["0"]


STARVED = """
import asyncio, resource, sys
import leasehold

async def main():
    async with await leasehold.connect(sys.argv[1]) as client:
        lease = await client.lease_grant(60)
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (4, before[1]))
        renewing = client.keep_alive(lease.id, lease.ttl_s, client.now_ms() - 50_000)
        first_ms = renewing.deadline_ms
        await asyncio.sleep(0.5)
        assert renewing.deadline_ms == first_ms
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        while renewing.deadline_ms == first_ms:
            await asyncio.sleep(0.01)
        print("renewed")

asyncio.run(main())
"""


def test_a_process_without_file_descriptors_renews_as_soon_as_it_has_some(etcd: EtcdCluster) -> None:
    run = subprocess.run(
        [sys.executable, "-c", STARVED, etcd.url], capture_output=True, text=True, timeout=90, check=False
    )
    assert run.stdout.split()[-1:] == ["renewed"], run.stderr


@pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.01, 0.1])
def test_closing_stops_a_renewal_that_has_just_begun(delay_s: float) -> None:
    """The thread starts to renew while the client is closed: closing does not wait for a silent endpoint."""
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        engine = KeepAliveEngine([f"127.0.0.1:{silent.getsockname()[1]}"], ConnectOptions(), BootClock())
        engine.add(1, 60, BootClock().now_ms() - 59_000)
        time.sleep(delay_s)
        started_s = time.monotonic()
        engine.close()
        assert time.monotonic() - started_s < 0.9  # the silent endpoint would get a second
        assert not set(threading.enumerate()) - before


def test_closing_right_after_a_lease_was_given_up_stops_the_thread() -> None:
    """The request wakes the thread in the same moment in which closing cancels its task: the task must end."""
    for _ in range(200):
        engine = KeepAliveEngine(["127.0.0.1:1"], ConnectOptions(), BootClock())
        handle = engine.add(1, 60, BootClock().now_ms())
        time.sleep(0.001)
        handle.close()
        engine.close()


class Jumping(BootClock):
    """A clock that advances while timers do not: the host was suspended."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


async def test_a_host_that_wakes_up_renews_due_leases_immediately(etcd: EtcdCluster) -> None:
    """Else up to a third of the TTL passes, and a lease that could have been kept is lost."""
    clock = Jumping()
    async with await leasehold.connect(etcd.url) as client:
        lease = await client.lease_grant(60)
        engine = KeepAliveEngine([etcd.endpoints[0]], ConnectOptions(), clock)
        try:
            renewing = engine.add(lease.id, lease.ttl_s, clock.now_ms())
            first_ms = renewing.deadline_ms
            await asyncio.sleep(0.3)  # so that it waits
            clock.ahead_ms = 45_000
            await until(lambda: renewing.deadline_ms > first_ms, "a renewal", timeout_s=10)
        finally:
            engine.close()
            await client.lease_revoke(lease.id)
