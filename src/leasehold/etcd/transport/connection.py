"""One HTTP/2 connection to one server: sends requests within the server's flow-control windows, receives answers.

It counts as open once the server has sent its SETTINGS: a frozen server accepts connections, and with TLS 1.3 a server
that rejects our certificate lets the handshake succeed. Calls begun before that were never sent.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import cast

from leasehold.etcd.transport.call import WINDOW_BYTES, Call, UnaryCall
from leasehold.etcd.transport.failures import RpcFailed
from leasehold.etcd.transport.liveness import Liveness
from leasehold.etcd.transport.send_queue import SendQueue
from leasehold.etcd.transport.wrong_server import HUNG_UP, explained, other_protocol
from leasehold.http2.endpoint import FRAME_BYTES_MAX, WINDOW_BYTES_FIRST, WINDOW_BYTES_MAX, ConnectionEnd
from leasehold.http2.frame_reader import FrameReader
from leasehold.http2.frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    NO_ERROR,
    PADDED,
    PING,
    PREFACE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    check,
    frame,
    header_frames,
    unpadded,
)
from leasehold.http2.header_codec import ProtocolBroken
from leasehold.mvcc.errors import Code

CONNECTION_WINDOW_BYTES = 4 * WINDOW_BYTES
STREAMS_MAX = (1 << 31) - 1
PUSH_PROMISE, CANCEL = 5, 8
# grpc-go measures bandwidth with this ping. It sends one, and a window update, with the first request after the answer
# to the last one: if every request answered it, every commit would cost both sides two more packets.
BANDWIDTH_PING = bytes((2, 4, 16, 16, 9, 14, 7, 7))
# With fewer calls (one may be the stream of watches) there is nothing to combine a write with.
TOGETHER_MIN = 3

_HEAD = struct.Struct(">IBI")
_HELLO = (
    PREFACE
    + frame(SETTINGS, 0, 0, struct.pack(">HIHIHI", 2, 0, 4, WINDOW_BYTES, 5, FRAME_BYTES_MAX))
    + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", CONNECTION_WINDOW_BYTES - WINDOW_BYTES_FIRST))
)


class Connection(ConnectionEnd[Call], asyncio.Protocol):
    """`on_closed` is called once, when the connection accepts no more calls."""

    def __init__(self, on_closed: Callable[[Connection], None]) -> None:
        super().__init__(CONNECTION_WINDOW_BYTES)
        self.loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = self.loop.create_future()
        self.usable = False
        self._on_closed = on_closed
        self._reader = FrameReader(self.take)
        self._next_stream = 1
        self._streams_max = STREAMS_MAX
        self._waiting: dict[Call, tuple[bytes, bytes]] = {}  # calls beyond the server's limit, in order
        self._out = SendQueue(self.loop, self._stuck)
        self._leaving = False  # no new calls; closes after the last one
        self._first_bytes = b""  # from the server: they identify another protocol
        self._life = Liveness(self.loop, lambda: bool(self.calls), self._ping, self.abort)

    # --- the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out.made(cast(asyncio.Transport, transport))  # uvloop's are transports without deriving from it
        self._out.send_now(_HELLO)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._first_bytes:
            self._end(HUNG_UP if exc is None else explained(exc))
        elif exc is not None:
            self._end(f"the connection was lost: {exc}")
        else:
            self._end(other_protocol(self._first_bytes) or "the server closed the connection")

    def data_received(self, data: bytes) -> None:
        if not self._first_bytes:
            self._first_bytes = data[:16]
        self._life.last_seen_s = self.loop.time()
        try:
            self._reader.feed(data)
        except ProtocolBroken as error:
            self._out.send_now(frame(GOAWAY, 0, 0, struct.pack(">II", 0, error.code)))
            self.abort(other_protocol(self._first_bytes) or f"the server violates HTTP/2: {error}")

    def pause_writing(self) -> None:
        """The server does not read. New calls wait, and so are known not to be sent."""
        self._out.paused = True

    def resume_writing(self) -> None:
        self._out.resumed()
        self._unblock()

    def _stuck(self) -> None:
        self.abort("the server sends, but does not read")

    def send(self, data: bytes) -> None:
        """Write `data` after everything written before."""
        if len(self.calls) < TOGETHER_MIN:
            self._out.send_now(data)
        else:
            self._out.send_together(data)

    # --- opening and closing ---

    def leave(self) -> None:
        """Accept no new calls, and close after the last unfinished one."""
        if not self._leaving:
            self._leaving = True
            self._unusable()
            self._fail_waiting("the connection is being closed")
            self._close_if_idle()

    def abort(self, reason: str) -> None:
        """Close immediately, and fail all calls."""
        self._out.abort()
        self._end(reason)

    @property
    def unhurried(self) -> list[UnaryCall]:
        """Unfinished calls that must not be cancelled."""
        return [call for call in self.calls.values() if isinstance(call, UnaryCall) and call.unhurried]

    @property
    def ended(self) -> bool:
        return self._out.ended and not self.calls

    def _end(self, reason: str) -> None:
        self._out.lost()
        self._life.stop()
        if not self.opened.done():
            self.opened.set_exception(RpcFailed(Code.UNAVAILABLE, reason, sent=False))
            self.opened.exception()  # retrieved, or asyncio would warn: the caller may have stopped waiting
        self._unusable()
        self._fail_waiting(reason)
        calls, self.calls = self.calls, {}
        for call in calls.values():
            call.ended(RpcFailed(Code.UNAVAILABLE, reason))

    def _fail_waiting(self, reason: str) -> None:
        waiting, self._waiting = self._waiting, {}
        for call in waiting:
            call.ended(RpcFailed(Code.UNAVAILABLE, reason, sent=False))

    def _unusable(self) -> None:
        if self.usable:
            self.usable = False
            self._on_closed(self)

    def _close_if_idle(self) -> None:
        if self._leaving and not self.calls:
            self._out.close()

    def _ping(self) -> None:
        self.send(frame(PING, 0, 0, bytes(8)))

    # --- requests ---

    def begin(self, call: Call, block: bytes, body: bytes) -> None:
        """Send the headers of a request and its body so far, or queue it until the server accepts more calls."""
        if len(self.calls) >= self._streams_max or self._out.paused:
            self._waiting[call] = (block, body)
            return
        stream = call.stream = self._next_stream
        self._next_stream += 2
        call.window = self._stream_window
        self.calls[stream] = call
        size = len(body)
        if size <= self._window and size <= call.window and size <= self._frame_bytes_max >= len(block):
            self._window -= size
            call.window -= size
            request = _HEAD.pack(len(block) << 8 | HEADERS, END_HEADERS, stream) + block
            if call.ends or size:
                request += _HEAD.pack(size << 8 | DATA, END_STREAM if call.ends else 0, stream) + body
            self.send(request)
        else:
            for part in header_frames(stream, block, self._frame_bytes_max):
                self.send(part)
            self.write(call, body)
        if self._next_stream > WINDOW_BYTES_MAX:
            self.leave()  # no stream numbers are left

    def write(self, call: Call, data: bytes) -> None:
        """Send more of a request's body. The part that does not fit into the windows is held."""
        call.held += data
        if call.stream and call not in self._blocked:
            self._write_held(call)

    def _write_held(self, call: Call) -> None:
        held, place = call.held, 0
        while place < len(held):
            room = min(call.window, self._window, self._frame_bytes_max)
            if room <= 0 or self._out.paused:
                if call.window > 0:
                    self._blocked[call] = None
                break
            part = held[place : place + room]
            place += len(part)
            call.window -= len(part)
            self._window -= len(part)
            last = call.ends and place == len(held)
            send = self._out.send_together if place == len(held) else self._out.send_now
            send(frame(DATA, END_STREAM if last else 0, call.stream, part))
        call.held = held[place:]

    def _unblock(self) -> None:
        while self._blocked and self._window > 0 and not self._out.paused:
            call, _ = self._blocked.popitem(last=False)
            self._write_held(call)
        if self._waiting or self._leaving:
            self._next_call()

    def _unblock_one(self, call: Call) -> None:
        self._write_held(call)

    def reset(self, call: Call) -> None:
        """Cancel the call: at the server too, if it was sent."""
        self._waiting.pop(call, None)
        if call.stream and self._forget(call.stream) is not None:
            self.send(frame(RST_STREAM, 0, call.stream, struct.pack(">I", CANCEL)))
            self._next_call()

    def _forget(self, stream: int) -> Call | None:
        call = self.calls.pop(stream, None)
        if call is not None and self._blocked:
            self._blocked.pop(call, None)
        return call

    def _next_call(self) -> None:
        """A call is finished: send the next one, or close after the last one."""
        while self._waiting and len(self.calls) < self._streams_max and not self._out.paused:
            call = next(iter(self._waiting))
            block, body = self._waiting.pop(call)
            body += call.held  # messages that a stream wrote meanwhile
            call.held = b""
            self.begin(call, block, body)
        if self._leaving:
            self._close_if_idle()

    # --- answers ---

    def _take_ping(self, payload: bytes) -> None:
        check(self.opened.done(), "it does not begin with SETTINGS")
        answer = frame(PING, ACK, 0, payload)
        if payload == BANDWIDTH_PING:
            self._out.send_late(answer)
        else:
            self._out.send_unhurried(answer)

    def _take_other(self, kind: int, payload: bytes) -> None:
        if kind == GOAWAY:
            self._take_go_away(payload)
        elif kind == PUSH_PROMISE:
            raise ProtocolBroken("it pushes, which our SETTINGS forbid")

    def _take_headers(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        block = self._blocks.take(kind, flags, stream, payload)
        if block is None:
            return
        flags, headers = block
        if flags & END_STREAM:
            call = self._forget(stream)
            if call is not None:
                # Answered before the end of the request: the server needs no more of it.
                if call.held or not call.ends:
                    self.send(frame(RST_STREAM, 0, stream, struct.pack(">I", CANCEL)))
                call.took_trailers(headers)
                if self._waiting or self._leaving:
                    self._next_call()
            return
        call = self.calls.get(stream)
        if call is not None:
            call.answering = True
        status = headers.get(b":status", b"none")
        if status != b"200" and not (status[:1] == b"1" and len(status) == 3):  # 1xx responses precede the answer
            self._fail(stream, f"the server does not speak gRPC (HTTP status {status.decode(errors='replace')})")

    def _take_data(self, flags: int, stream: int, payload: bytes) -> None:
        self._received(len(payload))
        call = self.calls.get(stream)
        if call is None:
            return  # the call was cancelled
        if flags & PADDED:
            data = unpadded(flags, payload)
            call.reopen(len(payload) - len(data))
            payload = data
        call.took_data(payload)
        if flags & END_STREAM:
            self._fail(stream, "the answer ended without a status")

    def _fail(self, stream: int, reason: str) -> None:
        call = self.calls.get(stream)
        if call is not None:
            self.reset(call)
            call.ended(RpcFailed(Code.UNAVAILABLE, reason))

    def _take_reset(self, stream: int, code: int) -> None:
        call = self._forget(stream)
        if call is None:
            return
        if code == REFUSED_STREAM:
            call.ended(RpcFailed(Code.UNAVAILABLE, "the server refused the call", sent=call.answering))
        else:
            call.ended(RpcFailed(Code.UNAVAILABLE, f"the server ended the call (HTTP/2 code {code})"))
        self._next_call()

    def _take_go_away(self, payload: bytes) -> None:
        check(len(payload) >= 8, "a GOAWAY frame that is too short")
        last, code = struct.unpack_from(">II", payload)
        text = payload[8:].decode(errors="replace")
        why = "the server is going away" + (f" (HTTP/2 code {code} {text})" if code != NO_ERROR else "")
        self.leave()
        for call in [call for number, call in self.calls.items() if number > last & 0x7FFFFFFF]:
            self._forget(call.stream)
            call.ended(RpcFailed(Code.UNAVAILABLE, why, sent=call.answering))
        self._close_if_idle()

    def _settled(self, streams_max: int | None) -> None:
        if streams_max is not None:
            self._streams_max = streams_max
        if not self.opened.done():
            self.usable = True
            self.opened.set_result(None)
            self._life.check()
