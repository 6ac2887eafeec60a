"""The door: connections that arrive while this node's worker is not the primary.

They are accepted and held, *nothing of them read*, until there is a primary; then bytes are copied both ways to the
primary's worker-only port. That port says one byte, `HELLO`, if and only if its worker is the primary: only after it
is anything read from the client. When that primary goes, a connection on which a request is open is reset, never moved:
its client must know that the outcome is unknown (schedule 20). One on which everything that was asked has been answered
is like one of which nothing was read: it is held again. So are those that a dead worker of this node leaves behind.

Among these may be connections of other guardians: then there are two of us on the way to the primary, until the first
one sees that another leads and goes there by itself. What is dialled is always a worker: there are no circles.

The one who dials first names the wire release that the client's port speaks: one byte of length, then the name.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Final

import structlog

from leasehold.runtime.accepting import Acceptor
from leasehold.runtime.clock import BootClock
from leasehold.runtime.tasks import TaskSet
from leasehold.runtime.tcp import keep_alive, passed_bytes, peer_has_closed, reset
from leasehold.wire.request_counter import Tally

log = structlog.get_logger("leasehold.door")

HELLO: Final = b"\x4c"
DIAL_TIMEOUT_S: Final = 1.0
DIALS_AT_ONCE: Final = 64  # thousands that were held go on at the same moment: the primary's queue is not longer
REDIAL_PAUSE_S: Final = 0.02
COPY_BYTES: Final = 64 * 1024
FORWARDED_PER_HELD: Final = 16  # so many times the bound of what may wait may be forwarded at once


class Ending(Enum):
    """How a forwarded connection has ended, for its client."""

    HOLD = "nothing is open: it may go on with the next primary"
    CLOSE = "one side has said that it has ended, and the other has said all that was due"
    RESET = "something is open: its client must know that the outcome is unknown"


@dataclass(slots=True)
class DoorCounts:
    """What went through the door, for the log and the metrics."""

    held: int = 0
    inherited: int = 0  # of them, from the worker
    forwarded: int = 0
    held_again: int = 0
    reset_full: int = 0
    reset_timeout: int = 0
    gone: int = 0


@dataclass(slots=True)
class Door:
    """Accepts on `listeners` (socket and wire release) while open. `point` says where the primary's door is."""

    listeners: list[tuple[socket.socket, str]]
    held_max: int
    hold_timeout_ms: int
    idle_ms: int  # a connection on which nothing is asked for so long is ended
    counts: DoorCounts = field(default_factory=DoorCounts)
    _target: str = ""
    _open: bool = False
    _acceptors: list[Acceptor] = field(default_factory=list)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: TaskSet = field(default_factory=TaskSet)
    _clock: BootClock = field(default_factory=BootClock)
    waiting: int = 0  # for a primary, with something to say
    _dialling: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(DIALS_AT_ONCE))

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
        """Hold a connection that the worker left, dying or stepping down, and on which nothing is open.

        It came by the `port`th of `listeners`.
        """
        self.counts.inherited += 1
        self._accepted(self.listeners[port][1], sock, None)

    async def close(self) -> None:
        self.set_open(False)
        await self._tasks.close()

    def _accepted(self, table: str, sock: socket.socket, _address: object) -> None:
        if self._is_full():
            reset(sock)
        else:
            keep_alive(sock)
            self._tasks.start(self._serve(sock, table))

    def _is_full(self) -> bool:
        full = self.waiting >= self.held_max or len(self._tasks) > self.held_max * FORWARDED_PER_HELD
        self.counts.reset_full += full
        return full

    async def _serve(self, client: socket.socket, table: str) -> None:
        """Hold and forward, as often as it takes, while nothing is open when a primary goes."""
        self.counts.held += 1
        try:
            while (upstream := await self._find_primary(client, table)) is not None:
                self.counts.forwarded += 1
                try:
                    ending = await forward(client, upstream, self._moved)
                finally:
                    reset(upstream)
                if ending is not Ending.HOLD:
                    if ending is Ending.CLOSE:
                        client.close()  # no reset, which would overtake the last answers
                    return
                self.counts.held_again += 1
        finally:
            reset(client)

    async def _find_primary(self, client: socket.socket, table: str) -> socket.socket | None:
        """Dial until a worker says that it is the primary, the client has gone, or time is up.

        Not before the client has something to say: thousands may be held that are idle, and a primary that has just
        begun has better things to do than to greet them all.
        """
        if not await _something_to_read(client, self.idle_ms / 1000) or self._is_full():
            return None
        self.waiting += 1
        try:
            return await self._dial_while_it_waits(client, table)
        finally:
            self.waiting -= 1

    async def _dial_while_it_waits(self, client: socket.socket, table: str) -> socket.socket | None:
        give_up_ms = self._clock.now_ms() + self.hold_timeout_ms
        while (left_ms := give_up_ms - self._clock.now_ms()) > 0:
            if peer_has_closed(client):
                self.counts.gone += 1
                return None
            upstream = await self._dial_unless_moved(table, min(left_ms, 1000) / 1000)
            if upstream is None:
                continue
            if not peer_has_closed(client):
                return upstream
            reset(upstream)
        self.counts.reset_timeout += 1
        return None

    async def _dial_unless_moved(self, table: str, timeout_s: float) -> socket.socket | None:
        """Dial the primary, but not longer than it is the one: a dead or frozen worker's port may stay silent."""
        moved, target = self._moved, self._target
        waiting = asyncio.ensure_future(moved.wait())
        dialling = asyncio.ensure_future(self._dial_again(target, table)) if target else None
        tasks = {waiting} if dialling is None else {waiting, dialling}
        try:
            await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            return dialling.result() if dialling is not None and dialling.done() else None
        finally:
            for task in tasks:
                task.cancel()

    async def _dial_again(self, address: str, table: str) -> socket.socket:
        """Dial until the worker there says that it is the primary; the caller sets the limit."""
        while True:
            async with self._dialling:
                if (sock := await dial(address, table)) is not None:
                    return sock
            await asyncio.sleep(REDIAL_PAUSE_S)


async def _something_to_read(sock: socket.socket, timeout_s: float) -> bool:
    """Wait until there is (the end of the stream counts), without reading it; False if it takes too long."""
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sock.fileno(), heard.set)
    try:
        async with asyncio.timeout(timeout_s):
            await heard.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(sock.fileno())
    return True


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
                keep_alive(sock)
                return sock
    except (OSError, TimeoutError, ValueError):
        pass
    except BaseException:
        sock.close()
        raise
    sock.close()
    return None


async def forward(client: socket.socket, upstream: socket.socket, moved: asyncio.Event) -> Ending:
    """Copy both ways until the conversation ends, or another leads.

    A client that only says that it asks no more (it shuts down its sending side) still waits for answers. If another
    leads (`moved`), what is open may still be answered, too: it ends with the last answer.

    The tally knows what went through our hands. That nothing else was taken from the client, nor part of an answer
    given to it, is asked of the kernel: a copy that is cancelled may have read what it never told of.
    """
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    tally, before_bytes = Tally(), passed_bytes(client)

    def answered(data: bytes) -> bool:
        tally.answered(data)
        return not (moved.is_set() and tally.nothing_open)

    asking = asyncio.ensure_future(_copy(client, upstream, on_read=tally.asked))
    answering = asyncio.ensure_future(_copy(upstream, client, on_sent=answered))
    moving = asyncio.ensure_future(moved.wait())
    try:
        await asyncio.wait([asking, answering, moving], return_when=asyncio.FIRST_COMPLETED)
        if not tally.nothing_open:
            await asyncio.wait([asking, answering], return_when=asyncio.FIRST_COMPLETED)
        if _has_ended(asking):
            _say_end(upstream)
            await asyncio.wait([answering, moving], return_when=asyncio.FIRST_COMPLETED)
            if not tally.all_answered:
                await asyncio.wait([answering])
            return Ending.CLOSE if tally.all_answered or (tally.broken and _has_ended(answering)) else Ending.RESET
        if _has_ended(answering) and tally.broken:
            _say_end(client)  # and take what is still on its way, as the worker does: to stop reading is to reset
            await asyncio.wait([asking])
            return Ending.CLOSE
    finally:
        for task in (asking, answering, moving):
            task.cancel()
        await asyncio.gather(asking, answering, moving, return_exceptions=True)
    if before_bytes is None or not tally.nothing_open:
        return Ending.RESET
    return Ending.HOLD if passed_bytes(client) == before_bytes + tally.passed_bytes else Ending.RESET


def _has_ended(way: asyncio.Future[bool]) -> bool:
    return way.done() and not way.cancelled() and way.result()


def _say_end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has gone: the other way tells
        sock.shutdown(socket.SHUT_WR)


async def _copy(
    source: socket.socket,
    sink: socket.socket,
    on_read: Callable[[bytes], None] = lambda _: None,
    on_sent: Callable[[bytes], bool] = lambda _: True,
) -> bool:
    """Until the source says that it has ended: True. Or until a side is gone, or `on_sent` says that it is enough."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while data := await loop.sock_recv(source, COPY_BYTES):
            on_read(data)
            await loop.sock_sendall(sink, data)
            if not on_sent(data):
                return False
        return True
    return False
