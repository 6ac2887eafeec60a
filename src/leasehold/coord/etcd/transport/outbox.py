"""When bytes leave: together where several calls are under way, at once where there is nothing to wait for."""

from __future__ import annotations

import asyncio

# What nobody waits for goes with the next request, or after this time.
UNHURRIED_S = 0.002


class Outbox:
    """What is to be written to one transport, in order. Without a transport it goes nowhere."""

    __slots__ = ("_flushing_now", "_flushing_soon", "_loop", "_parts", "transport")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.transport: asyncio.Transport | None = None
        self._loop = loop
        self._parts: list[bytes] = []
        self._flushing_now = self._flushing_soon = False

    def send_now(self, data: bytes) -> None:
        self._parts.append(data)
        self.flush()

    def send_together(self, data: bytes) -> None:
        """At the end of this turn, with what else comes in it."""
        self._parts.append(data)
        if not self._flushing_now:
            self._flushing_now = True
            self._loop.call_soon(self._flush_now)

    def send_unhurried(self, data: bytes) -> None:
        """With whatever is sent next."""
        self._parts.append(data)
        if not self._flushing_soon:
            self._flushing_soon = True
            self._loop.call_later(UNHURRIED_S, self._flush_soon)

    def flush(self) -> None:
        parts, self._parts = self._parts, []
        # A transport that is closing must not be written to: uvloop's raises.
        if parts and self.transport is not None and not self.transport.is_closing():
            self.transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def close(self) -> None:
        """Write what is left, and close."""
        self.flush()
        transport, self.transport = self.transport, None
        if transport is not None:
            transport.close()

    def abort(self) -> None:
        transport, self.transport = self.transport, None
        if transport is not None:
            transport.abort()

    def _flush_now(self) -> None:
        self._flushing_now = False
        self.flush()

    def _flush_soon(self) -> None:
        self._flushing_soon = False
        self.flush()
