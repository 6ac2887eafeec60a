"""One client's connection on the server: bytes in, bursts of requests dispatched, one write for the burst.

It uses the loop's readiness callbacks instead of a transport: a request costs one `recv` and one `send`, and the bytes
that wait to be sent can be counted and bounded.
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
from leasehold.wire.answers import Answer, Released
from leasehold.wire.body import pack
from leasehold.wire.errors import Malformed
from leasehold.wire.frame import Err, response
from leasehold.wire.handoff import SharedConnection
from leasehold.wire.schema import TEXT
from leasehold.wire.sending import LEASE_EXPIRED, Sender, refusal

if TYPE_CHECKING:
    from leasehold.wire.server import Listener, Server

Handler = Callable[["Connection", int, bytes], Answer]
"""`handler(connection, seq, body)`: the response frame if it may be sent now, or what it waits for."""

NS_PER_MS: Final = 1_000_000
_HEAD: Final = struct.Struct("<IIIII")  # the first four bytes as one number: they are nearly always the same
_HEAD_BYTES: Final = _HEAD.size
_WITHOUT_KIND: Final = 0x00FFFFFF  # the message type is ignored, as in the C++ server
_RECV_BYTES: Final = 64 * 1024
_RECV_LARGE_BYTES: Final = 1024 * 1024

_INVALID = pack(TEXT, "invalid rpc arg")
_UNKNOWN = pack(TEXT, "the rpc function not registered")


class Connection:
    """See the module. `peer` names it in logs; `attachment` is that of the request being handled.

    It reads and closes. Its `sender` sends the answers.
    """

    __slots__ = (  # an instance with many attributes is slower without: a tenth of a microsecond per request
        "_fd",
        "_handlers",
        "_held",
        "_on_close",
        "_only_answers",
        "_parting_ms",
        "_reading",
        "_recv",
        "_shared",
        "_sock",
        "_wanted",
        "attachment",
        "closed",
        "half_ms",
        "has_received",
        "listener",
        "partial",
        "peer",
        "quiet_ms",
        "recv_bytes",
        "sender",
        "server",
        "source",
    )

    def __init__(
        self,
        server: Server,
        listener: Listener,
        sock: socket.socket,
        peer: str,
        shared: SharedConnection | None = None,
        passed_bytes: int = 0,
    ) -> None:
        self.server = server
        self.listener = listener
        self.peer = peer
        self.source = peer.encode()  # names the caller where the index counts by caller
        self.attachment = b""
        self.closed = False
        self.partial = bytearray()  # the first bytes of an incomplete request
        self._sock = sock
        self._fd = sock.fileno()
        self._reading = True
        self._held = False
        self._on_close: list[Callable[[], None]] = []
        self.has_received = True  # since the last sweep
        self.quiet_ms = 0
        self.half_ms = 0
        self._recv = sock.recv
        self.recv_bytes = _RECV_BYTES
        self._handlers: Mapping[int, Handler] = listener.handlers
        self._wanted = 0
        self._parting_ms: int | None = None  # since the stream broke, or since the peer last took answers
        self._only_answers = False  # the peer has shut down its sending side
        self._shared = shared
        self.sender = Sender(self, sock, shared, passed_bytes)
        server.loop.add_reader(self._fd, self._on_readable)

    def fileno(self) -> int:
        return self._fd

    # --- requests ---

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
        self.has_received = True
        size = len(data)
        self.sender.received(size)
        if self.partial or size >= _RECV_BYTES or self.recv_bytes != _RECV_BYTES:
            if not (whole := self._with_partial(data)):
                return
            data = whole
            size = len(data)
        server = self.server
        arrived_ns = server.now_ns()
        if not server.permit.may_serve(arrived_ns // NS_PER_MS):
            self.abort("this node may not serve now")
            return
        answers: list[Released] = []
        called: list[int] = []
        rest = self._dispatch(data, answers, called, arrived_ns)
        if rest:
            self.half_ms = 0  # a request is complete: a stream that is never between two requests is not half open
        if rest < size:  # before the answers are sent: a request stays open
            if rest < 0:
                self.sender.never_hand_over()
            elif not self.closed:
                self._keep(data, rest)
        if answers:
            done_ns = server.now_ns()
            if server.permit.may_serve(done_ns // NS_PER_MS):  # the lease may have expired during the work
                self.sender.write(answers[0] if len(answers) == 1 else b"".join(answers))
                server.calls.answered(called, done_ns - arrived_ns, self.peer)
            else:
                self.abort(LEASE_EXPIRED)
        if rest < 0:
            self._part()

    def _with_partial(self, data: bytes) -> bytes:
        """The kept bytes and `data`, once they are a whole frame; else keep `data` and return nothing."""
        if not self.partial:
            self.recv_bytes = _RECV_BYTES
            return data
        self.partial += data
        self.server.keep_bytes(len(data))
        # Large buffers only for a large request, and no further than its end: thousands of small requests may follow,
        # and a client that sends those together must not get a longer turn than others.
        left = self._wanted - len(self.partial)
        self.recv_bytes = min(max(left, _RECV_BYTES), _RECV_LARGE_BYTES)
        if left > 0:
            if self.server.buffered_bytes > self.server.settings.buffered_bytes:
                self.server.make_room()
            return b""
        whole = bytes(self.partial)
        self.server.free_bytes(len(whole))
        self.partial.clear()
        return whole

    def _dispatch(self, data: bytes, answers: list[Released], called: list[int], arrived_ns: int) -> int:
        """Handle every complete request in `data`; return where the rest begins, or -1 if the stream is broken.

        `called` receives the functions of the `answers`.
        """
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
                    answer: Answer = Released(response(seq, _UNKNOWN, err=Err.NOT_REGISTERED))
                else:
                    answer = handler(self, seq, data[body_at:end_of_body])
            except Malformed:
                answer = self._other_form(seq, function, data[body_at:end_of_body])
            except InvariantBroken as error:
                self.server.on_broken(error)
                return -1
            except Exception as error:
                self.server.failed(self, function, error)
                answer = refusal(seq, Err.INTERRUPTED, "the call failed inside the server")
            if attachment_bytes:
                self.attachment = b""
            if isinstance(answer, bytes):
                answers.append(answer)
                if handler is not None:
                    called.append(function)
            elif answer is not None:
                self.sender.defer(seq, answer, (function, arrived_ns))
            at = end
        return at

    def _other_form(self, seq: int, function: int, body: bytes) -> Answer:
        """The answer to a request that this port's release cannot read."""
        handler = self.listener.other_form(self, function, body)
        if handler is not None:
            with contextlib.suppress(Malformed):
                return handler(self, seq, body)
        self.server.calls.failed(function, "invalid argument")
        return Released(response(seq, _INVALID, err=Err.INVALID_ARGUMENT))

    def _keep(self, data: bytes, rest: int) -> None:
        """Keep an incomplete request until the rest of it arrives."""
        left = data[rest:]
        self.partial += left
        self.server.keep_bytes(len(left))
        self._wanted = _HEAD_BYTES
        if len(left) >= _HEAD_BYTES:
            _, _, _, body_bytes, attachment_bytes = _HEAD.unpack_from(left)
            self._wanted += body_bytes + attachment_bytes
            self.recv_bytes = min(max(self._wanted - len(left), _RECV_BYTES), _RECV_LARGE_BYTES)
        if self.server.buffered_bytes > self.server.settings.buffered_bytes:
            self.server.make_room()

    def throttle(self) -> None:
        """Stop reading while too much is kept for this peer, or too many of its requests are in flight."""
        settings, sender = self.server.settings, self.sender
        if self._reading and (
            (kept := len(sender.unsent) + sender.waiting_bytes) > settings.unsent_bytes
            or sender.in_flight >= settings.in_flight_max
            or (kept and self.server.buffered_bytes > settings.buffered_bytes)
        ):
            self._reading = False
            self.server.loop.remove_reader(self._fd)

    def hold(self) -> bool:
        """Read no further request. True if none is open, so that another process can go on with the connection."""
        self._held = True
        if self._reading and not self.partial:
            self._reading = False
            self.server.loop.remove_reader(self._fd)
        return self.sender.done and not self.partial

    def release(self) -> None:
        """Read requests again."""
        self._held = False
        self.resume()

    def resume(self) -> None:
        """Read again, if the peer has taken enough and there is anything to read."""
        if self._reading or self.closed or self._only_answers or self._held:
            return
        settings, sender = self.server.settings, self.sender
        if (
            len(sender.unsent) + sender.waiting_bytes <= settings.unsent_bytes // 2
            and sender.in_flight <= settings.in_flight_max // 2
        ):
            self._reading = True
            self.server.loop.add_reader(self._fd, self._on_readable if self._parting_ms is None else self._discard)

    # --- closing ---

    def has_sent(self, *, taken: bool) -> None:
        """Some of the bytes that were due have been written; `taken`: the peer accepted bytes that were kept for it."""
        if self._parting_ms is not None:
            if taken:
                self._parting_ms = 0
            self._shut_down_if_done()

    def tie(self, on_close: Callable[[], None]) -> None:
        """This process keeps state for the connection, until `on_close`: no other process could continue it."""
        self._on_close.append(on_close)
        self.sender.never_hand_over()

    def _part(self) -> None:
        """The stream is broken: send the answers that are due, shut down, and discard the bytes that still arrive.

        Closing a socket with unread bytes resets it, and a reset overtakes the answers that were sent before it.
        """
        if self.closed:
            return
        self._parting_ms = 0
        if self._reading:
            self.server.loop.add_reader(self._fd, self._discard)
        self._shut_down_if_done()

    def _shut_down_if_done(self) -> None:
        if self.closed or not self.sender.done:
            return
        if self._only_answers:  # both sides have finished
            self.close()
            return
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:  # the peer has closed it
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
        """No more requests arrive. A peer that has only shut down its sending side still waits for its answers."""
        if self.sender.done:
            self.close()
            return
        self._only_answers = True
        self._parting_ms = 0
        self.sender.never_hand_over()
        self.server.free_bytes(len(self.partial))
        self.partial.clear()  # an incomplete request
        self._reading = False
        self.server.loop.remove_reader(self._fd)

    @property
    def buffered_bytes(self) -> int:
        """Bytes kept for this peer: incomplete or unfinished requests, answers that wait or that it does not take."""
        return len(self.sender.unsent) + len(self.partial) + self.sender.waiting_bytes

    def sweep(self, passed_ms: int, idle_ms: int) -> None:
        """Close the connection if it is idle, half open, or takes no answers. Called at every sweep of the server."""
        settings, sender = self.server.settings, self.sender
        is_quiet = not (self.has_received or sender.in_flight or sender.unsent)
        self.quiet_ms = self.quiet_ms + passed_ms if is_quiet else 0
        # While this side does not read, the rest of a request may have been sent.
        self.half_ms = self.half_ms + passed_ms if self.partial and self._reading else 0
        sender.sweep(passed_ms)
        self.has_received = False
        if self._parting_ms is not None:
            self._parting_ms += passed_ms
            self._shut_down_if_done()  # the last request in flight may have finished without an answer
            if self._parting_ms > (settings.slow_reader_ms if self._only_answers else wire_parting_ms):
                self.close()
        elif sender.stuck_ms > settings.slow_reader_ms:
            self.abort("it takes no answers")
        elif self.half_ms > settings.half_frame_ms:
            self.abort("its request never became whole")
        elif self.quiet_ms > idle_ms:
            self.close()

    def leave(self) -> bool:
        """If no request is open, leave the connection to the process that shares it. False if it stays here.

        The peer notices nothing.
        """
        shared = self._shared
        if self.closed or shared is None or not self.sender.at_checkpoint or not shared.hand_over():
            return False
        self._shared = None
        self.close()
        return True

    def abort(self, reason: str) -> None:
        """Reset the connection, so that the peer does not take silence for an answer."""
        if not self.closed:
            self.server.log_dropped(self, reason)
            if self._shared is None:
                tcp.reset_on_close(self._sock)
            else:
                tcp.cut(self._sock)
            self.close()

    def close(self) -> None:
        """Close the connection. Unsent bytes are lost, and the peer sees the close."""
        if self.closed:
            return
        self.closed = True
        if self._reading:
            self._reading = False
            self.server.loop.remove_reader(self._fd)
        self.server.free_bytes(len(self.partial))
        self.partial.clear()
        self.sender.close()
        self._close_socket()
        self.server.forget(self)
        for callback in self._on_close:
            callback()

    def _close_socket(self) -> None:
        """Close the socket. A shared one is shut down first, since closing it here would not end the connection."""
        if self._shared is not None:
            self.sender.never_hand_over()
            with contextlib.suppress(OSError):  # the peer closed it first
                self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        if self._shared is not None:
            self._shared.let_go()
