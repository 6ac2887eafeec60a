"""Limits of an HTTP port: number of connections, and time per connection. aiohttp itself limits neither.

A probe that hangs, a scraper that never reads and a client that sends one byte per second each cost a descriptor and
memory of the process that serves the cluster. So their number and their duration are bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Final, cast

from aiohttp import web

from leasehold.runtime.accepting import Acceptor
from leasehold.runtime.clock import BootClock
from leasehold.runtime.tasks import TaskSet
from leasehold.runtime.tls import HANDSHAKE_TIMEOUT_S, Tls

CONNECTIONS_MAX: Final = 256
REQUEST_TIMEOUT_MS: Final = 10_000  # from the connection to the first complete request
IDLE_TIMEOUT_MS: Final = 75_000  # between two requests: longer than the interval of probes and scrapers
ANSWER_TIMEOUT_MS: Final = 600_000  # enough for a snapshot of the largest index over a slow network
SWEEP_S: Final = 1.0
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 21\r\n\r\ntoo many connections\n"
)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class BoundedListener:
    """Accepts connections on `sock` for `server`, within the limits."""

    def __init__(
        self,
        sock: socket.socket,
        connections_max: int | None = None,
        tls: Tls | None = None,
        *,
        certificate_optional: bool = False,
    ) -> None:
        """`certificate_optional`: clients may come without one. Probes have none; the routes check the role."""
        self._certificate_optional = certificate_optional
        self._sock = sock
        self._tls = tls
        self._connections_max = connections_max
        self._clock = BootClock()
        self._acceptor = Acceptor(sock, self._accepted)
        self._tasks = TaskSet()
        self._server: web.Server | None = None
        self._until_ms: dict[asyncio.BaseTransport, int] = {}  # deadline of each connection
        self._idle: dict[asyncio.BaseTransport, None] = {}  # connections without a request, the oldest first
        self._opening: dict[asyncio.Task[None], None] = {}  # handshakes, the oldest first
        self._sweeper: asyncio.TimerHandle | None = None

    def open(self, server: web.Server) -> None:
        self._server = server
        self._sock.setblocking(False)
        self._acceptor.set_on(True)
        self._sweep()

    async def close(self) -> None:
        """Stop accepting; the runner closes the open connections."""
        self._acceptor.set_on(False)
        if self._sweeper is not None:
            self._sweeper.cancel()
        await self._tasks.close()
        self._sock.close()

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Extend the deadline of a connection while one of its requests is answered."""
        transport = request.transport
        self._extend(transport, ANSWER_TIMEOUT_MS)
        if transport is not None:
            self._idle.pop(transport, None)
        try:
            return await handler(request)
        finally:
            self._extend(transport, IDLE_TIMEOUT_MS)
            if transport is not None:
                self._idle[transport] = None

    def _extend(self, transport: asyncio.BaseTransport | None, timeout_ms: int) -> None:
        if transport is not None:
            self._until_ms[transport] = self._clock.now_ms() + timeout_ms

    def _accepted(self, sock: socket.socket, _address: object) -> None:
        connections_max = CONNECTIONS_MAX if self._connections_max is None else self._connections_max
        full = len(self._until_ms) + len(self._tasks) >= connections_max
        if full and not self._make_room():
            with contextlib.suppress(OSError):
                sock.send(_FULL)
            sock.close()
        else:
            task = self._tasks.start(self._serve(sock))
            self._opening[task] = None
            task.add_done_callback(lambda done: self._opening.pop(done, None))

    def _make_room(self) -> bool:
        """Close the connection that has been idle for longest, else the oldest handshake. False: all are being served.

        So idle connections, however many, do not keep a probe or an operator out: a caller that sends its request is
        served.
        """
        while self._idle:
            transport = next(iter(self._idle))
            del self._idle[transport]
            known = self._until_ms.pop(transport, None) is not None
            if known:
                _abort(transport)
                return True
        if self._opening:
            oldest = next(iter(self._opening))
            del self._opening[oldest]
            oldest.cancel()
            return True
        return False

    async def _serve(self, sock: socket.socket) -> None:
        assert self._server is not None  # connections are accepted only after `open`
        try:
            transport = await self._connected(sock, self._server)
        except OSError:  # the peer has closed it already, or the handshake failed
            sock.close()
        except asyncio.CancelledError:  # to make room
            sock.close()
            raise
        else:
            self._extend(transport, REQUEST_TIMEOUT_MS)
            self._idle[transport] = None

    async def _connected(self, sock: socket.socket, server: web.Server) -> asyncio.BaseTransport:
        connect = asyncio.get_running_loop().connect_accepted_socket
        if self._tls is None:
            return (await connect(server, sock))[0]
        context = self._tls.server(certificate_optional=self._certificate_optional)
        return (await connect(server, sock, ssl=context, ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S))[0]

    def _sweep(self) -> None:
        now_ms = self._clock.now_ms()
        for transport, until_ms in list(self._until_ms.items()):
            if transport.is_closing():
                self._forget(transport)
            elif now_ms > until_ms:
                _abort(transport)
                self._forget(transport)
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _forget(self, transport: asyncio.BaseTransport) -> None:
        self._until_ms.pop(transport, None)
        self._idle.pop(transport, None)


def _abort(transport: asyncio.BaseTransport) -> None:
    cast(asyncio.Transport, transport).abort()  # not checked: uvloop's transports do not derive from asyncio's
