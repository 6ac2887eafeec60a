"""The first bytes of a connection decide what it speaks: HTTP/2 (gRPC) or HTTP/1.1."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from leasehold.http2.frames import PREFACE
from leasehold.store.server.clients import PROBE_S, Clients, Served

# No method of HTTP/1.1 begins like this.
_HTTP2_BEGIN = PREFACE[:4]
# A client that has not sent these bytes by then is disconnected.
FIRST_BYTES_S = 20.0


class Spoken(Served, Protocol):
    """A connection that takes over from the front."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: bytes) -> None: ...


class Front(asyncio.Protocol):
    """Hands a connection over to the protocol that it speaks, and keeps `clients` up to date."""

    calls = 0

    def __init__(self, clients: Clients, http2: Callable[[bool], Spoken], http1: Callable[[bool], Spoken]) -> None:
        """`http2` and `http1` make a connection; True: it may only probe."""
        self._clients = clients
        self._http1, self._http2 = http1, http2
        self._probes_only = False
        self._begin = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not derive from it
        if self._clients.overcrowded:
            self._clients.refused += 1
            self._transport.abort()
            return
        self._probes_only = self._clients.crowded
        self._clients.add(self)
        loop = asyncio.get_running_loop()
        if self._probes_only:
            loop.call_later(PROBE_S, self._transport.abort)
        else:
            self._timer = loop.call_later(FIRST_BYTES_S, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._clients.discard(self)

    def data_received(self, data: bytes) -> None:
        self._begin += data
        if self._transport is None or (len(self._begin) < len(_HTTP2_BEGIN) and _HTTP2_BEGIN.startswith(self._begin)):
            return
        if self._timer is not None:
            self._timer.cancel()
        make = self._http2 if self._begin.startswith(_HTTP2_BEGIN) else self._http1
        spoken = make(self._probes_only)
        self._clients.discard(self)
        self._clients.add(spoken)
        self._transport.set_protocol(cast(asyncio.BaseProtocol, spoken))
        spoken.connection_made(self._transport)
        spoken.data_received(self._begin)

    def go_away(self) -> None:
        self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def idle_s(self, now_s: float) -> float:
        return 0.0  # it has a timer of its own

    def check_alive(self, now_s: float, silent_s: float) -> None:
        """It has a timer of its own."""
