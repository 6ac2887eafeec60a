"""Decides when bytes are written: combined if several calls are active, else immediately."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# Bytes that are not urgent are written with the next request, or after this time.
UNHURRIED_S = 0.002
# Bytes that should not be sent often are written after this time, or when there are many.
LATE_S = 0.1
LATE_PARTS_MAX = 64
# The transport may buffer this much before new calls have to wait.
UNWRITTEN_BYTES_MAX = 1 << 20
# A server that does not read gets no requests; answers to its pings and settings are written up to this limit.
UNREAD_BYTES_MAX = 1 << 20
# The time to flush the last bytes when a connection is closed: a frozen server would block it forever.
CLOSE_FLUSH_S = 2.0


class SendQueue:
    """Bytes for one transport, in order. Without a transport they are dropped."""

    __slots__ = (
        "_closing",
        "_flushing_now",
        "_flushing_soon",
        "_late",
        "_loop",
        "_on_stuck",
        "_parts",
        "_timer",
        "_unread",
        "paused",
        "transport",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, on_stuck: Callable[[], None]) -> None:
        self.transport: asyncio.Transport | None = None
        self.paused = False  # the server does not read
        self._unread = 0  # bytes written while paused
        self._closing: asyncio.Transport | None = None  # closing, with bytes still to flush
        self._timer: asyncio.TimerHandle | None = None
        self._loop = loop
        self._on_stuck = on_stuck
        self._parts: list[bytes] = []
        self._late: list[bytes] = []
        self._flushing_now = self._flushing_soon = False

    def made(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(UNWRITTEN_BYTES_MAX)
        self.transport = transport

    def send_now(self, data: bytes) -> None:
        self._parts.append(data)
        self.flush()

    def send_together(self, data: bytes) -> None:
        """Write at the end of this turn of the loop, combined with other data."""
        self._parts.append(data)
        if not self._flushing_now:
            self._flushing_now = True
            self._loop.call_soon(self._flush_now)

    def send_unhurried(self, data: bytes) -> None:
        """Write with the next request, or after `UNHURRIED_S`."""
        self._parts.append(data)
        if not self._flushing_soon:
            self._flushing_soon = True
            self._loop.call_later(UNHURRIED_S, self._flush_soon)

    def send_late(self, data: bytes) -> None:
        """Write after `LATE_S`, and not with a request before that."""
        self._late.append(data)
        if len(self._late) == 1:
            self._loop.call_later(LATE_S, self._send_late_ones)
        elif len(self._late) > LATE_PARTS_MAX:
            self._send_late_ones()

    def flush(self) -> None:
        parts, self._parts = self._parts, []
        # A transport that is closing must not be written to: uvloop's raises.
        if not parts or self.transport is None or self.transport.is_closing():
            return
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        if self.paused:
            self._unread += len(data)
            if self._unread > UNREAD_BYTES_MAX:
                self._loop.call_soon(self._on_stuck)  # not from inside the current operation
                return
        self.transport.write(data)

    def resumed(self) -> None:
        self.paused, self._unread = False, 0

    @property
    def ended(self) -> bool:
        return self.transport is None and self._closing is None

    def close(self) -> None:
        """Write the remaining bytes, and close."""
        self.flush()
        transport, self.transport = self.transport, None
        if transport is not None:
            self._closing = transport
            self._timer = self._loop.call_later(CLOSE_FLUSH_S, self.abort)
            transport.close()

    def abort(self) -> None:
        transport = self.transport or self._closing
        self.lost()
        if transport is not None:
            transport.abort()

    def lost(self) -> None:
        """The connection was lost."""
        self.transport = self._closing = None
        if self._timer is not None:
            self._timer.cancel()

    def _send_late_ones(self) -> None:
        self._parts += self._late
        self._late = []
        self.flush()

    def _flush_now(self) -> None:
        self._flushing_now = False
        self.flush()

    def _flush_soon(self) -> None:
        self._flushing_soon = False
        self.flush()
