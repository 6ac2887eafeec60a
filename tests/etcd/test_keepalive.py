"""Renewing leases must not cost the client's own calls anything."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time

import pytest

import leasehold
from leasehold.coord.url import ConnectOptions
from leasehold.etcd.keepalive import KeepAliveEngine
from leasehold.etcd.renewing import RenewingConnection
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
    """Answers come in on the loop of whoever asked; with grpc.aio on two loops, half of them came in on the other."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, etcd.url], capture_output=True, text=True, timeout=90, check=True
    )
    assert run.stdout.split() == ["0"]


def test_closing_ends_also_what_is_begun_in_that_moment() -> None:
    """The thread was about to renew when the client was closed: nobody waits for an endpoint that does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection = RenewingConnection([f"127.0.0.1:{silent.getsockname()[1]}"], ConnectOptions(), secure=False)
        connection.close()
        started_s = time.monotonic()
        with pytest.raises(ValueError, match="closed"):
            list(connection.renew([1], 10.0))
        assert time.monotonic() - started_s < 5


class Jumping(BootClock):
    """A clock that has gone on while whoever waits stood still: the host was asleep."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


async def test_a_host_that_wakes_up_renews_at_once_what_was_due(etcd: EtcdCluster) -> None:
    """Else up to a third of the TTL passes, and a lease that could have been kept is lost."""
    clock = Jumping()
    async with await leasehold.connect(etcd.url) as client:
        lease = await client.lease_grant(60)
        engine = KeepAliveEngine([etcd.endpoints[0]], ConnectOptions(), clock, secure=False)
        try:
            renewing = engine.add(lease.id, lease.ttl_s, clock.now_ms())
            first_ms = renewing.deadline_ms
            await asyncio.sleep(0.3)  # so that it waits
            clock.ahead_ms = 45_000
            await until(lambda: renewing.deadline_ms > first_ms, "a renewal", timeout_s=10)
        finally:
            engine.close()
            await client.lease_revoke(lease.id)
