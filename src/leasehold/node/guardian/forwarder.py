"""Hold and forward client connections while this node's worker is not the primary.

A connection is accepted and held, *and nothing is read from it*, until there is a primary. Then bytes are copied in
both directions between the client and the primary's forward port. That port sends one byte, `HELLO`, if and only if
its worker is the primary; only after it is anything read from the client.

When that primary stops serving, a connection with an unanswered request is reset, never moved: its client must learn
that the outcome is unknown (schedule 20). A connection without one is held again, as if nothing had been read. The
same holds for connections that a dead worker of this node leaves behind.

Those may include connections forwarded by other guardians. Then two guardians are on the path to the primary, until
the first one sees the new leader and connects to it directly. A guardian connects only to workers, so there are no
loops.

After connecting, a guardian first sends the wire release of the client's port: one byte of length, then the name.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Final

import structlog

from leasehold.node.guardian.parting import refuse_requests
from leasehold.runtime.accepting import Acceptor
from leasehold.runtime.clock import BootClock
from leasehold.runtime.receiving import readable_within, receive
from leasehold.runtime.tasks import TaskSet
from leasehold.runtime.tcp import keep_alive, passed_bytes, peer_has_closed, reset, send_immediately
from leasehold.runtime.tls import TlsRelay
from leasehold.wire.request_counter import RequestCounter

log = structlog.get_logger("leasehold.forwarder")

HELLO: Final = b"\x4c"
DIAL_TIMEOUT_S: Final = 1.0
DIALS_MAX: Final = 64  # thousands of held connections may be released together: spare the primary's accept queue
REDIAL_PAUSE_S: Final = 0.02
PARTING_POLL_S: Final = 0.01
COPY_BYTES: Final = 64 * 1024
FORWARDED_PER_HELD: Final = 16  # limit of forwarded connections, as a multiple of the limit of held ones


class Ending(Enum):
    """What to do with a client's connection when forwarding stops."""

    HOLD = "no request is open: hold it for the next primary"
    CLOSE = "one side has closed its direction, and all answers were delivered"
    RESET = "a request is open: the client must learn that the outcome is unknown"


@dataclass(slots=True)
class ConnectionForwarder:
    """Accepts on `listeners` (socket and wire release) while open. `point` sets the primary's forward port."""

    listeners: list[tuple[socket.socket, str]]
    held_max: int
    hold_timeout_ms: int
    idle_ms: int  # time without a request after which a connection is closed
    relay: TlsRelay | None = None  # None: the forward ports of the nodes have no TLS
    counts: Counter[str] = field(default_factory=Counter)  # of connections, by event, for metrics
    _target: str = ""
    _open: bool = False
    _parting: bool = False
    _idle: set[asyncio.Event] = field(default_factory=set)  # of connections that wait for a request; set: wake up
    _acceptors: list[Acceptor] = field(default_factory=list)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: TaskSet = field(default_factory=TaskSet)
    _clock: BootClock = field(default_factory=BootClock)
    waiting: int = 0  # connections with a request that wait for a primary
    _dialling: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(DIALS_MAX))

    def set_open(self, open_: bool) -> None:
        """Start or stop accepting. Held and forwarded connections continue."""
        if open_ == self._open:
            return
        self._open = open_
        if not self._acceptors:
            self._acceptors = [Acceptor(sock, partial(self._accepted, table)) for sock, table in self.listeners]
        for acceptor in self._acceptors:
            acceptor.set_on(open_)

    def point(self, address: str) -> None:
        """Set the primary's forward port; "" while there is no primary."""
        if address != self._target:
            self._target = address
            self._moved.set()  # wakes connections that wait for the old target
            self._moved = asyncio.Event()

    def inherit(self, sock: socket.socket, port: int) -> None:
        """Take over a connection without an open request from a worker that died or steps down.

        `port` is the index in `listeners` of the port that it was accepted on.
        """
        self.counts["inherited"] += 1
        self._accepted(self.listeners[port][1], sock, None)

    async def part(self, longest_s: float) -> None:
        """This node stops: let open requests be answered, refuse further ones as not executed, close quiet connections.

        The listeners are closed immediately, so that clients that reconnect go to another node.
        """
        self._parting = True
        for acceptor in self._acceptors:
            acceptor.finish()
        self._open = False
        self.point("")
        self._moved.set()
        for idle in self._idle:
            idle.set()
        deadline_ms = self._clock.now_ms() + longest_s * 1000
        while self._clock.now_ms() < deadline_ms:
            if not len(self._tasks):
                return
            await asyncio.sleep(PARTING_POLL_S)

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
        self.counts["reset_full"] += full
        return full

    async def _serve(self, client: socket.socket, table: str) -> None:
        """Hold and forward a connection, and repeat for each new primary as long as no request is open."""
        self.counts["held"] += 1
        try:
            while not self._parting and (upstream := await self._find_primary(client, table)) is not None:
                self.counts["forwarded"] += 1
                try:
                    ending = await forward(client, upstream, self._moved)
                finally:
                    reset(upstream)
                if ending is not Ending.HOLD:
                    if ending is Ending.CLOSE:
                        client.close()  # not a reset, which could discard the last answers
                    return
                self.counts["held_again"] += 1
            if self._parting:
                await refuse_requests(client)
        finally:
            reset(client)

    async def _find_primary(self, client: socket.socket, table: str) -> socket.socket | None:
        """Dial until a worker confirms that it is the primary, the client has closed, or the timeout has passed.

        It waits for a request of the client first: thousands of held connections may be idle, and a new primary
        should not have to accept them all.
        """
        woken = asyncio.Event()
        self._idle.add(woken)
        try:
            if not await readable_within(client, self.idle_ms / 1000, woken) or self._is_full():
                return None
        finally:
            self._idle.discard(woken)
        self.waiting += 1
        try:
            return await self._dial_while_it_waits(client, table)
        finally:
            self.waiting -= 1

    async def _dial_while_it_waits(self, client: socket.socket, table: str) -> socket.socket | None:
        give_up_ms = self._clock.now_ms() + self.hold_timeout_ms
        while (left_ms := give_up_ms - self._clock.now_ms()) > 0:
            if self._parting:
                return None
            if peer_has_closed(client):
                self.counts["gone"] += 1
                return None
            upstream = await self._dial_unless_moved(table, min(left_ms, 1000) / 1000)
            if upstream is None:
                continue
            if not peer_has_closed(client):
                return upstream
            reset(upstream)
        self.counts["reset_timeout"] += 1
        return None

    async def _dial_unless_moved(self, table: str, timeout_s: float) -> socket.socket | None:
        """Dial the primary until it changes: the port of a dead or frozen worker may never answer."""
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
        """Dial until the worker confirms that it is the primary; the caller sets the timeout."""
        while True:
            async with self._dialling:
                if (sock := await dial(address, table, self.relay)) is not None:
                    return sock
            await asyncio.sleep(REDIAL_PAUSE_S)


async def dial(address: str, table: str = "", relay: TlsRelay | None = None) -> socket.socket | None:
    """A connection to a worker that has sent `HELLO`, or None. `table` is the wire release of the connection."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        async with asyncio.timeout(DIAL_TIMEOUT_S):
            await loop.sock_connect(sock, (host.strip("[]"), int(port)))
            if relay is not None:
                sock = await relay.connected(sock, host.strip("[]"))
            await loop.sock_sendall(sock, bytes([len(table)]) + table.encode())
            if await loop.sock_recv(sock, len(HELLO)) == HELLO:
                send_immediately(sock)
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
    """Copy in both directions until one side closes, or another node leads.

    A client that only shuts down its sending side still waits for answers. When another node leads (`moved`), no
    further request is read, and open ones may still be answered; forwarding stops after the last answer.

    The counter knows the bytes that were passed on. A cancelled copy may have sent more, so the kernel's byte count
    decides whether the connection can be held again.
    """
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    counter, before_bytes = RequestCounter(), passed_bytes(client)

    def answered(data: bytes) -> bool:
        counter.add_answers(data)
        return not (moved.is_set() and counter.nothing_open)

    def may_read() -> bool:
        return not (moved.is_set() and counter.between_requests) or peer_has_closed(client)

    answers = asyncio.ensure_future(_copy(upstream, client, on_sent=answered))
    requests = asyncio.ensure_future(_copy_requests(client, upstream, counter.add_requests, may_read, answers))
    moving = asyncio.ensure_future(moved.wait())
    try:
        await asyncio.wait([requests, answers, moving], return_when=asyncio.FIRST_COMPLETED)
        if not counter.nothing_open:
            await asyncio.wait([requests, answers], return_when=asyncio.FIRST_COMPLETED)
        if _at_end_of_file(requests):
            _shut_down(upstream)
            await asyncio.wait([answers, moving], return_when=asyncio.FIRST_COMPLETED)
            if not counter.all_answered:
                await asyncio.wait([answers])
            complete = counter.all_answered or (counter.malformed and _at_end_of_file(answers))
            return Ending.CLOSE if complete else Ending.RESET
        if _at_end_of_file(answers) and counter.malformed:
            _shut_down(client)  # and keep reading, as the worker does: closing with unread data sends a reset
            await asyncio.wait([requests])
            return Ending.CLOSE
    finally:
        for task in (requests, answers, moving):
            task.cancel()
        await asyncio.gather(requests, answers, moving, return_exceptions=True)
    if before_bytes is None or not counter.nothing_open:
        return Ending.RESET
    return Ending.HOLD if passed_bytes(client) == before_bytes + counter.passed_bytes else Ending.RESET


def _at_end_of_file(copying: asyncio.Future[bool]) -> bool:
    return copying.done() and not copying.cancelled() and copying.result()


def _shut_down(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # already closed: the other direction shows it
        sock.shutdown(socket.SHUT_WR)


async def _copy_requests(
    client: socket.socket,
    upstream: socket.socket,
    on_read: Callable[[bytes], None],
    may_read: Callable[[], bool],
    answers: asyncio.Future[bool],
) -> bool:
    """Like `_copy`. Once `may_read` returns False it reads nothing further and waits for the last answer.

    A client that always has a request open would otherwise never be between two requests.
    """
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while may_read():
            try:
                data = client.recv(COPY_BYTES)
            except BlockingIOError:
                await readable_within(client, None)
                continue
            if not data:
                return True
            on_read(data)
            await loop.sock_sendall(upstream, data)
        await asyncio.wait([answers])
    return False


async def _copy(source: socket.socket, sink: socket.socket, on_sent: Callable[[bytes], bool]) -> bool:
    """Copy until end of file: True. False if a side fails, or if `on_sent` returns False."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while data := await receive(source, COPY_BYTES):
            await loop.sock_sendall(sink, data)
            if not on_sent(data):
                return False
        return True
    return False
