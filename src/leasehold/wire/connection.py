"""One client's connection on the server: bytes in, bursts of requests dispatched, one write for the burst.

It sits on the loop's readiness callbacks and not on a transport: a request costs one `recv` and one `send`, and what
waits to be sent is ours to count and to bound.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from leasehold.base.errors import InvariantBroken
from leasehold.base.limits import wire_parting_ms
from leasehold.runtime import tcp
from leasehold.wire.body import pack
from leasehold.wire.errors import Malformed
from leasehold.wire.frame import Err, response
from leasehold.wire.handoff import NEVER, UNSEEN, SecondHold
from leasehold.wire.schema import TEXT
from leasehold.wire.sending import Answering, refusal

if TYPE_CHECKING:
    from leasehold.wire.server import Listener, Server

Handler = Callable[["Connection", int, bytes], bytes | None]
"""`handler(connection, seq, body)`: the whole response frame, or None if it will be sent later (`send_later`)."""

_HEAD: Final = struct.Struct("<IIIII")  # the four first bytes as one number: they are nearly always the same
_HEAD_BYTES: Final = _HEAD.size
_WITHOUT_KIND: Final = 0x00FFFFFF  # the message type is not looked at, as in the C++ server
_RECV_BYTES: Final = 64 * 1024
_RECV_BULK_BYTES: Final = 1024 * 1024

_INVALID = pack(TEXT, "invalid rpc arg")
_UNKNOWN = pack(TEXT, "the rpc function not registered")


class Connection(Answering):
    """See the module. `peer` names it for people; `attachment` is that of the request being handled."""

    __slots__ = (
        "_handlers",
        "_hold",
        "_on_close",
        "_only_answers",
        "_parting_ms",
        "_recv",
        "_wanted",
        "attachment",
        "half_ms",
        "heard",
        "quiet_ms",
        "recv_bytes",
        "source",
    )

    def __init__(
        self,
        server: Server,
        listener: Listener,
        sock: socket.socket,
        peer: str,
        hold: SecondHold | None = None,
        passed_bytes: int = 0,
    ) -> None:
        super().__init__(server, listener, sock, peer, hold, passed_bytes)
        self.source = peer.encode()  # who it is, for what the index counts by caller
        self.attachment = b""
        self._on_close: list[Callable[[], None]] = []
        self.heard = True  # since the last sweep
        self.quiet_ms = 0
        self.half_ms = 0
        self._recv = sock.recv
        self.recv_bytes = _RECV_BYTES
        self._handlers: Mapping[int, Handler] = listener.handlers
        self._wanted = 0
        self._parting_ms: int | None = None  # since the stream broke, and since it last took of its answers
        self._only_answers = False  # the peer has shut down its sending side
        self._hold = hold
        server.loop.add_reader(self._fd, self._on_readable)

    def fileno(self) -> int:
        return self._fd

    # --- in

    def _on_readable(self) -> None:
        try:
            data = self._recv(self.recv_bytes)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        if not data:
            self._peer_ended()
            return
        self.heard = True
        size = len(data)
        self._passed_bytes += size
        if self._partial or size >= _RECV_BYTES or self.recv_bytes != _RECV_BYTES:
            if not (whole := self._with_partial(data)):
                return
            data = whole
            size = len(data)
        gate = self.server.gate
        if not gate.may_serve():
            self.abort("this node may not serve now")
            return
        answers: list[bytes] = []
        rest = self._dispatch(data, answers)
        if rest:
            self.half_ms = 0  # a request has become whole: a stream that is never between two is not a half-open one
        if rest < size:  # before the answers are sent: they leave something open
            if rest < 0:
                self._stay()
            elif not self.closed:
                self._keep(data, rest)
        if answers:
            if gate.may_serve():  # the right may have ended while we worked
                self.send(answers[0] if len(answers) == 1 else b"".join(answers))
            else:
                self.abort("the right to serve ended before the answer left")
        if rest < 0:
            self._part()

    def _with_partial(self, data: bytes) -> bytes:
        """`data` behind what was kept, once that is a whole frame; else keep it and return nothing."""
        if not self._partial:
            self.recv_bytes = _RECV_BYTES
            return data
        self._partial += data
        self.server.buffered_bytes += len(data)
        # Large buffers only for a large request, and no further than its end: behind it there may be thousands of small
        # ones, and whoever sends those in one go must not have a longer turn than others.
        left = self._wanted - len(self._partial)
        self.recv_bytes = min(max(left, _RECV_BYTES), _RECV_BULK_BYTES)
        if left > 0:
            if self.server.buffered_bytes > self.server.settings.buffered_bytes:
                self.server.make_room()
            return b""
        whole = bytes(self._partial)
        self.server.buffered_bytes -= len(whole)
        self._partial.clear()
        return whole

    def _dispatch(self, data: bytes, answers: list[bytes]) -> int:
        """Handle every complete request in `data`; return where the rest begins, or -1 if the stream is broken."""
        at, end, size, handlers = 0, 0, len(data), self._handlers
        frame_bytes_max = self.server.settings.frame_bytes
        while size - at >= _HEAD_BYTES:
            first, seq, function, body_bytes, attachment_bytes = _HEAD.unpack_from(data, at)
            if first & _WITHOUT_KIND != 0x15:
                self.listener.count_refused("frame")
                return -1
            body_at = at + _HEAD_BYTES
            end = body_at + body_bytes + attachment_bytes
            if end - at > frame_bytes_max:
                self.listener.count_refused("too large")
                answers.append(refusal(seq, Err.TOO_LARGE, "the request is larger than this server takes"))
                return -1
            if end > size:
                break
            if attachment_bytes:
                self.attachment = data[body_at + body_bytes : end]
                end_of_body = body_at + body_bytes
            else:
                end_of_body = end
            handler = handlers.get(function)
            try:
                if handler is None:
                    self.listener.unknown(self)
                    answer: bytes | None = response(seq, _UNKNOWN, err=Err.NOT_REGISTERED)
                else:
                    answer = handler(self, seq, data[body_at:end_of_body])
            except Malformed:
                self.listener.refused(self, function, data[body_at:end_of_body])
                answer = response(seq, _INVALID, err=Err.INVALID_ARGUMENT)
            except InvariantBroken as error:
                self.server.on_broken(error)
                return -1
            except Exception as error:
                self.server.failed(self, hex(function), error)
                answer = refusal(seq, Err.INTERRUPTED, "the call failed inside the server")
            if attachment_bytes:
                self.attachment = b""
            if answer is not None:
                answers.append(answer)
            at = end
        return at

    def _keep(self, data: bytes, rest: int) -> None:
        """Keep an incomplete request until the rest of it is here."""
        left = data[rest:]
        self._partial += left
        self.server.buffered_bytes += len(left)
        self._wanted = _HEAD_BYTES
        if len(left) >= _HEAD_BYTES:
            _, _, _, body_bytes, attachment_bytes = _HEAD.unpack_from(left)
            self._wanted += body_bytes + attachment_bytes
            self.recv_bytes = min(max(self._wanted - len(left), _RECV_BYTES), _RECV_BULK_BYTES)
        if self.server.buffered_bytes > self.server.settings.buffered_bytes:
            self.server.make_room()

    # --- the end

    def _let_out(self, *, taken: bool) -> None:
        if self._parting_ms is not None:
            if taken:
                self._parting_ms = 0
            self._say_end()

    def _read_on(self) -> None:
        if not self._only_answers:
            self._reading = True
            self.server.loop.add_reader(self._fd, self._on_readable if self._parting_ms is None else self._discard)

    def tie(self, on_close: Callable[[], None]) -> None:
        """This process keeps something for the connection, until `on_close`: nobody else could go on with it."""
        self._on_close.append(on_close)
        self._stay()

    def _stay(self) -> None:
        """Whoever else holds this connection must end it when we die."""
        self._checkpoints[self._slot] = NEVER
        self._checkpoints, self._slot = UNSEEN, 0

    def _part(self) -> None:
        """The stream is broken: answer what was whole, say that no more comes, and take what is still on its way.

        To close a socket with bytes unread is to reset it, and a reset overtakes the answers that were sent before it.
        """
        if self.closed:
            return
        self._parting_ms = 0
        if self._reading:
            self.server.loop.add_reader(self._fd, self._discard)
        self._say_end()

    def _say_end(self) -> None:
        if self.closed or self._unsent or self._late or self.in_flight:
            return
        if self._only_answers:  # all is said, on both sides
            self.close()
            return
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:  # it has gone
            self.close()

    def _discard(self) -> None:
        try:
            data = self._recv(_RECV_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._peer_ended()

    def _peer_ended(self) -> None:
        """No more requests come. Whoever has only shut down its sending side still waits for answers that are due."""
        if not (self._unsent or self._late or self.in_flight):
            self.close()
            return
        self._only_answers = True
        self._parting_ms = 0
        self._stay()
        self.server.buffered_bytes -= len(self._partial)
        self._partial.clear()  # half a request that will never be whole
        self._reading = False
        self.server.loop.remove_reader(self._fd)

    @property
    def buffered_bytes(self) -> int:
        """What this peer makes us keep: requests half sent or under way, answers that wait or that it does not take."""
        return len(self._unsent) + len(self._partial) + self.held_bytes

    def sweep(self, passed_ms: int, idle_ms: int) -> None:
        """Once in a while: end what is idle, half open, or takes nothing."""
        settings = self.server.settings
        self.quiet_ms = 0 if self.heard or self.in_flight or self._unsent else self.quiet_ms + passed_ms
        # While we do not read, the rest of a request may well have been sent.
        self.half_ms = self.half_ms + passed_ms if self._partial and self._reading else 0
        self.stuck_ms = self.stuck_ms + passed_ms if self._unsent else 0
        self.heard = False
        if self._parting_ms is not None:
            self._parting_ms += passed_ms
            self._say_end()  # the last request in flight may have ended without an answer
            if self._parting_ms > (settings.slow_reader_ms if self._only_answers else wire_parting_ms):
                self.close()
        elif self.stuck_ms > settings.slow_reader_ms:
            self.abort("it takes no answers")
        elif self.half_ms > settings.half_frame_ms:
            self.abort("its request never became whole")
        elif self.quiet_ms > idle_ms:
            self.close()

    def leave(self) -> bool:
        """If nothing is open, leave it to whoever else holds it, and the peer notices nothing. False if it stays."""
        hold = self._hold
        at_rest = self._checkpoints is not UNSEEN and self._checkpoints[self._slot] == self._passed_bytes
        if self.closed or hold is None or not at_rest or not hold.hand_over():
            return False
        self._hold = None
        self.close()
        return True

    def abort(self, reason: str) -> None:
        """End it at once, with a reset, so that the peer does not take silence for an answer."""
        if not self.closed:
            self.server.tell_dropped(self, reason)
            if self._hold is None:
                tcp.reset_on_close(self._sock)
            else:
                tcp.cut(self._sock)
            self.close()

    def close(self) -> None:
        """End it; what was not sent is lost, and the peer finds out."""
        if self.closed:
            return
        self.closed = True
        loop = self.server.loop
        if self._reading:
            self._reading = False
            loop.remove_reader(self._fd)
        if self._unsent:
            loop.remove_writer(self._fd)
        self.server.buffered_bytes -= self.buffered_bytes
        self.held_bytes = 0
        self._held.clear()
        self._unsent.clear()
        self._partial.clear()
        self._late.clear()
        self._end()
        for task in self._tasks:
            task.cancel()
        self.server.forget(self)
        for callback in self._on_close:
            callback()

    def _end(self) -> None:
        """Close the socket. If somebody else holds it too, that alone would not end the connection."""
        if self._hold is not None:
            self._stay()
            with contextlib.suppress(OSError):  # the peer was first
                self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        if self._hold is not None:
            self._hold.let_go()
