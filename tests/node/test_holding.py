"""The guardian's hold on connections: real descriptors over a real channel, in one process."""

from __future__ import annotations

import gc
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from leasehold.ha.inheritance import Fate
from leasehold.node.boot import HoldsBoot
from leasehold.node.guardian.holding import Holding, slots_for
from leasehold.node.holds import WorkerHolds
from leasehold.runtime import tcp
from leasehold.testing.waiting import until


class Both:
    """A guardian's side and a worker's, as after an exec; and a listening socket to have connections from."""

    def __init__(self, slots: int) -> None:
        self.handed_over: list[tuple[socket.socket, int]] = []
        self.holding = Holding(slots)
        boot = self.holding.boot()
        self.worker = WorkerHolds(HoldsBoot(os.dup(boot.marks_fd), os.dup(boot.channel_fd), slots))
        self.holding.started(lambda sock, port: self.handed_over.append((sock, port)))
        self.listener = socket.create_server(("127.0.0.1", 0))

    def connect(self) -> tuple[socket.socket, socket.socket]:
        client = socket.create_connection(self.listener.getsockname())
        return client, self.listener.accept()[0]

    def fates(self) -> list[Fate]:
        found = []
        for sock, _, fate in self.holding.inherit():
            found.append(fate)
            sock.close()
        return found


@contextmanager
def undisturbed() -> Iterator[None]:
    """What other tests have dropped is collected, and its descriptors closed, before; not in the middle of a count."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """This process may open so many more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = [os.open(os.devnull, os.O_RDONLY) for _ in range(count + 1)]
    for fd in spare:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(spare), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_what_the_worker_has_accepted_is_judged_by_what_has_passed() -> None:
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
    held.marks[2] = 5 + 3
    answered[1].sendall(b"yes")
    await until(lambda: len(both.holding) == 4, "all are taken")
    assert sorted(fate.value for fate in both.fates()) == ["drop", "forward", "forward", "reset"]


async def test_one_that_was_given_and_not_yet_taken_is_inherited_too() -> None:
    both = Both(4)
    client, accepted = both.connect()
    assert both.worker.hold(0, accepted, 0) is not None
    assert both.fates() == [Fate.FORWARD], "the loop has not run in between"
    client.close()


async def test_a_connection_that_is_over_is_let_go_and_its_slot_used_again() -> None:
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


async def test_what_is_handed_over_is_the_guardians_before_its_slot_is_used_again() -> None:
    both = Both(1)
    first, second = both.connect(), both.connect()
    held = both.worker.hold(3, first[1], 0)
    assert held is not None
    assert held.hand_over()
    assert both.worker.hold(0, second[1], 0) is not None
    await until(lambda: len(both.holding) == 1, "the second is taken")
    ((sock, port),) = both.handed_over
    assert (sock.getpeername(), port) == (first[0].getsockname(), 3)
    assert both.fates() == [Fate.FORWARD]
    sock.close()


async def test_a_guardian_that_does_not_listen_holds_nothing_and_nobody_waits_for_it() -> None:
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


@pytest.mark.parametrize("left", [0, 1, 2, 3, 4])
async def test_a_hold_that_cannot_be_made_leaves_nothing_behind(left: int) -> None:
    with undisturbed():
        before = len(os.listdir("/proc/self/fd"))
        with descriptors_left(left), pytest.raises(OSError, match="Too many open files"):
            Holding(8)
        assert len(os.listdir("/proc/self/fd")) == before


def test_the_guardian_keeps_descriptors_for_itself() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1_024, hard))
        assert slots_for(4_096) == 448
        assert slots_for(100) == 100
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_connection_that_the_worker_resets_is_let_go_too() -> None:
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
