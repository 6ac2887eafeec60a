"""One client's connection: turns frames into calls, and answers into frames within the client's windows."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from typing import cast

from leasehold.http2.endpoint import FRAME_BYTES_MAX, WINDOW_BYTES_FIRST, ConnectionEnd
from leasehold.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    GOAWAY,
    HEADERS,
    NO_ERROR,
    PING,
    PREFACE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    check,
    frame,
    unpadded,
)
from leasehold.http2.header_codec import (
    BLOCK_BYTES_MAX,
    OK_TRAILERS,
    RESPONSE,
    ProtocolBroken,
    trailers,
)
from leasehold.http2.rate_limit import Allowance
from leasehold.mvcc.errors import Code
from leasehold.store.server.clients import PING_S, Burden, Clients
from leasehold.store.server.http2.intake import Intake
from leasehold.store.server.http2.streams import WINDOW_BYTES, Call, Handler

STREAMS_MAX = 10_000  # concurrent calls of one connection
LINGER_S = 5.0
# Answers to a burst of calls are written in bursts of this size: the client works on the first during the next.
SENT_TOGETHER_MAX = 32
OUT_BYTES_MAX = 256 << 10  # written in one turn, before checking whether the client reads
# Calls that a client may begin and reset: a burst, and a rate per second.
RESETS_MAX, RESETS_PER_S = 10_000, 500
# SETTINGS frames, likewise. A client normally sends one.
SETTINGS_MAX, SETTINGS_PER_S = 100, 10
# Work of headers that comes with every call.
CALL_WORK = 64
# A peer that has not sent the HTTP/2 preface by then is not a client.
PREFACE_S = 20.0

_SETTINGS = struct.pack(">HIHIHIHI", 3, STREAMS_MAX, 4, WINDOW_BYTES, 5, FRAME_BYTES_MAX, 6, BLOCK_BYTES_MAX)


class Connection(ConnectionEnd[Call], asyncio.Protocol):
    """`handlers` are by path."""

    def __init__(self, handlers: Mapping[bytes, Handler], clients: Clients) -> None:
        super().__init__(WINDOW_BYTES)
        self._handlers = handlers
        self._clients = clients
        self.burden = Burden(clients.memory)
        self._pinged_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._received_s = self._called_s = self._loop.time()
        self._preface = b""  # its bytes so far
        self._intake = Intake(self._take_frame, lambda: self.data_received(b""))
        self._begun = False
        self._last_stream = 0
        self._deferred: dict[Call, None] = {}  # calls that wait until answers were sent
        self._resets = Allowance(RESETS_MAX, RESETS_PER_S)
        self._settings = Allowance(SETTINGS_MAX, SETTINGS_PER_S)
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flushing = False
        self._leaving = False

    # --- the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not derive from it
        self._intake.made(self._transport)
        self._hello = self._loop.call_later(PREFACE_S, self.abort)
        self.send(frame(SETTINGS, 0, 0, _SETTINGS))
        self.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW_BYTES - WINDOW_BYTES_FIRST)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._clients.discard(self)
        self._transport = None
        self._intake.lost()
        self._hello.cancel()
        for call in list(self.calls.values()):
            call.cancel()
        self.calls.clear()
        self.burden.drop()

    @property
    def paused(self) -> bool:
        """Whether the client does not read."""
        return self._intake.paused

    def pause_writing(self) -> None:
        self._intake.pause()

    def resume_writing(self) -> None:
        for call in self.calls.values():
            call.has_room()
        self._intake.resume()

    def data_received(self, data: bytes) -> None:
        self._received_s = self._loop.time()
        try:
            if self._begun:
                self._intake.feed(data)
            else:
                self._take_preface(data)
        except ProtocolBroken as error:
            self._go_away(error.code)
            self.close()
            self._loop.call_later(LINGER_S, self.abort)  # it may never read the last frames

    def send(self, data: bytes) -> None:
        """Write at the end of this turn, combined with other data, or earlier if there is much."""
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > OUT_BYTES_MAX:
            self._intake.hold()
        if len(self._out) >= SENT_TOGETHER_MAX:
            self._flush_now()
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self._flush_now()

    def _flush_now(self) -> None:
        out, self._out = self._out, []
        self._out_bytes = 0
        if self._transport is not None and out:
            self._transport.write(b"".join(out))
        self._intake.release_soon()

    def close(self) -> None:
        """Write what is due, and close."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def idle_s(self, now_s: float) -> float:
        return now_s - self._called_s

    def check_alive(self, now_s: float, silent_s: float) -> None:
        """Disconnect a client that has sent nothing for `silent_s` and does not answer a ping."""
        if self._pinged_s > self._received_s:
            if now_s - self._pinged_s > PING_S:
                self.abort()
        elif now_s - self._received_s > silent_s:
            self._pinged_s = now_s
            self.send(frame(PING, 0, 0, bytes(8)))

    def go_away(self) -> None:
        """Accept no new calls."""
        self._leaving = True
        self._go_away(NO_ERROR)

    def _go_away(self, code: int) -> None:
        self.send(frame(GOAWAY, 0, 0, struct.pack(">II", self._last_stream, code)))

    # --- frames ---

    def _take_preface(self, data: bytes) -> None:
        begin = self._preface = self._preface + data
        if not PREFACE.startswith(begin[: len(PREFACE)]):
            raise ProtocolBroken("not HTTP/2")
        if len(begin) >= len(PREFACE):
            self._begun, self._preface = True, b""
            self._hello.cancel()
            self._intake.feed(begin[len(PREFACE) :])

    def _take_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        """Process one frame, and count what it costs beyond an ordinary call."""
        before = self._last_stream
        self.take(kind, flags, stream, payload)
        if kind in (HEADERS, CONTINUATION) and not self._blocks.under_way:
            work = self._blocks.work - (CALL_WORK if self._last_stream > before else 0)
        else:
            work = 0 if kind == DATA and payload else 1
        self._intake.taken(work)

    def _take_ping(self, payload: bytes) -> None:
        self.send(frame(PING, ACK, 0, payload))

    def _take_other(self, kind: int, payload: bytes) -> None:
        """GOAWAY: the client opens no more calls, and closes when it is done. Other frames are ignored."""

    def _take_reset(self, stream: int, code: int) -> None:
        call = self._forget(stream)
        if call is None:
            return
        call.cancel()
        if not self._resets.take(self._loop.time()):
            raise ProtocolBroken("calls are begun and reset without end", ENHANCE_YOUR_CALM)
        self._go_on()

    def _take_headers(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        block = self._blocks.take(kind, flags, stream, payload)
        if block is None:
            return
        flags, headers = block
        known = self.calls.get(stream)
        if known is not None:  # trailers of a request: gRPC does not use them, but they end it
            if flags & END_STREAM:
                known.request_ended()
            return
        check(stream & 1, "a stream with a number that cannot be")
        if stream <= self._last_stream:
            return  # trailers of a call that we have finished
        self._last_stream = stream
        if self._leaving or len(self.calls) >= STREAMS_MAX:
            self.send(frame(RST_STREAM, 0, stream, struct.pack(">I", REFUSED_STREAM)))
            return
        handler = self._handlers.get(headers.get(b":path", b""))
        self._called_s = self._loop.time()
        call = Call(self, stream, self._stream_window, handler)
        self.calls[stream] = call
        if handler is None:
            path = headers.get(b":path", b"?").decode(errors="replace")
            call.end(Code.UNIMPLEMENTED, f"unknown method {path}")
        elif headers.get(b"grpc-encoding", b"identity") != b"identity":
            call.end(Code.UNIMPLEMENTED, "compressed requests are not taken")
        else:
            call.begin(headers.get(b"grpc-timeout"))
            if flags & END_STREAM:
                call.request_ended()

    def _take_data(self, flags: int, stream: int, payload: bytes) -> None:
        self._received(len(payload))
        call = self.calls.get(stream)
        if call is None:
            return  # we have finished the call
        call.request_done = bool(flags & END_STREAM)
        call.received(len(payload), unpadded(flags, payload))
        if call.request_done:
            call.request_ended()

    def _settled(self, streams_max: int | None) -> None:
        """`streams_max` does not matter to a server. But every change of settings is work for all calls."""
        if not self._settings.take(self._loop.time()):
            raise ProtocolBroken("settings are changed without end", ENHANCE_YOUR_CALM)

    # --- answers ---

    def answer(self, call: Call, message: bytes) -> None:
        """Send one message and the end of a successful call, in one write if the windows permit."""
        size = len(message) + 5
        fits = size <= call.window and size <= self._window and size <= self._frame_bytes_max
        if call.headers_sent or call.held or not fits:
            self.write(call, message)
            self.end(call, OK_TRAILERS)
            return
        self._window -= size
        stream = call.stream
        self.send(
            frame(HEADERS, END_HEADERS, stream, RESPONSE)
            + struct.pack(">IBI", size << 8, 0, stream)
            + struct.pack(">BI", 0, len(message))
            + message
            + frame(HEADERS, END_HEADERS | END_STREAM, stream, OK_TRAILERS)
        )
        self._forget(stream)

    def write(self, call: Call, message: bytes) -> None:
        """Queue one message of a call."""
        if not call.headers_sent:
            call.headers_sent = True
            self.send(frame(HEADERS, END_HEADERS, call.stream, RESPONSE))
        call.held += struct.pack(">BI", 0, len(message)) + message
        self.burden.hold(5 + len(message))
        self._write_held(call)

    def end(self, call: Call, block: bytes) -> None:
        """End a call, after its held data."""
        call.ending = block if call.headers_sent else RESPONSE + block
        self._write_held(call)

    def refuse(self, call: Call, code: int, message: str) -> None:
        self.end(call, trailers(code, message))

    def _write_held(self, call: Call) -> None:
        while call.held:
            room = min(call.window, self._window, self._frame_bytes_max)
            if room <= 0:
                if call.window > 0:
                    self._blocked[call] = None
                return
            part = bytes(call.held[:room])
            del call.held[:room]
            self.burden.hold(-len(part))
            call.window -= len(part)
            self._window -= len(part)
            self.send(frame(DATA, 0, call.stream, part))
        if call.ending is not None and self._forget(call.stream) is not None:
            self.send(frame(HEADERS, END_HEADERS | END_STREAM, call.stream, call.ending))
            if not call.request_done:
                # The answer is complete: the rest of the request is not needed.
                self.send(frame(RST_STREAM, 0, call.stream, struct.pack(">I", NO_ERROR)))

    def _unblock(self) -> None:
        while self._blocked and self._window > 0:
            call, _ = self._blocked.popitem(last=False)
            self._write_held(call)
            call.has_room()
        self._go_on()

    def _unblock_one(self, call: Call) -> None:
        self._write_held(call)
        call.has_room()
        self._go_on()

    def _forget(self, stream: int) -> Call | None:
        """Drop a finished call and its data."""
        call = self.calls.pop(stream, None)
        if call is not None:
            self._called_s = self._loop.time()
            self.burden.hold(-len(call.held))
            self.burden.buffer(-call.buffered_bytes)
            self._blocked.pop(call, None)
            self._deferred.pop(call, None)
        return call

    # --- bounds ---

    def defer(self, call: Call) -> None:
        """Run `call` when enough earlier answers were sent."""
        self._deferred[call] = None

    def _go_on(self) -> None:
        while self._deferred and not self.burden.burdened:
            call = next(iter(self._deferred))
            del self._deferred[call]
            call.answer_directly()
