"""The guardian's hold on connections: real descriptors over a real channel, in one process."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys

import pytest

from leasehold.ha.connection_verdict import ConnectionVerdict
from leasehold.node.boot import HandoffBoot
from leasehold.node.guardian.handoff import HeldConnections, slots_for
from leasehold.node.worker.handoff import ConnectionSharing
from leasehold.runtime import tcp
from leasehold.testing.waiting import until


class Both:
    """The guardian's and the worker's side, as after an exec, and a listening socket for connections."""

    def __init__(self, slots: int) -> None:
        self.handed_over: list[tuple[socket.socket, int]] = []
        self.holding = HeldConnections(slots)
        boot = self.holding.boot()
        self.worker = ConnectionSharing(HandoffBoot(os.dup(boot.checkpoints_fd), os.dup(boot.channel_fd), slots))
        self.holding.started(lambda sock, port: self.handed_over.append((sock, port)))
        self.listener = socket.create_server(("127.0.0.1", 0))

    def connect(self) -> tuple[socket.socket, socket.socket]:
        client = socket.create_connection(self.listener.getsockname())
        return client, self.listener.accept()[0]

    def fates(self) -> list[ConnectionVerdict]:
        found = []
        for sock, _, fate in self.holding.inherit():
            found.append(fate)
            sock.close()
        return found


async def test_the_fate_of_a_connection_follows_from_the_bytes_that_passed() -> None:
    both = Both(4)
    idle, read, answered = (both.connect() for _ in range(3))
    for _, accepted in (idle, read, answered):
        assert both.worker.hold(0, accepted, 0) is not None
    for client, accepted in (read, answered):
        client.sendall(b"12345")
        assert accepted.recv(5) == b"12345"
    held = both.worker.hold(1, both.connect()[1], 0)
    assert held is not None
    assert both.worker.hold(0, both.connect()[1], 0) is None, "there are four slots"
    held.checkpoints[2] = 5 + 3
    answered[1].sendall(b"yes")
    await until(lambda: len(both.holding) == 4, "all are taken")
    assert sorted(fate.value for fate in both.fates()) == ["drop", "forward", "forward", "reset"]


async def test_a_connection_still_in_the_channel_is_inherited_too() -> None:
    both = Both(4)
    client, accepted = both.connect()
    assert both.worker.hold(0, accepted, 0) is not None
    assert both.fates() == [ConnectionVerdict.FORWARD], "the loop has not run in between"
    client.close()


async def test_a_closed_connection_is_released_and_its_slot_reused() -> None:
    both = Both(1)
    for _ in range(50):
        client, accepted = both.connect()
        held = both.worker.hold(0, accepted, 0)
        assert held is not None
        await until(lambda: len(both.holding) == 1, "it is taken")
        accepted.shutdown(socket.SHUT_RDWR)
        accepted.close()
        held.let_go()
        client.close()
        await until(lambda: len(both.holding) == 0, "it is let go")
    assert both.fates() == []


async def test_a_handed_over_connection_leaves_its_slot_before_the_slot_is_reused() -> None:
    both = Both(1)
    first, second = both.connect(), both.connect()
    held = both.worker.hold(3, first[1], 0)
    assert held is not None
    assert held.hand_over()
    assert both.worker.hold(0, second[1], 0) is not None
    await until(lambda: len(both.holding) == 1, "the second is taken")
    ((sock, port),) = both.handed_over
    assert (sock.getpeername(), port) == (first[0].getsockname(), 3)
    assert both.fates() == [ConnectionVerdict.FORWARD]
    sock.close()


async def test_a_frozen_guardian_holds_nothing_and_does_not_block_the_worker() -> None:
    both = Both(5_000)
    _, accepted = both.connect()
    held = 0
    while both.worker.hold(0, accepted, 0) is not None:
        held += 1
        assert held < 5_000, "the channel is bounded"
    assert both.worker.hold(0, accepted, 0) is None
    await until(lambda: len(both.holding) == held, "it listens again")
    again = both.worker.hold(0, accepted, 0)
    assert again is not None
    both.fates()


COUNT_WHAT_IS_LEFT = """
import asyncio, os, resource
from leasehold.node.guardian.handoff import HeldConnections

def open_files():
    return sorted(os.listdir("/proc/self/fd"))

async def main():
    before, limits = open_files(), resource.getrlimit(resource.RLIMIT_NOFILE)
    for left in range(5):
        spare = [os.open(os.devnull, os.O_RDONLY) for _ in range(left + 1)]
        for fd in spare:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(spare), limits[1]))  # this many more may be opened
        try:
            HeldConnections(8)
        except OSError as error:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            print(left, error.strerror, open_files() == before)

asyncio.run(main())
"""


def test_a_failed_start_of_the_handoff_leaks_no_descriptor() -> None:
    """In a separate process, where no other code opens or closes files."""
    done = subprocess.run([sys.executable, "-c", COUNT_WHAT_IS_LEFT], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{left} Too many open files True" for left in range(5)]


def test_the_guardian_reserves_descriptors_for_itself() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1_024, hard))
        assert slots_for(4_096) == 448
        assert slots_for(100) == 100
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_connection_that_the_worker_resets_is_released_too() -> None:
    both = Both(2)
    client, accepted = both.connect()
    assert both.worker.hold(0, accepted, 0) is not None
    await until(lambda: len(both.holding) == 1, "it is taken")
    tcp.cut(accepted)
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    await until(lambda: len(both.holding) == 0, "it is let go")
    accepted.close()
    assert both.fates() == []
