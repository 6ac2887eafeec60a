"""The sending part of a connection: answers leave immediately, at the end of the turn, or when the outbox allows it.

Bytes that the peer does not take are kept, counted and bounded. While too many are kept, nothing more is read from it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from leasehold.base.errors import InvariantBroken
from leasehold.wire.answers import Answer, Call, Later, Released, Waiting
from leasehold.wire.body import pack
from leasehold.wire.frame import Err, response
from leasehold.wire.handoff import NEVER, UNSHARED, SharedConnection
from leasehold.wire.schema import TEXT

if TYPE_CHECKING:
    from leasehold.wire.connection import Connection

_UNKNOWN_OUTCOME = "not known to be durable in time: the outcome is unknown"
LEASE_EXPIRED = "the leader lease expired before the answer was sent"


def refusal(seq: int, err: Err, message: str) -> Released:
    """A response that is an RPC error. It shows no state, so it waits for no record."""
    return Released(response(seq, pack(TEXT, message), err=err))


class Sender:
    """Answers of one connection: those in flight, those that wait for the end of the turn, and unsent bytes.

    It also counts the bytes that passed, and stores the checkpoint of a shared connection. `connection` reads and
    closes; it closes its sender.
    """

    __slots__ = (  # an instance with many attributes is slower without: a tenth of a microsecond per request
        "_checkpoints",
        "_fd",
        "_late",
        "_passed_bytes",
        "_server",
        "_slot",
        "_sock",
        "_tasks",
        "_waiting",
        "closed",
        "connection",
        "in_flight",
        "stuck_ms",
        "unsent",
        "waiting_bytes",
    )

    def __init__(
        self, connection: Connection, sock: socket.socket, shared: SharedConnection | None, passed_bytes: int
    ) -> None:
        self.connection = connection
        self.closed = False
        self.unsent = bytearray()  # the peer does not take them yet
        self.stuck_ms = 0  # since the peer last took any of the bytes kept for it
        self.in_flight = 0  # requests that are answered later
        self.waiting_bytes = 0  # kept for those requests: answers that wait for a record, requests that go on later
        self._server = connection.server
        self._sock = sock
        self._fd = sock.fileno()
        self._late: list[Released] = []
        self._waiting: dict[int, Waiting] = {}  # by identity
        self._tasks: set[asyncio.Future[Any]] = set()
        self._checkpoints, self._slot = (UNSHARED, 0) if shared is None else (shared.checkpoints, shared.slot)
        self._passed_bytes = passed_bytes  # read and written, as the kernel counts them too

    @property
    def done(self) -> bool:
        """Whether every answer so far was sent."""
        return not (self.unsent or self._late or self.in_flight)

    def sweep(self, passed_ms: int) -> None:
        """Called at every sweep of the server."""
        self.stuck_ms = self.stuck_ms + passed_ms if self.unsent else 0

    def close(self) -> None:
        """Drop everything unsent, and cancel the tasks in flight. The socket is the connection's to close."""
        self.closed = True
        server = self._server
        if self.unsent:
            server.loop.remove_writer(self._fd)
        server.free_bytes(len(self.unsent) + self.waiting_bytes)
        self.waiting_bytes = 0
        for waiting in self._waiting.values():  # the outbox keeps it until its record is durable, but not its bytes
            waiting.forget()
        self._waiting.clear()
        self.unsent.clear()
        self._late.clear()
        for task in self._tasks:
            task.cancel()

    # --- checkpoints ---

    def received(self, count: int) -> None:
        """`count` bytes were read from the connection."""
        self._passed_bytes += count

    @property
    def at_checkpoint(self) -> bool:
        """Whether the connection is shared, and no request is open on it."""
        return self._checkpoints is not UNSHARED and self._checkpoints[self._slot] == self._passed_bytes

    def never_hand_over(self) -> None:
        """A process that shares this connection must close it when this process dies."""
        self._checkpoints[self._slot] = NEVER
        self._checkpoints, self._slot = UNSHARED, 0

    # --- answers ---

    def send(self, data: Released) -> None:
        """Send as many bytes as possible now, keep the rest, and stop reading while too many are kept."""
        self.write(data)

    def send_later(self, data: Released) -> None:
        """Send with everything else that becomes ready in this turn of the loop: one write, one check of the lease."""
        if self.closed:
            return
        if not self._late:
            self._server.send_at_end_of_turn(self)
        self._late.append(data)

    def defer(self, seq: int, answer: Waiting | Later, call: Call) -> None:
        """Count a request whose answer comes later. A `Later` is scheduled; a `Waiting` is the outbox's to release."""
        kept_bytes, server = answer.kept_bytes, self._server
        if isinstance(answer, Waiting):
            answer.attach(self, seq, call)
            if self.closed:
                answer.forget()
                return
            self._waiting[id(answer)] = answer
        elif self.closed:
            return
        self.waiting_bytes += kept_bytes
        server.keep_bytes(kept_bytes)
        self.in_flight += 1
        self.connection.throttle()
        if isinstance(answer, Later):
            server.loop.call_later(answer.pause_s, self._continue_later, seq, answer, call)
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
            self._measure(waiting.call)
        else:
            self._continue(waiting.seq, payload, waiting.call)

    def give_up(self, waiting: Waiting) -> None:
        """The record of `waiting` is not known to be durable in time."""
        if not self.closed:
            del self._waiting[id(waiting)]
            self._stop_waiting(waiting.kept_bytes)
            self.send_later(refusal(waiting.seq, Err.TIMED_OUT, _UNKNOWN_OUTCOME))
            self._measure(waiting.call)
            self._server.calls.failed(waiting.call[0], "outcome unknown")

    def _measure(self, call: Call) -> None:
        """A request that was answered later is answered now."""
        function, arrived_ns = call
        self._server.calls.answered((function,), self._server.now_ns() - arrived_ns, self.connection.peer)

    def _continue_later(self, seq: int, later: Later, call: Call) -> None:
        """The pause has passed. Without the leader lease nothing goes on."""
        if self.closed:
            return
        if not self._server.may_serve():
            self.connection.abort(LEASE_EXPIRED)
            return
        self._stop_waiting(later.kept_bytes)
        self._continue(seq, later.proceed, call)

    def _continue(self, seq: int, proceed: Callable[[], Answer], call: Call) -> None:
        """Go on with a request; an error in it is reported to its caller, not to the code that released it."""
        try:
            answer = proceed()
        except InvariantBroken as error:
            self._server.on_broken(error)
            return
        except Exception as error:
            self._server.failed(self.connection, call[0], error)
            answer = refusal(seq, Err.INTERRUPTED, "the call failed inside the server")
        if isinstance(answer, bytes):
            self.send_later(answer)
            self._measure(call)
        elif answer is not None:
            self.defer(seq, answer, call)

    def _stop_waiting(self, kept_bytes: int) -> None:
        self.waiting_bytes -= kept_bytes
        self._server.free_bytes(kept_bytes)
        self.leave_flight()

    def enter_flight(self, task: asyncio.Future[Any], function: int) -> None:
        """A task answers later; if the connection closes first, the task is cancelled."""
        call = (function, self._server.now_ns())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._measure(call))
        self.in_flight += 1
        self.connection.throttle()

    def leave_flight(self) -> None:
        self.in_flight -= 1
        self.connection.resume()

    def flush_late(self) -> None:
        """Write what `send_later` has gathered. The caller has checked the leader lease."""
        late, self._late = self._late, []
        self.write(late[0] if len(late) == 1 else b"".join(late))
        self.connection.has_sent(taken=False)

    # --- bytes ---

    def write(self, data: bytes) -> None:
        """As `send`, for several answers. The caller has checked the leader lease."""
        if self.closed:
            return
        if self.unsent:
            self.unsent += data
            self._keep_unsent(len(data))
            return
        size = len(data)
        self._passed_bytes = passed_bytes = self._passed_bytes + size
        if not (self.in_flight or self.connection.partial or self._late):
            self._checkpoints[self._slot] = passed_bytes  # before the write: no moment may lie between the two
        try:
            sent = self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.connection.close()
            return
        if sent < size:
            self._passed_bytes -= size - sent
            # Invalidate the checkpoint before reading, or the next request's bytes could stand in for the unsent ones.
            self._checkpoints[self._slot] = NEVER
            self.unsent += memoryview(data)[sent:]
            self._server.loop.add_writer(self._fd, self._on_writable)
            self._keep_unsent(size - sent)

    def _keep_unsent(self, count: int) -> None:
        """Count `count` more bytes that are kept for this peer."""
        server = self._server
        server.keep_bytes(count)
        if server.buffered_bytes > server.settings.buffered_bytes:
            server.make_room()
        self.connection.throttle()

    def _on_writable(self) -> None:
        if not self._server.may_serve():  # a slow reader: the lease may have expired since the answer was made
            self.connection.abort(LEASE_EXPIRED)
            return
        if not (self.in_flight or self.connection.partial or self._late):
            self._checkpoints[self._slot] = self._passed_bytes + len(self.unsent)  # before and after: as in `write`
        try:
            sent = self._sock.send(self.unsent)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.connection.close()
            return
        if sent < len(self.unsent):
            self._checkpoints[self._slot] = NEVER
        if not sent:
            return
        self.stuck_ms = 0
        self._passed_bytes += sent
        del self.unsent[:sent]
        self._server.free_bytes(sent)
        if not self.unsent:
            self._server.loop.remove_writer(self._fd)
        self.connection.has_sent(taken=True)
        self.connection.resume()
