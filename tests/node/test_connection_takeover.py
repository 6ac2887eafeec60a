"""Connections that survive the worker that accepted them, with real processes and a real etcd."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from tests.measured import until_met

from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeGroup, NodeProcess
from leasehold.testing.process import wait_until
from leasehold.wire.body import pack
from leasehold.wire.frame import RESPONSE_HEAD_BYTES, request
from leasehold.wire.tables import V0_3_13

pytestmark = pytest.mark.xdist_group("inherited")  # its processes are shared by the module

EXIST = V0_3_13.functions["ExistKey"]
KEY = b"k"
CALL_S = 60.0  # only ends a hang; not a measurement


class Caller:
    """A single connection: never reopened, and no request is repeated."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=CALL_S)

    @staticmethod
    def question() -> bytes:
        assert EXIST.request is not None
        return request(1, EXIST.id, pack(EXIST.request, (KEY, b"default")))

    def ask(self) -> None:
        """Query a key. It never exists, but a master must answer."""
        self.sock.sendall(self.question())
        self.hear()

    def hear(self) -> None:
        got = b""
        while len(got) < RESPONSE_HEAD_BYTES or len(got) < self._whole(got):
            piece = self.sock.recv(4096)
            if not piece:
                raise ConnectionResetError("closed")
            got += piece
        assert got[2] == 0, "an answer, not an error"

    @staticmethod
    def _whole(got: bytes) -> int:
        return RESPONSE_HEAD_BYTES + int.from_bytes(got[8:12], "little") + int.from_bytes(got[12:16], "little")

    def end(self) -> str:
        """How the connection ends."""
        try:
            return "closed" if not self.sock.recv(1) else "answered"
        except ConnectionResetError:
            return "reset"

    def ask_or_end(self) -> str:
        """`answered`, or how the connection ends instead."""
        try:
            self.ask()
        except OSError as error:
            return type(error).__name__
        return "answered"

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()


@contextmanager
def callers(node: NodeProcess, count: int) -> Iterator[list[Caller]]:
    """This many connections to a node, each used once."""
    with ExitStack() as open_:
        made = [open_.enter_context(Caller(node.rpc)) for _ in range(count)]
        for caller in made:
            caller.ask()
        yield made


def files_open(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_an_idle_connection_survives_its_worker_and_no_call_fails(pair: NodeGroup) -> None:
    victim = pair.primary()
    with callers(victim, 20) as made:
        victim.kill_worker()
        for caller in made:
            caller.ask()
        assert pair.primary() is not victim
        for caller in made:
            caller.ask()


def test_requests_sent_to_a_frozen_worker_are_answered_by_its_successor(pair: NodeGroup) -> None:
    """The frozen worker has not read the request, so it cannot have executed it: the outcome is known."""
    victim = pair.primary()
    with callers(victim, 3) as made:
        victim.freeze_worker()
        for caller in made:
            caller.sock.sendall(caller.question())
        for caller in made:
            caller.hear()
        assert pair.primary() is not victim


def test_a_connection_with_a_request_open_is_reset(pair: NodeGroup) -> None:
    victim = pair.primary()
    with callers(victim, 4) as made:
        for caller in made[:2]:
            caller.sock.sendall(caller.question()[:10])
        wait_until_read(victim)
        victim.kill_worker()
        assert [caller.end() for caller in made[:2]] == ["reset", "reset"]
        for caller in made[2:]:
            caller.ask()


@pytest.mark.alone
def test_a_connection_with_a_request_open_is_reset_within_a_tenth_of_a_second(pair: NodeGroup) -> None:
    for took_s in until_met(0.1, "s until a connection with an open request is reset"):
        pair.revive()
        victim = pair.primary()
        with callers(victim, 4) as made:
            for caller in made:
                caller.sock.sendall(caller.question()[:10])
            wait_until_read(victim)
            victim.kill_worker()
            start_s = time.monotonic()
            assert {caller.end() for caller in made} == {"reset"}
            took_s.append(time.monotonic() - start_s)


def wait_until_read(node: NodeProcess) -> None:
    wait_until(lambda: _unread(node) == 0, "the worker has read what was sent")


def _unread(node: NodeProcess) -> int:
    """Bytes that wait, unread, in connections to this node's port."""
    port = f":{node.rpc_port:04X}"
    rows = [line.split() for line in Path(f"/proc/{node.pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(int(row[4].split(":")[1], 16) for row in rows if row[1].endswith(port) and row[3] == "01")


def test_a_switchover_leaves_idle_connections_alone(pair: NodeGroup) -> None:
    victim = pair.primary()
    with callers(victim, 8) as made:
        for _ in range(2):
            pair.settle()
            assert pair.primary().switchover()[0] == 200
            for caller in made:
                caller.ask()


def test_a_forwarded_connection_survives_the_next_primary_too(pair: NodeGroup) -> None:
    """The forwarding guardian sees that no request is open, and needs no other process for that."""
    first = pair.primary()
    with callers(first, 8) as made:
        for _ in range(3):
            pair.revive()
            pair.primary().kill_worker()
            for caller in made:
                caller.ask()


def test_a_thousand_connections_that_come_and_go_leave_nothing_at_the_guardian(
    etcd: EtcdCluster, tmp_path: Path
) -> None:
    """Eight slots for a thousand connections: each slot is reused, and its last connection counts."""
    cluster, arguments = f"c{uuid4().hex[:8]}", ["--held-connections-max", "8"]
    with NodeGroup(etcd.url, 2, cluster=cluster, folder=tmp_path, arguments=arguments) as nodes:
        victim = nodes.primary()
        before = files_open(victim.pid)
        for _ in range(125):
            with callers(victim, 8):
                pass
        wait_until(lambda: files_open(victim.pid) <= before, "all are let go")
        with callers(victim, 12) as made:
            victim.kill_worker()
            ends = Counter(caller.ask_or_end() for caller in made)
        assert ends["answered"] == 8, f"those beyond the bound end with their worker, and only those: {ends}"


class Asking(threading.Thread):
    """Sends requests on one connection until stopped, and opens another when that fails."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.address, self.stop, self.calls, self.failed, self.longest_s = address, False, 0, 0, 0.0

    def run(self) -> None:
        caller = Caller(self.address)
        while not self.stop:
            start_s = time.monotonic()
            try:
                caller.ask()
                self.calls += 1
            except OSError:
                self.failed += 1
                caller.sock.close()
                caller = Caller(self.address)
            self.longest_s = max(self.longest_s, time.monotonic() - start_s)
        caller.sock.close()


@contextmanager
def sixteen_ask(address: str) -> Iterator[list[Asking]]:
    """Run clients from before until after the fault; none of them may wait long or fail twice."""
    asking = [Asking(address) for _ in range(16)]
    for each in asking:
        each.start()
    time.sleep(0.3)
    yield asking
    time.sleep(0.7)
    for each in asking:
        each.stop = True
    for each in asking:
        each.join(CALL_S)
    assert max(each.longest_s for each in asking) < 2.0, "no client waits for an answer that cannot arrive"
    assert max(each.failed for each in asking) <= 1


def counts_of(asking: list[Asking]) -> tuple[int, int]:
    """Calls and failures."""
    return sum(each.calls for each in asking), sum(each.failed for each in asking)


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_under_load_no_call_hangs_and_none_fails_twice(pair: NodeGroup) -> None:
    """A request that was read and lost is never answered: it must not be mistaken for an idle connection."""
    counts: list[tuple[int, int]] = []
    for _ in range(15):
        pair.revive(60)
        victim = pair.primary()
        with sixteen_ask(victim.rpc) as asking:
            victim.kill_worker()
        counts.append(counts_of(asking))
    print(f"16 connections, 15 kills: calls and failures {counts}")


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_under_load_a_switchover_fails_no_call_twice(pair: NodeGroup) -> None:
    counts: list[tuple[int, int]] = []
    for _ in range(5):
        pair.revive(60)
        with sixteen_ask(pair.primary().rpc) as asking:
            assert pair.primary().switchover()[0] == 200
        counts.append(counts_of(asking))
    print(f"16 connections, 5 switchovers: calls and failures {counts}")
