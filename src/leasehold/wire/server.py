"""A server for many connections on the loop that everything else in the process uses too.

It serves on sockets that another process may own (a guardian), dispatches requests by function id, and writes nothing
without a permit. Several listeners, each with its own table, share one server.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import structlog

from leasehold.base.clock import Clock
from leasehold.base.codes import UNKNOWN_RELEASE
from leasehold.base.errors import InvariantBroken, ResourceUnavailable
from leasehold.base.limits import wire_crowded_idle_ms
from leasehold.base.measures import Calls
from leasehold.runtime.accepting import Acceptor
from leasehold.runtime.clock import boot_ns, wall_us
from leasehold.runtime.tasks import TaskSet
from leasehold.runtime.tcp import keep_alive, send_immediately
from leasehold.runtime.tls import Tls, TlsRelay
from leasehold.wire.answers import AlwaysServes, ServePermit, Waiting
from leasehold.wire.body import hash_in
from leasehold.wire.connection import NS_PER_MS, Connection, Handler
from leasehold.wire.frame import function_name
from leasehold.wire.handoff import Share
from leasehold.wire.sending import LEASE_EXPIRED, Sender
from leasehold.wire.settings import WireSettings
from leasehold.wire.tables import RELEASES, Release, releases_of

_HANDSHAKES_MAX = 1_024
_SWEEP_MS = 500
_LINES_PER_SWEEP = 10  # log lines about connections; the rest are counted
_MISMATCHES_MAX = 1_000
_CROWDED = 0.9  # of the maximum of connections: above it idle ones are closed earlier

__all__ = ["Connection", "Handler", "Listener", "Server", "listen", "measured_calls"]


def measured_calls() -> Calls:
    """Counters of calls, named by the functions of the wire."""
    return Calls(function_name, wall_us)


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
    """A listening socket, its handlers, and counts of refused requests."""

    def __init__(
        self,
        server: Server,
        sock: socket.socket,
        handlers: Mapping[int, Handler],
        release: Release | None,
        share: Share | None,
        tls: Tls | None,
    ) -> None:
        self._relay = TlsRelay(tls) if tls is not None else None
        self._handshakes = TaskSet()
        self.server = server
        self.sock = sock
        self.handlers = handlers
        self.release = release
        self.refusals: Counter[str] = Counter()
        self.mismatches: Counter[tuple[str, str]] = Counter()  # (peer's host, releases that its request belongs to)
        self._other_handlers: Callable[[Release], Mapping[int, Handler]] | None = None
        self.share = share  # shares accepted connections with another process
        self.acceptor = Acceptor(sock, self._accepted)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.sock.getsockname()[:2]
        return str(host), int(port)

    def set_handlers(
        self, handlers: Mapping[int, Handler], others: Callable[[Release], Mapping[int, Handler]] | None = None
    ) -> None:
        """Serve connections accepted from now on with these. `others` makes those of another release."""
        self.handlers = handlers
        self._other_handlers = others

    def _accepted(self, sock: socket.socket, address: tuple[str, int]) -> None:
        peer = f"{address[0]}:{address[1]}"
        if self._relay is None:
            self.server.adopt(self, sock, peer)
        elif self.server.may_serve() and len(self._handshakes) < _HANDSHAKES_MAX:
            self._handshakes.start(self._secure(self._relay, sock, peer))
        else:
            sock.close()  # the client tries the next address

    async def _secure(self, relay: TlsRelay, sock: socket.socket, peer: str) -> None:
        """Serve a connection after its handshake; a client without a valid certificate is counted."""
        try:
            plain = await relay.accepted(sock)
        except OSError:
            self.refusals["tls"] += 1
            return
        if self.server.may_serve():
            self.server.adopt(self, plain, f"{peer} (TLS)")
        else:
            plain.close()

    def count_refused(self, reason: str) -> None:
        self.refusals[reason] += 1

    def other_form(self, connection: Connection, function: int, body: bytes) -> Handler | None:
        """A handler of another release that can read this request, if the caller is newer than every table.

        Callers of known releases have a port of their own: many of their requests look alike, with other answers.
        """
        newer = (_host(connection), UNKNOWN_RELEASE) in self.mismatches
        found = hash_in(body)
        if newer and found is not None and self._other_handlers is not None:
            for name in releases_of(function, found):
                if self.release is not None and name != self.release.name:
                    return self._other_handlers(RELEASES[name])[function]
        self._refused(connection, function, found)
        return None

    def _refused(self, connection: Connection, function: int, found: int | None) -> None:
        """Count a body that could not be read; if another release would read it, log which."""
        self.refusals["argument"] += 1
        known = self.release.by_id.get(function) if self.release is not None else None
        if known is not None and found is not None and found != known.request_hash:
            self._mismatched(connection, ", ".join(releases_of(function, found)))

    def unknown(self, connection: Connection) -> None:
        """Count a function that no known release has: the caller is newer than this server."""
        self.refusals["unknown function"] += 1
        if self.release is not None:
            self._mismatched(connection, "")

    def _mismatched(self, connection: Connection, releases: str) -> None:
        """Log a client of another release once, and count it for metrics."""
        mismatch = _host(connection), releases or UNKNOWN_RELEASE
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


def _host(connection: Connection) -> str:
    return connection.peer.rpartition(":")[0]


class Server:
    """See the module. `on_broken` is called with an `InvariantBroken`: the process must not go on."""

    def __init__(
        self,
        permit: ServePermit | None = None,
        settings: WireSettings | None = None,
        *,
        clock: Clock | None = None,
        calls: Calls | None = None,
        on_broken: Callable[[InvariantBroken], None] | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.permit: ServePermit = permit if permit is not None else AlwaysServes()
        # Read once before a burst of requests and once after it: for the lease, and to measure the calls.
        self.now_ns: Callable[[], int] = boot_ns if clock is None else lambda: clock.now_ms() * NS_PER_MS
        self.calls = measured_calls() if calls is None else calls
        self.settings = WireSettings() if settings is None else settings
        self.log = structlog.get_logger("leasehold.wire")
        self.connections: set[Connection] = set()
        self.listeners: list[Listener] = []
        self.buffered_bytes = 0
        self.accepted = 0
        self.turned_away = 0
        self._on_broken = on_broken
        self._lines = 0  # logged about connections since the last sweep
        self._not_logged = 0
        self._late: list[Sender] = []
        self._releasing = False  # answers are being released, and are written when all are
        self._sweeper = self.loop.call_later(_SWEEP_MS / 1000, self._sweep)

    def serve(
        self,
        sock: socket.socket,
        handlers: Mapping[int, Handler],
        release: Release | None = None,
        *,
        share: Share | None = None,
        tls: Tls | None = None,
    ) -> Listener:
        """Serve `handlers` on a listening socket. `release` names the table, so that a mismatch can be logged."""
        sock.setblocking(False)
        listener = Listener(self, sock, handlers, release, share, tls)
        self.listeners.append(listener)
        self.resume(listener)
        return listener

    def pause(self, listener: Listener) -> None:
        """Accept no more; the socket stays open (another process may own it, and connections queue in it)."""
        listener.acceptor.set_on(False)

    def resume(self, listener: Listener) -> None:
        listener.acceptor.set_on(True)

    def hold_all(self) -> bool:
        """Read no further requests. True if none is open on any connection."""
        idle = [connection.hold() for connection in list(self.connections)]
        return all(idle)

    def release_all(self) -> None:
        """Read requests again."""
        for connection in list(self.connections):
            connection.release()

    def drop_all(self, reason: str, *, leave: bool = False) -> None:
        """Reset every connection: no open request is answered.

        `leave`: leave connections without open requests to the process that shares them.
        """
        dropped = [connection for connection in list(self.connections) if not (leave and connection.leave())]
        self._lines = _LINES_PER_SWEEP + 1  # one line for all: ten thousand would delay a node that must stop
        for connection in dropped:
            connection.abort(reason)
        self._not_logged = 0
        if dropped:
            self.log.info("all connections dropped", count=len(dropped), reason=reason)

    def keep_bytes(self, count: int) -> None:
        """A connection keeps `count` more bytes for its peer."""
        self.buffered_bytes += count

    def free_bytes(self, count: int) -> None:
        """A connection keeps `count` bytes fewer."""
        self.buffered_bytes -= count

    def make_room(self) -> None:
        """The buffers are full: drop the connection that fills them most, not the last one to arrive."""
        if self.connections:
            largest = max(self.connections, key=lambda connection: connection.buffered_bytes)
            largest.abort("the buffers are full, and this peer fills them most")

    def log_dropped(self, connection: Connection, reason: str) -> None:
        """Log a connection that this side closes, within the limit of lines."""
        if self._may_log():
            self.log.info("connection dropped", peer=connection.peer, reason=reason)

    def _may_log(self) -> bool:
        self._lines += 1
        if self._lines > _LINES_PER_SWEEP:
            self._not_logged += 1
            return False
        return True

    def close(self) -> None:
        """Stop accepting and close every connection. Sockets that were handed in are closed too."""
        self._sweeper.cancel()
        for listener in self.listeners:
            self.pause(listener)
            listener.sock.close()
        for connection in list(self.connections):
            connection.close()

    def adopt(self, listener: Listener, sock: socket.socket, peer: str, passed_bytes: int = 0) -> None:
        """Serve on an accepted connection as if `listener` had accepted it.

        `passed_bytes` were read and written on it before, and no request of that time is open.
        """
        if len(self.connections) >= self.settings.connections_max:
            self.turned_away += 1
            sock.close()
            return
        sock.setblocking(False)
        send_immediately(sock)
        keep_alive(sock)
        self.accepted += 1
        shared = listener.share(sock, passed_bytes) if listener.share is not None else None
        self.connections.add(Connection(self, listener, sock, peer, shared, passed_bytes))

    def may_serve(self) -> bool:
        """Whether answers may be sent at this moment."""
        return self.permit.may_serve(self.now_ns() // NS_PER_MS)

    def send_at_end_of_turn(self, sender: Sender) -> None:
        if not self._late and not self._releasing:
            self.loop.call_soon(self._flush)
        self._late.append(sender)

    def release(self, answers: Iterable[Waiting]) -> None:
        """Send answers that the outbox has released: one write for each connection, in this turn of the loop."""
        self._releasing = True
        try:
            for one in answers:
                if one.owner is not None:
                    one.owner.release(one)
        finally:
            self._releasing = False
        self._flush()

    def give_up(self, answers: Iterable[Waiting]) -> None:
        """Answer "outcome unknown" to the callers of these."""
        for one in answers:
            if one.owner is not None:
                one.owner.give_up(one)

    def _flush(self) -> None:
        if not self._late:
            return
        late, self._late = self._late, []
        if not self.permit.may_serve(self.now_ns() // NS_PER_MS):
            for sender in late:
                sender.connection.abort(LEASE_EXPIRED)
            return
        for sender in late:
            if not sender.closed:
                sender.flush_late()

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)

    def failed(self, connection: Connection, function: int, error: Exception) -> None:
        """A handler raised an unexpected error: log it in full, and continue to serve the others."""
        connection.listener.count_refused("bug")
        self.calls.failed(function, "bug")
        if self._may_log():
            call = function_name(function)
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
        if self._not_logged:
            self.log.info("more lines about connections were not logged", count=self._not_logged)
        self._lines = self._not_logged = 0
        self._sweeper = self.loop.call_later(_SWEEP_MS / 1000, self._sweep)
