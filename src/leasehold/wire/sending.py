"""The sending half of a connection: answers at once, at the end of the turn, or when a record is durable.

What the peer does not take is kept, counted and bounded; while too much of it is kept, nothing more is read from it.
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from leasehold.base.errors import InvariantBroken
from leasehold.wire.body import pack
from leasehold.wire.frame import Err, response
from leasehold.wire.handoff import NEVER, UNSEEN, SecondHold
from leasehold.wire.schema import TEXT

if TYPE_CHECKING:
    from leasehold.wire.server import Listener, Server

Then = Callable[[], bytes | None]
_UNKNOWN_OUTCOME = "not known to be durable in time: the outcome is unknown"


def refusal(seq: int, err: Err, message: str) -> bytes:
    """A response that is an RPC error."""
    return response(seq, pack(TEXT, message), err=err)


class Answering(ABC):
    """See the module. Its other half, `Connection`, reads, and knows when it ends."""

    __slots__ = (  # an instance of thirty attributes is slower without: a tenth of a microsecond a request
        "_checkpoints",
        "_fd",
        "_held",
        "_late",
        "_partial",
        "_passed_bytes",
        "_reading",
        "_slot",
        "_sock",
        "_tasks",
        "_ticket",
        "_unsent",
        "closed",
        "held_bytes",
        "in_flight",
        "listener",
        "peer",
        "server",
        "stuck_ms",
    )

    def __init__(
        self,
        server: Server,
        listener: Listener,
        sock: socket.socket,
        peer: str,
        hold: SecondHold | None,
        passed_bytes: int,
    ) -> None:
        self.server = server
        self.listener = listener
        self.peer = peer
        self.closed = False
        self.stuck_ms = 0  # since the peer last took something of what is kept for it
        self.in_flight = 0  # requests whose answer comes later
        self.held_bytes = 0  # what is kept for those: answers that wait to be durable, requests that wait themselves
        self._held: dict[int, tuple[int, bytes | Then]] = {}  # by ticket: bytes, and what leaves or goes on then
        self._ticket = 0
        self._sock = sock
        self._fd = sock.fileno()
        self._partial = bytearray()  # of a request that is not whole
        self._late: list[bytes] = []
        self._unsent = bytearray()
        self._reading = True
        self._tasks: set[asyncio.Future[Any]] = set()
        self._checkpoints, self._slot = (UNSEEN, 0) if hold is None else (hold.checkpoints, hold.slot)
        self._passed_bytes = passed_bytes  # read and written, as the kernel counts them too

    @abstractmethod
    def abort(self, reason: str) -> None:
        """End it at once, with a reset."""

    @abstractmethod
    def close(self) -> None:
        """End it."""

    @abstractmethod
    def _let_out(self, *, taken: bool) -> None:
        """Something of what was kept or due has left; the peer has `taken` of it, or it may be kept again."""

    @abstractmethod
    def _read_on(self) -> None:
        """The peer has taken enough: read again, if there is anything to be read."""

    def send(self, data: bytes) -> None:
        """Send now what can be sent, keep the rest, and stop reading while too much is kept."""
        if self.closed:
            return
        if self._unsent:
            self._unsent += data
            self._kept(len(data))
            return
        size = len(data)
        self._passed_bytes = passed_bytes = self._passed_bytes + size
        if not (self.in_flight or self._partial or self._late):
            self._checkpoints[self._slot] = (
                passed_bytes  # before it is written: there must be no moment between the two
            )
        try:
            sent = self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.close()
            return
        if sent < size:
            self._passed_bytes -= size - sent
            self._checkpoints[self._slot] = NEVER  # before anything is read: that must not make up for what is missing
            self._unsent += memoryview(data)[sent:]
            self.server.loop.add_writer(self._fd, self._on_writable)
            self._kept(size - sent)

    def _kept(self, count: int) -> None:
        """So many bytes more are kept for this peer."""
        server = self.server
        server.buffered_bytes += count
        if server.buffered_bytes > server.settings.buffered_bytes:
            server.make_room()
        self._throttle()

    def send_later(self, data: bytes) -> None:
        """Send with everything else that becomes ready in this turn of the loop: one write, one check of the right."""
        if self.closed:
            return
        if not self._late:
            self.server.send_at_end_of_turn(self)
        self._late.append(data)

    def send_when_durable(self, n: int, seq: int, data: bytes, *, space: bool = False) -> None:
        """Send once record `n` may be told. Until then the request counts as in flight, and its answer as kept."""
        if self.closed:
            return
        ticket = self._set_aside(len(data), data)
        then, otherwise = partial(self._durable, ticket), partial(self._unknown, ticket, seq)
        self.server.gate.when_durable(n, then, otherwise, space=space)

    def wait_durable(self, n: int, seq: int, then: Then, kept_bytes: int = 0) -> None:
        """Once record `n` may be told, send what `then` makes (None: it has found another way)."""
        ticket = self.begin_wait(then, kept_bytes)
        self.server.gate.when_durable(n, partial(self.end_wait, ticket, seq), partial(self._unknown, ticket, seq))

    def begin_wait(self, then: Then, kept_bytes: int = 0) -> int:
        """A request is answered later, by `end_wait` with the number returned; until then it keeps so much."""
        server = self.server
        ticket = self._set_aside(kept_bytes, then)
        if kept_bytes and server.buffered_bytes > server.settings.buffered_bytes:
            server.make_room()
        return ticket

    def end_wait(self, ticket: int, seq: int) -> None:
        """Send what `then` makes; what it raises is told to the caller, and never to whoever let it go on."""
        then = self._take_up(ticket)
        if not callable(then):
            return
        try:
            data = then()
        except InvariantBroken as error:
            self.server.on_broken(error)
            return
        except Exception as error:
            self.server.failed(self, "going on after a wait", error)
            data = refusal(seq, Err.INTERRUPTED, "the call failed inside the server")
        if data is not None:
            self.send_later(data)

    def _durable(self, ticket: int) -> None:
        if isinstance(data := self._take_up(ticket), bytes):
            self.send_later(data)

    def _unknown(self, ticket: int, seq: int) -> None:
        if self._take_up(ticket) is not None:
            self.send_later(refusal(seq, Err.TIMED_OUT, _UNKNOWN_OUTCOME))

    def _set_aside(self, size: int, kept: bytes | Then) -> int:
        """Keep this, counted, until it is let go, or the connection ends: then nobody is there to have it."""
        self._ticket = ticket = self._ticket + 1
        if not self.closed:
            self._held[ticket] = size, kept
            self.held_bytes += size
            self.server.buffered_bytes += size
            self.in_flight += 1
            self._throttle()
        return ticket

    def _take_up(self, ticket: int) -> bytes | Then | None:
        """What was kept; None if the connection has ended since."""
        held = self._held.pop(ticket, None)
        if held is None:
            return None
        size, kept = held
        self.held_bytes -= size
        self.server.buffered_bytes -= size
        self.leave_flight()
        return kept

    def enter_flight(self, task: asyncio.Future[Any]) -> None:
        """A task answers later; if the connection ends first, the task is cancelled."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.in_flight += 1
        self._throttle()

    def leave_flight(self) -> None:
        self.in_flight -= 1
        self._resume()

    def flush_late(self) -> None:
        late, self._late = self._late, []
        self.send(late[0] if len(late) == 1 else b"".join(late))
        self._let_out(taken=False)

    def _on_writable(self) -> None:
        if not self.server.gate.may_serve():  # a slow reader: the right may have ended since the answer was made
            self.abort("the right to serve ended before the answer left")
            return
        if not (self.in_flight or self._partial or self._late):
            self._checkpoints[self._slot] = self._passed_bytes + len(self._unsent)  # before and after: as in `send`
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
        self._let_out(taken=True)
        self._resume()

    def _throttle(self) -> None:
        settings = self.server.settings
        if self._reading and (
            (kept := len(self._unsent) + self.held_bytes) > settings.unsent_bytes
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
            and len(self._unsent) + self.held_bytes <= settings.unsent_bytes // 2
            and self.in_flight <= settings.in_flight_max // 2
        ):
            self._read_on()
