"""The common part of a client's and a server's end of a connection: dispatch of frames, flow control."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

from leasehold.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    check,
    frame,
)
from leasehold.http2.header_blocks import BlockReader
from leasehold.http2.header_codec import ProtocolBroken

FRAME_BYTES_MAX = 1 << 20  # accepted, and sent
WINDOW_BYTES_MAX = (1 << 31) - 1
WINDOW_BYTES_FIRST = 65_535  # of either side, until its SETTINGS change it


class Windowed(Protocol):
    """The part of a call that flow control needs."""

    stream: int
    window: int  # bytes that the peer still accepts on it


C = TypeVar("C", bound=Windowed)


class ConnectionEnd(ABC, Generic[C]):
    """One end of a connection. `window_bytes` is the window that we grant to all calls together."""

    def __init__(self, window_bytes: int) -> None:
        self.calls: dict[int, C] = {}
        self._blocks = BlockReader()
        self._granted_bytes = window_bytes
        self._unacknowledged = 0  # bytes received for which the window is not reopened yet
        self._window = WINDOW_BYTES_FIRST  # bytes that the peer accepts, on all calls together
        self._stream_window = WINDOW_BYTES_FIRST  # bytes that it accepts on a new call
        self._frame_bytes_max = 16_384
        # Calls that wait for the connection's window, in order. A call whose own window is full is not among them:
        # otherwise a peer could have us visit thousands of calls for every byte that it grants.
        self._blocked: OrderedDict[C, None] = OrderedDict()

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Write `data` after everything written before."""

    @abstractmethod
    def _take_headers(self, kind: int, flags: int, stream: int, payload: bytes) -> None: ...

    @abstractmethod
    def _take_data(self, flags: int, stream: int, payload: bytes) -> None: ...

    @abstractmethod
    def _take_reset(self, stream: int, code: int) -> None: ...

    @abstractmethod
    def _take_ping(self, payload: bytes) -> None: ...

    @abstractmethod
    def _take_other(self, kind: int, payload: bytes) -> None:
        """GOAWAY, or a frame that only a client or only a server may send."""

    @abstractmethod
    def _settled(self, streams_max: int | None) -> None:
        """The peer has sent its SETTINGS. `streams_max` is its limit of concurrent calls, if given."""

    @abstractmethod
    def _unblock(self) -> None:
        """The connection's window has room: send blocked data."""

    @abstractmethod
    def _unblock_one(self, call: C) -> None:
        """The window of a call has room: send its held data, if any."""

    def take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        """Process one frame. Raises `ProtocolBroken`."""
        if self._blocks.under_way and kind != CONTINUATION:
            raise ProtocolBroken("a header block was interrupted")
        if kind == DATA:
            self._take_data(flags, stream, payload)
        elif kind in (HEADERS, CONTINUATION):
            self._take_headers(kind, flags, stream, payload)
        elif kind == WINDOW_UPDATE:
            self._take_window(stream, payload)
        elif kind == PING:
            check(len(payload) == 8 and not stream, "a ping of odd length, or of a stream")
            if not flags & ACK:
                self._take_ping(payload)
        elif kind == SETTINGS:
            check(len(payload) % 6 == 0 and not stream, "settings of odd length, or of a stream")
            if not flags & ACK:
                self._take_settings(payload)
        elif kind == RST_STREAM:
            check(len(payload) == 4, "a reset of odd length")
            self._take_reset(stream, struct.unpack(">I", payload)[0])
        else:
            self._take_other(kind, payload)

    def open_window(self, call: C, count: int) -> None:
        """Let the peer send `count` more bytes on a call."""
        self.send(frame(WINDOW_UPDATE, 0, call.stream, struct.pack(">I", count)))

    def _received(self, count: int) -> None:
        """Count received bytes, and reopen the connection's window once that is worth a frame."""
        self._unacknowledged += count
        if self._unacknowledged > self._granted_bytes // 4:
            self.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", self._unacknowledged)))
            self._unacknowledged = 0

    def _take_settings(self, payload: bytes) -> None:
        streams_max, before = None, self._stream_window
        for place in range(0, len(payload), 6):
            name, value = struct.unpack_from(">HI", payload, place)
            if name == 3:
                streams_max = value
            elif name == 4:
                check(value <= WINDOW_BYTES_MAX, "a window is too large")
                self._stream_window = value
            elif name == 5:
                self._frame_bytes_max = min(max(value, 16_384), FRAME_BYTES_MAX)
        self.send(frame(SETTINGS, ACK, 0))
        self._settled(streams_max)
        if self._stream_window != before:
            self._change_windows(self._stream_window - before)
        self._unblock()

    def _change_windows(self, change: int) -> None:
        """Called once per SETTINGS frame: there may be thousands of calls, and of settings."""
        for call in list(self.calls.values()):
            call.window += change
            check(call.window <= WINDOW_BYTES_MAX, "a window is too large")
            if change > 0 and call not in self._blocked:
                self._unblock_one(call)

    def _take_window(self, stream: int, payload: bytes) -> None:
        check(len(payload) == 4, "a window update of odd length")
        more = struct.unpack(">I", payload)[0] & 0x7FFFFFFF
        if stream == 0:
            self._window += more
            check(self._window <= WINDOW_BYTES_MAX, "a window is too large")
            self._unblock()
            return
        call = self.calls.get(stream)
        if call is not None:
            call.window += more
            check(call.window <= WINDOW_BYTES_MAX, "a window is too large")
            if call not in self._blocked:
                self._unblock_one(call)
