"""The first bytes of a connection decide what it speaks: HTTP/2 (gRPC) or HTTP/1.1."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from leasehold.http2.frames import PREFACE

# No method of HTTP/1.1 begins like this.
_HTTP2_BEGIN = PREFACE[:4]
# A client that has not sent these bytes by then is disconnected.
FIRST_BYTES_S = 20.0


class Served(Protocol):
    """A connection, as the server manages it."""

    @property
    def calls(self) -> object:
        """True while calls are running."""
        ...

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def go_away(self) -> None:
        """Accept no new calls."""
        ...

    def close(self) -> None:
        """Write what is due, and close."""
        ...


class Front(asyncio.Protocol):
    """Hands a connection over to the protocol that it speaks. `on_closed` is called if it never gets there."""

    calls = 0

    def __init__(
        self,
        http2: Callable[[], Served],
        http1: Callable[[], Served],
        on_switch: Callable[[Front, Served], None],
        on_closed: Callable[[Front], None],
    ) -> None:
        self._http1, self._http2 = http1, http2
        self._on_switch = on_switch
        self._on_closed = on_closed
        self._begin = b""
        self._transport: asyncio.Transport | None = None
        self._timer = asyncio.get_running_loop().call_later(FIRST_BYTES_S, self._abort)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not derive from it

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._on_closed(self)

    def data_received(self, data: bytes) -> None:
        self._begin += data
        if self._transport is None or (len(self._begin) < len(_HTTP2_BEGIN) and _HTTP2_BEGIN.startswith(self._begin)):
            return
        self._timer.cancel()
        spoken = self._http2() if self._begin.startswith(_HTTP2_BEGIN) else self._http1()
        self._on_switch(self, spoken)
        self._transport.set_protocol(cast(asyncio.BaseProtocol, spoken))
        spoken.connection_made(self._transport)
        spoken.data_received(self._begin)

    def go_away(self) -> None:
        self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
