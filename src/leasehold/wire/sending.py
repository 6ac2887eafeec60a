"""The sending half of a connection: answers leave immediately, at the end of the turn, or when the outbox allows it.

Bytes that the peer does not take are kept, counted and bounded. While too many are kept, nothing more is read from it.
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from leasehold.base.errors import InvariantBroken
from leasehold.wire.answers import Answer, Later, Released, Waiting
from leasehold.wire.body import pack
from leasehold.wire.frame import Err, response
from leasehold.wire.handoff import NEVER, UNSHARED, SharedConnection
from leasehold.wire.schema import TEXT

if TYPE_CHECKING:
    from leasehold.wire.server import Listener, Server

_UNKNOWN_OUTCOME = "not known to be durable in time: the outcome is unknown"
LEASE_EXPIRED = "the leader lease expired before the answer was sent"


def refusal(seq: int, err: Err, message: str) -> Released:
    """A response that is an RPC error. It shows no state, so it waits for no record."""
    return Released(response(seq, pack(TEXT, message), err=err))


class SendingHalf(ABC):
    """See the module. The other half, `Connection`, reads and closes."""

    __slots__ = (  # an instance with thirty attributes is slower without: a tenth of a microsecond per request
        "_checkpoints",
        "_fd",
        "_late",
        "_partial",
        "_passed_bytes",
        "_reading",
        "_slot",
        "_sock",
        "_tasks",
        "_unsent",
        "_waiting",
        "closed",
        "in_flight",
        "listener",
        "peer",
        "server",
        "stuck_ms",
        "waiting_bytes",
    )

    def __init__(
        self,
        server: Server,
        listener: Listener,
        sock: socket.socket,
        peer: str,
        shared: SharedConnection | None,
        passed_bytes: int,
    ) -> None:
        self.server = server
        self.listener = listener
        self.peer = peer
        self.closed = False
        self.stuck_ms = 0  # since the peer last took any of the bytes kept for it
        self.in_flight = 0  # requests that are answered later
        self.waiting_bytes = 0  # kept for those requests: answers that wait for a record, requests that go on later
        self._sock = sock
        self._fd = sock.fileno()
        self._partial = bytearray()  # the first bytes of an incomplete request
        self._late: list[Released] = []
        self._unsent = bytearray()
        self._waiting: dict[int, Waiting] = {}  # by identity
        self._reading = True
        self._tasks: set[asyncio.Future[Any]] = set()
        self._checkpoints, self._slot = (UNSHARED, 0) if shared is None else (shared.checkpoints, shared.slot)
        self._passed_bytes = passed_bytes  # read and written, as the kernel counts them too

    @abstractmethod
    def abort(self, reason: str) -> None:
        """Reset the connection."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def _has_sent(self, *, taken: bool) -> None:
        """Some of the bytes that were due have been written; `taken`: the peer accepted bytes that were kept for it."""

    @abstractmethod
    def _read_on(self) -> None:
        """The peer has taken enough: read again, if there is anything to read."""

    # --- answers ---

    def send(self, data: Released) -> None:
        """Send as many bytes as possible now, keep the rest, and stop reading while too many are kept."""
        self._write(data)

    def send_later(self, data: Released) -> None:
        """Send with everything else that becomes ready in this turn of the loop: one write, one check of the lease."""
        if self.closed:
            return
        if not self._late:
            self.server.send_at_end_of_turn(self)
        self._late.append(data)

    def defer(self, seq: int, answer: Waiting | Later) -> None:
        """Count a request whose answer comes later. A `Later` is scheduled; a `Waiting` is the outbox's to release."""
        kept_bytes, server = answer.kept_bytes, self.server
        if isinstance(answer, Waiting):
            answer.attach(self, seq)
            if self.closed:
                answer.forget()
                return
            self._waiting[id(answer)] = answer
        elif self.closed:
            return
        self.waiting_bytes += kept_bytes
        server.buffered_bytes += kept_bytes
        self.in_flight += 1
        self._throttle()
        if isinstance(answer, Later):
            server.loop.call_later(answer.pause_s, self._continue_later, seq, answer)
        elif type(answer.payload) is bytes:
            return
        if kept_bytes and server.buffered_bytes > server.settings.buffered_bytes:
            server.make_room()

    def release(self, waiting: Waiting) -> None:
        """The record that `waiting` waited for may be acknowledged: send the answer, or go on with the request."""
        if self.closed:
            return
        del self._waiting[id(waiting)]
        self._stop_waiting(waiting.kept_bytes)
        payload = waiting.payload
        if type(payload) is bytes:
            self.send_later(Released(payload))
        else:
            self._continue(waiting.seq, payload)

    def give_up(self, waiting: Waiting) -> None:
        """The record of `waiting` is not known to be durable in time."""
        if not self.closed:
            del self._waiting[id(waiting)]
            self._stop_waiting(waiting.kept_bytes)
            self.send_later(refusal(waiting.seq, Err.TIMED_OUT, _UNKNOWN_OUTCOME))

    def _continue_later(self, seq: int, later: Later) -> None:
        """The pause has passed. Without the leader lease nothing goes on."""
        if self.closed:
            return
        if not self.server.may_serve():
            self.abort(LEASE_EXPIRED)
            return
        self._stop_waiting(later.kept_bytes)
        self._continue(seq, later.proceed)

    def _continue(self, seq: int, proceed: Callable[[], Answer]) -> None:
        """Go on with a request; an error in it is reported to its caller, not to the code that released it."""
        try:
            answer = proceed()
        except InvariantBroken as error:
            self.server.on_broken(error)
            return
        except Exception as error:
            self.server.failed(self, "going on after a wait", error)
            answer = refusal(seq, Err.INTERRUPTED, "the call failed inside the server")
        if isinstance(answer, bytes):
            self.send_later(answer)
        elif answer is not None:
            self.defer(seq, answer)

    def _stop_waiting(self, kept_bytes: int) -> None:
        self.waiting_bytes -= kept_bytes
        self.server.buffered_bytes -= kept_bytes
        self.leave_flight()

    def enter_flight(self, task: asyncio.Future[Any]) -> None:
        """A task answers later; if the connection closes first, the task is cancelled."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.in_flight += 1
        self._throttle()

    def leave_flight(self) -> None:
        self.in_flight -= 1
        self._resume()

    def flush_late(self) -> None:
        """Write what `send_later` has gathered. The caller has checked the leader lease."""
        late, self._late = self._late, []
        self._write(late[0] if len(late) == 1 else b"".join(late))
        self._has_sent(taken=False)

    # --- bytes ---

    def _write(self, data: bytes) -> None:
        if self.closed:
            return
        if self._unsent:
            self._unsent += data
            self._keep_unsent(len(data))
            return
        size = len(data)
        self._passed_bytes = passed_bytes = self._passed_bytes + size
        if not (self.in_flight or self._partial or self._late):
            self._checkpoints[self._slot] = passed_bytes  # before the write: no moment may lie between the two
        try:
            sent = self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.close()
            return
        if sent < size:
            self._passed_bytes -= size - sent
            # Invalidate the checkpoint before reading, or the next request's bytes could stand in for the unsent ones.
            self._checkpoints[self._slot] = NEVER
            self._unsent += memoryview(data)[sent:]
            self.server.loop.add_writer(self._fd, self._on_writable)
            self._keep_unsent(size - sent)

    def _keep_unsent(self, count: int) -> None:
        """Count `count` more bytes that are kept for this peer."""
        server = self.server
        server.buffered_bytes += count
        if server.buffered_bytes > server.settings.buffered_bytes:
            server.make_room()
        self._throttle()

    def _on_writable(self) -> None:
        if not self.server.may_serve():  # a slow reader: the lease may have expired since the answer was made
            self.abort(LEASE_EXPIRED)
            return
        if not (self.in_flight or self._partial or self._late):
            self._checkpoints[self._slot] = self._passed_bytes + len(self._unsent)  # before and after: as in `_write`
        try:
            sent = self._sock.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.close()
            return
        if sent < len(self._unsent):
            self._checkpoints[self._slot] = NEVER
        if not sent:
            return
        self.stuck_ms = 0
        self._passed_bytes += sent
        del self._unsent[:sent]
        self.server.buffered_bytes -= sent
        if not self._unsent:
            self.server.loop.remove_writer(self._fd)
        self._has_sent(taken=True)
        self._resume()

    def _throttle(self) -> None:
        settings = self.server.settings
        if self._reading and (
            (kept := len(self._unsent) + self.waiting_bytes) > settings.unsent_bytes
            or self.in_flight >= settings.in_flight_max
            or (kept and self.server.buffered_bytes > settings.buffered_bytes)
        ):
            self._reading = False
            self.server.loop.remove_reader(self._fd)

    def _resume(self) -> None:
        settings = self.server.settings
        if (
            not self._reading
            and not self.closed
            and len(self._unsent) + self.waiting_bytes <= settings.unsent_bytes // 2
            and self.in_flight <= settings.in_flight_max // 2
        ):
            self._read_on()
