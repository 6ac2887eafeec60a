"""A server for many connections on the loop that everything else in the process uses too.

It takes sockets that somebody else may own (a guardian), dispatches requests by function id, and lets nothing leave
without asking the gate. Several listeners, each with a table of its own, share one server.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping

import structlog

from leasehold.base.errors import InvariantBroken, ResourceUnavailable
from leasehold.base.limits import wire_crowded_idle_ms
from leasehold.runtime.accepting import Acceptor
from leasehold.runtime.tcp import keep_alive
from leasehold.wire.body import hash_in
from leasehold.wire.connection import Connection, Handler
from leasehold.wire.gate import Gate, OpenGate
from leasehold.wire.handoff import Hold
from leasehold.wire.sending import Answering
from leasehold.wire.settings import WireSettings
from leasehold.wire.tables import RELEASES, Release, releases_of

_SWEEP_MS = 500
_LINES_PER_SWEEP = 10  # about connections: a storm of them is told by its number
_MISMATCHES_MAX = 1_000
_UNKNOWN_RELEASE = "a release without a table here"
_CROWDED = 0.9  # of the connections that may be: then those that idle have to go earlier

__all__ = ["Connection", "Handler", "Listener", "Server", "listen"]


def listen(host: str, port: int, *, backlog: int = 1024) -> socket.socket:
    """A listening socket; port 0 takes a free one."""
    try:
        sock = socket.create_server((host, port), backlog=backlog)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise ResourceUnavailable(f"cannot listen on {host}:{port}: {why}; name another address") from None
    sock.setblocking(False)
    return sock


class Listener:
    """A listening socket, what is served on it, and what had to be refused."""

    def __init__(
        self, server: Server, sock: socket.socket, handlers: Mapping[int, Handler], release: Release | None
    ) -> None:
        self.server = server
        self.sock = sock
        self.handlers = handlers
        self.release = release
        self.refusals: Counter[str] = Counter()
        self.mismatches: Counter[tuple[str, str]] = Counter()  # (peer's host, releases that its request belongs to)
        self.hold: Hold | None = None  # asked to hold what is served here a second time
        self.acceptor = Acceptor(sock, self._accepted)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.sock.getsockname()[:2]
        return str(host), int(port)

    def _accepted(self, sock: socket.socket, address: tuple[str, int]) -> None:
        self.server.adopt(self, sock, f"{address[0]}:{address[1]}")

    def count_refused(self, reason: str) -> None:
        self.refusals[reason] += 1

    def refused(self, connection: Connection, function: int, body: bytes) -> None:
        """Count a body that could not be read; if it is another release's, say whose."""
        self.refusals["argument"] += 1
        known = self.release.by_id.get(function) if self.release is not None else None
        found = hash_in(body)
        if known is not None and found is not None and found != known.request_hash:
            self._mismatched(connection, ", ".join(releases_of(function, found)))

    def unknown(self, connection: Connection) -> None:
        """Count a function that no release known here has: the caller is newer than this server."""
        self.refusals["unknown function"] += 1
        if self.release is not None:
            self._mismatched(connection, "")

    def _mismatched(self, connection: Connection, releases: str) -> None:
        """A client of another release is never silent: it is named in the log once, and counted for metrics."""
        mismatch = connection.peer.rpartition(":")[0], releases or _UNKNOWN_RELEASE
        if mismatch not in self.mismatches and len(self.mismatches) >= _MISMATCHES_MAX:
            mismatch = "others", mismatch[1]
        self.mismatches[mismatch] += 1
        if self.mismatches[mismatch] > 1 or self.release is None:
            return
        self.server.log.warning(
            "client speaks another release of Mooncake: give it a port of its own with --rpc-compat"
            if releases
            else "client speaks a release of Mooncake that is not known here: upgrade Leasehold, or use a known one",
            peer=connection.peer,
            client_release=mismatch[1],
            served_release=self.release.name,
            known_releases=", ".join(RELEASES),
        )


class Server:
    """See the module. `on_broken` is called with an `InvariantBroken`: the process must not go on."""

    def __init__(
        self,
        gate: Gate | None = None,
        settings: WireSettings | None = None,
        *,
        on_broken: Callable[[InvariantBroken], None] | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.gate: Gate = gate if gate is not None else OpenGate()
        self.settings = WireSettings() if settings is None else settings
        self.log = structlog.get_logger("leasehold.wire")
        self.connections: set[Connection] = set()
        self.listeners: list[Listener] = []
        self.buffered_bytes = 0
        self.accepted = 0
        self.turned_away = 0
        self._on_broken = on_broken
        self._lines = 0  # said about connections since the last sweep
        self._unsaid = 0
        self._late: list[Answering] = []
        self._together = False  # answers are being let go, and are written at the end of that
        self._sweeper = self.loop.call_later(_SWEEP_MS / 1000, self._sweep)

    def serve(self, sock: socket.socket, handlers: Mapping[int, Handler], release: Release | None = None) -> Listener:
        """Serve `handlers` on a listening socket. `release` names the table, so that a mismatch can be told."""
        sock.setblocking(False)
        listener = Listener(self, sock, handlers, release)
        self.listeners.append(listener)
        self.resume(listener)
        return listener

    def pause(self, listener: Listener) -> None:
        """Accept no more; the socket stays open (it may be somebody else's, and connections queue in it)."""
        listener.acceptor.set_on(False)

    def resume(self, listener: Listener) -> None:
        listener.acceptor.set_on(True)

    def drop_all(self, reason: str, *, leave: bool = False) -> None:
        """Reset every connection: nothing that was asked is answered any more.

        `leave`: but leave those on which nothing is open to whoever else holds them.
        """
        dropped = [connection for connection in list(self.connections) if not (leave and connection.leave())]
        self._lines = _LINES_PER_SWEEP + 1  # one line for all: ten thousand would hold up a node that must stop at once
        for connection in dropped:
            connection.abort(reason)
        self._unsaid = 0
        if dropped:
            self.log.info("all connections dropped", count=len(dropped), reason=reason)

    def make_room(self) -> None:
        """The buffers are full: whoever fills them most has to go, not whoever comes last."""
        if self.connections:
            largest = max(self.connections, key=lambda connection: connection.buffered_bytes)
            largest.abort("the buffers are full, and this peer fills them most")

    def tell_dropped(self, connection: Connection, reason: str) -> None:
        """One line for a connection that we end; not ten thousand lines for a storm."""
        if self._may_say():
            self.log.info("connection dropped", peer=connection.peer, reason=reason)

    def _may_say(self) -> bool:
        self._lines += 1
        if self._lines > _LINES_PER_SWEEP:
            self._unsaid += 1
            return False
        return True

    def close(self) -> None:
        """Stop: no more accepts, no more connections. Sockets that were handed in are closed too."""
        self._sweeper.cancel()
        for listener in self.listeners:
            self.pause(listener)
            listener.sock.close()
        for connection in list(self.connections):
            connection.close()

    def adopt(self, listener: Listener, sock: socket.socket, peer: str, passed_bytes: int = 0) -> None:
        """Serve on a connection that somebody accepted, as if it had come by `listener`.

        `passed_bytes` were read and written on it before, and nothing of that is open.
        """
        if len(self.connections) >= self.settings.connections_max:
            self.turned_away += 1
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(sock)
        self.accepted += 1
        hold = listener.hold(sock, passed_bytes) if listener.hold is not None else None
        self.connections.add(Connection(self, listener, sock, peer, hold, passed_bytes))

    def send_at_end_of_turn(self, connection: Answering) -> None:
        if not self._late and not self._together:
            self.loop.call_soon(self._flush)
        self._late.append(connection)

    def send_together(self, let_go: Callable[[], None]) -> None:
        """Call `let_go`, which lets answers go that were held, and write them when it has ended: no turn later."""
        self._together = True
        try:
            let_go()
        finally:
            self._together = False
        self._flush()

    def _flush(self) -> None:
        if not self._late:
            return
        late, self._late = self._late, []
        if not self.gate.may_serve():
            for connection in late:
                connection.abort("the right to serve ended before the answer left")
            return
        for connection in late:
            if not connection.closed:
                connection.flush_late()

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)

    def failed(self, connection: Answering, call: str, error: Exception) -> None:
        """A handler raised what it should not have: a bug, told in full, while the others are served on."""
        connection.listener.count_refused("bug")
        if self._may_say():
            self.log.error("a call failed: this is a bug", peer=connection.peer, call=call, exc_info=error)

    def on_broken(self, error: InvariantBroken) -> None:
        self.log.critical("an invariant is broken: serving stops", exc_info=error)
        self.drop_all("an invariant is broken")
        if self._on_broken is None:
            raise error
        self._on_broken(error)

    def _sweep(self) -> None:
        idle_ms = self.settings.idle_ms
        if len(self.connections) >= self.settings.connections_max * _CROWDED:
            # One client that leaks connections must not lock out all others, whose pings would be missed.
            idle_ms = min(idle_ms, wire_crowded_idle_ms)
        for connection in list(self.connections):
            connection.sweep(_SWEEP_MS, idle_ms)
        if self._unsaid:
            self.log.info("more of the same about connections was not said", count=self._unsaid)
        self._lines = self._unsaid = 0
        self._sweeper = self.loop.call_later(_SWEEP_MS / 1000, self._sweep)
