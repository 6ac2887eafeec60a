"""The fate of a dead worker's connections: kill it at random moments, and compare with the requests really open.

The clients know what they sent and what they were answered, the held sockets what was never read: that is the truth,
and the judge, who sees neither, must say the same of every connection, in both directions.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest

from leasehold.ha.connection_verdict import ConnectionVerdict as Verdict
from leasehold.node.guardian.handoff import HeldConnections
from leasehold.testing.waiting import until
from leasehold.wire.frame import request, response

SERVER = Path(__file__).parent / "clients" / "held_server.py"
CLIENTS = 16
SHORT_BYTES, LONG_BYTES = len(response(0, b"ok")), len(response(0, bytes(300_000)))
FRAME_BYTES = len(request(0, 1, b"?"))


class Client:
    """One connection, driven step by step; it never blocks."""

    def __init__(self, address: tuple[str, int], chance: random.Random) -> None:
        self.sock = socket.create_connection(address)
        self.sock.setblocking(False)
        self.answers_bytes: list[int] = []  # of each request that was begun
        self.sent_bytes = self.received_bytes = 0
        self._functions = chance.choice([[1], [2], [1, 2], [1, 1, 1, 3], [1, 2, 3]])
        self._reads = chance.choice([1.0, 0.5, 0.05])
        self._unsent = b""

    def step(self, chance: random.Random) -> None:
        if chance.random() < 0.2:
            self._send(chance)
        elif chance.random() < self._reads:
            with contextlib.suppress(OSError):
                self.received_bytes += len(self.sock.recv(1 << 16))

    def _send(self, chance: random.Random) -> None:
        if not self._unsent:
            for _ in range(chance.choice([1, 1, 3])):
                function = chance.choice(self._functions)
                self._unsent += request(0, function, b"?")
                self.answers_bytes.append(LONG_BYTES if function == 3 else SHORT_BYTES)
        size = len(self._unsent) if chance.random() < 0.8 else chance.randrange(len(self._unsent)) + 1
        with contextlib.suppress(OSError):
            sent = self.sock.send(self._unsent[:size])
            self.sent_bytes += sent
            self._unsent = self._unsent[sent:]

    def has_arrived(self) -> bool:
        """Whether all sent bytes have arrived: on a busy machine the kernel needs time."""
        return fcntl.ioctl(self.sock.fileno(), termios.TIOCOUTQ, bytes(4)) == bytes(4)

    def take_the_rest(self) -> None:
        """Read everything that the dead server had written."""
        self.sock.settimeout(60.0)
        while data := self.sock.recv(1 << 20):
            self.received_bytes += len(data)


class Working(threading.Thread):
    """Uses all connections in turn, as fast as possible, until stopped."""

    def __init__(self, clients: list[Client], chance: random.Random) -> None:
        super().__init__(daemon=True)
        self.clients, self.chance, self.stop = clients, chance, False

    def run(self) -> None:
        while not self.stop:
            self.chance.choice(self.clients).step(self.chance)


async def kill_once(seed: int) -> list[tuple[Verdict, bool]]:
    """The verdict for each connection, and whether no request was open on it."""
    chance = random.Random(seed)
    holding = HeldConnections(CLIENTS)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        boot = holding.boot()
        fds = (listener.fileno(), boot.checkpoints_fd, boot.channel_fd)
        process = subprocess.Popen(
            [sys.executable, str(SERVER), *map(str, fds), str(CLIENTS)], pass_fds=fds, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        holding.started(lambda sock, _: sock.close())
        clients = [Client(listener.getsockname(), chance) for _ in range(CLIENTS)]
        await until(lambda: len(holding) == CLIENTS, "all are held")
        working = Working(clients, chance)
        working.start()
        time.sleep(chance.uniform(0.0, 0.1))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        working.stop = True
        working.join()
    by_address = {client.sock.getsockname(): client for client in clients}
    seen = []
    for sock, _, fate in holding.inherit():
        client = by_address[sock.getpeername()]
        await until(client.has_arrived, "what was sent has arrived")
        seen.append((fate, nothing_open(client, sock)))
        sock.close()
    for client in clients:
        client.sock.close()
    return seen


def nothing_open(client: Client, held: socket.socket) -> bool:
    """From the bytes that the client has sent and received, and the bytes not yet read."""
    held.setblocking(False)
    unread_bytes = 0
    with contextlib.suppress(BlockingIOError):
        while data := held.recv(1 << 20):
            unread_bytes += len(data)
    read_bytes = client.sent_bytes - unread_bytes
    owed_bytes = sum(client.answers_bytes[: read_bytes // FRAME_BYTES])
    held.shutdown(socket.SHUT_WR)
    client.take_the_rest()
    return read_bytes % FRAME_BYTES == 0 and client.received_bytes == owed_bytes


async def judge_is_right(first: int, kills: int) -> None:
    """Over this many kills, and more if a slow machine has not yet shown enough of both kinds."""
    seen = {(fate, idle): 0 for fate in (Verdict.FORWARD, Verdict.RESET) for idle in (True, False)}
    seed = first
    while seed < first + kills or min(seen[Verdict.FORWARD, True], seen[Verdict.RESET, False]) <= kills:
        assert seed < first + 10 * kills, f"there were not enough of both: {seen}"
        for fate, idle in await kill_once(seed):
            seen[fate, idle] += 1
            assert (fate is Verdict.FORWARD) == idle, f"seed {seed}: {fate}, although nothing open is {idle}"
        seed += 1
    print(
        f"{seed - first} kills: {seen[Verdict.FORWARD, True]} idle, {seen[Verdict.RESET, False]} open, all judged right"
    )


async def test_the_fate_of_every_connection_is_right() -> None:
    await judge_is_right(0, 6)


@pytest.mark.chaos
@pytest.mark.timeout(900)
async def test_the_fate_of_every_connection_is_right_in_300_kills() -> None:
    await judge_is_right(1_000, 300)
