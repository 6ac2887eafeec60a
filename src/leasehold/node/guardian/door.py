"""The door: connections that arrive while this node's worker is not the primary.

They are accepted and held, *nothing of them read*, until there is a primary; then bytes are copied both ways to the
primary's worker-only port. That port says one byte, `HELLO`, if and only if its worker is the primary: only after it
is anything read from the client. A connection of which anything was read is never moved: when either side ends, both
are reset, and the client knows that its unanswered calls have an unknown outcome (schedule 20).

The one who dials first names the wire release that the client's port speaks: one byte of length, then the name.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from leasehold.runtime.accepting import Acceptor
from leasehold.runtime.clock import BootClock
from leasehold.runtime.tasks import TaskSet
from leasehold.runtime.tcp import peer_is_gone, reset

log = structlog.get_logger("leasehold.door")

HELLO: Final = b"\x4c"
DIAL_TIMEOUT_S: Final = 1.0
REDIAL_PAUSE_S: Final = 0.02
COPY_BUFFER_BYTES: Final = 64 * 1024
FORWARDED_PER_HELD: Final = 16  # so many times the bound of what may wait may be forwarded at once


@dataclass(slots=True)
class DoorCounts:
    """What went through the door, for the log and the metrics."""

    held: int = 0
    inherited: int = 0  # of them, from a worker that died
    forwarded: int = 0
    reset_full: int = 0
    reset_timeout: int = 0
    gone: int = 0


@dataclass(slots=True)
class Door:
    """Accepts on `listeners` (socket and wire release) while open. `point` says where the primary's door is."""

    listeners: list[tuple[socket.socket, str]]
    held_max: int
    hold_timeout_ms: int
    counts: DoorCounts = field(default_factory=DoorCounts)
    _target: str = ""
    _open: bool = False
    _acceptors: list[Acceptor] = field(default_factory=list)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: TaskSet = field(default_factory=TaskSet)
    _clock: BootClock = field(default_factory=BootClock)
    _waiting: int = 0

    def set_open(self, open_: bool) -> None:
        """Start or stop accepting. What is held or forwarded already goes on."""
        if open_ == self._open:
            return
        self._open = open_
        if not self._acceptors:
            self._acceptors = [Acceptor(sock, partial(self._accepted, table)) for sock, table in self.listeners]
        for acceptor in self._acceptors:
            acceptor.set_on(open_)

    def point(self, address: str) -> None:
        """The primary's worker-only port, "" while there is none."""
        if address != self._target:
            self._target = address
            self._moved.set()  # whoever waits for the old one looks again
            self._moved = asyncio.Event()

    def inherit(self, sock: socket.socket, port: int) -> None:
        """Hold a dead worker's connection on which nothing is open; it came by the `port`th of `listeners`."""
        self.counts.inherited += 1
        self._accepted(self.listeners[port][1], sock, None)

    async def close(self) -> None:
        self.set_open(False)
        await self._tasks.close()

    def _accepted(self, table: str, sock: socket.socket, _address: object) -> None:
        if self._waiting >= self.held_max or len(self._tasks) >= self.held_max * FORWARDED_PER_HELD:
            self.counts.reset_full += 1
            reset(sock)
        else:
            self._tasks.start(self._serve(sock, table))

    async def _serve(self, client: socket.socket, table: str) -> None:
        self.counts.held += 1
        upstream: socket.socket | None = None
        try:
            self._waiting += 1
            try:
                upstream = await self._find_primary(client, table)
            finally:
                self._waiting -= 1
            if upstream is not None:
                self.counts.forwarded += 1
                await copy_both_ways(client, upstream)
        finally:
            reset(client)
            if upstream is not None:
                reset(upstream)

    async def _find_primary(self, client: socket.socket, table: str) -> socket.socket | None:
        """Dial until a worker says that it is the primary, the client has gone, or time is up."""
        give_up_ms = self._clock.now_ms() + self.hold_timeout_ms
        while (left_ms := give_up_ms - self._clock.now_ms()) > 0:
            if peer_is_gone(client):
                self.counts.gone += 1
                return None
            upstream = await self._dial_unless_moved(table, min(left_ms, 1000) / 1000)
            if upstream is None:
                continue
            if not peer_is_gone(client):
                return upstream
            reset(upstream)
        self.counts.reset_timeout += 1
        return None

    async def _dial_unless_moved(self, table: str, timeout_s: float) -> socket.socket | None:
        """Dial the primary, but not longer than it is the one: a dead or frozen worker's port may stay silent."""
        moved, target = self._moved, self._target
        waiting = asyncio.ensure_future(moved.wait())
        dialling = asyncio.ensure_future(_dial_again(target, table)) if target else None
        tasks = {waiting} if dialling is None else {waiting, dialling}
        try:
            await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            return dialling.result() if dialling is not None and dialling.done() else None
        finally:
            for task in tasks:
                task.cancel()


async def _dial_again(address: str, table: str) -> socket.socket:
    """Dial until the worker there says that it is the primary; the caller sets the limit."""
    while True:
        if (sock := await dial(address, table)) is not None:
            return sock
        await asyncio.sleep(REDIAL_PAUSE_S)


async def dial(address: str, table: str = "") -> socket.socket | None:
    """A connection to a worker that has said `HELLO`, or None. `table` is the wire release to be spoken on it."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        async with asyncio.timeout(DIAL_TIMEOUT_S):
            await loop.sock_connect(sock, (host.strip("[]"), int(port)))
            await loop.sock_sendall(sock, bytes([len(table)]) + table.encode())
            if await loop.sock_recv(sock, len(HELLO)) == HELLO:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return sock
    except (OSError, TimeoutError, ValueError):
        pass
    except BaseException:
        sock.close()
        raise
    sock.close()
    return None


async def copy_both_ways(left: socket.socket, right: socket.socket) -> None:
    """Copy until either direction ends: half a conversation is of no use to anybody."""
    left.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ways = [asyncio.ensure_future(_copy(left, right)), asyncio.ensure_future(_copy(right, left))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _copy(source: socket.socket, sink: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    buffer = bytearray(COPY_BUFFER_BYTES)
    view = memoryview(buffer)
    with contextlib.suppress(OSError):
        while count := await loop.sock_recv_into(source, buffer):
            await loop.sock_sendall(sink, view[:count])
