"""The worker's listening ports: for clients, and the forward port for other nodes' guardians.

The guardian owns the sockets. The worker accepts clients only while it is the primary. It accepts on the forward port
always, but sends `HELLO` only while it is the primary: a guardian that receives no `HELLO` looks for another primary,
so there is never a second hop.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from leasehold.base.errors import InvariantBroken
from leasehold.base.measures import Calls
from leasehold.node.boot import Boot
from leasehold.node.boot import Listener as Inherited
from leasehold.node.guardian.forwarder import HELLO
from leasehold.node.service.functions import warm
from leasehold.node.worker.handoff import ConnectionSharing
from leasehold.runtime.accepting import Acceptor
from leasehold.runtime.tasks import TaskSet
from leasehold.runtime.tls import Tls, TlsRelay
from leasehold.wire.answers import ServePermit
from leasehold.wire.server import Handler, Listener, Server
from leasehold.wire.settings import WireSettings
from leasehold.wire.tables import NEWEST, Release, find_release

PREFACE_TIMEOUT_S: Final = 2.0
FORWARDED_WAITING_MAX: Final = 4096
FINISH_POLL_S: Final = 0.002
MakeHandlers = Callable[[Release], Mapping[int, Handler]]


class Listeners:
    """The worker's ports. `open` them after a promotion; `shut` them first when the node is no longer the primary."""

    def __init__(
        self,
        boot: Boot,
        permit: ServePermit,
        make_handlers: MakeHandlers,
        settings: WireSettings,
        on_broken: Callable[[InvariantBroken], None],
        calls: Calls,
        tls: Tls | None = None,
    ) -> None:
        self._make_handlers = make_handlers
        self.server = Server(permit, settings, calls=calls, on_broken=on_broken)
        self._by_table: dict[str, Listener] = {}
        sharing = ConnectionSharing(boot.handoff) if boot.handoff is not None else None
        for port, inherited in enumerate(boot.rpc):
            release = find_release(inherited.table) if inherited.table else NEWEST
            share = partial(sharing.hold, port) if sharing is not None else None
            listener = self.server.serve(_socket(inherited), {}, release, share=share)
            self.server.pause(listener)
            warm(release)
            self._by_table[inherited.table] = listener
        self._relay = TlsRelay(tls) if tls is not None else None
        # Always open: while this node is not the primary, the server closes new connections there.
        secure = [self.server.serve(_socket(port), {}, NEWEST, tls=tls) for port in (boot.rpc_tls,) if port]
        self._listeners = [*self._by_table.values(), *secure]
        self._forward = _socket(boot.forward)
        self._tasks = TaskSet()
        self._loop = asyncio.get_running_loop()
        self._forward_acceptor = Acceptor(self._forward, self._accepted_forwarded)
        self._forward_acceptor.set_on(True)
        self.is_open = False

    def prepare(self) -> None:
        """Create the handlers, unless they exist."""
        for listener in self._listeners:
            assert listener.release is not None
            listener.set_handlers(self._make_handlers(listener.release), self._make_handlers)

    def open(self) -> None:
        """Accept clients."""
        self.prepare()
        self.is_open = True
        for listener in self._by_table.values():
            self.server.resume(listener)

    async def finish_requests(self, timeout_s: float) -> None:
        """Read no further requests, and answer those that were read, as far as that is possible in time.

        Then connections without an open request can be left to the guardian, with the requests that wait in them.
        """
        for listener in self._by_table.values():
            self.server.pause(listener)
        end_s = self._loop.time() + timeout_s
        while self._loop.time() < end_s:
            if not self.is_open or self.server.hold_all():
                return
            await asyncio.sleep(FINISH_POLL_S)

    def go_on(self) -> None:
        """Accept and read again, if this node still leads."""
        if self.is_open:
            for listener in self._by_table.values():
                self.server.resume(listener)
            self.server.release_all()

    def shut(self, reason: str, *, leave: bool = False) -> None:
        """Stop accepting and reset every connection: no withheld answer may be sent afterwards.

        `leave`: hand connections without an open request over to the guardian instead.
        """
        self.is_open = False
        for listener in self._by_table.values():
            self.server.pause(listener)
        self.server.drop_all(reason, leave=leave)

    def close(self) -> None:
        self.shut("the worker stops")
        self._forward_acceptor.set_on(False)
        self._forward.close()
        self.server.close()

    def other_releases(self) -> dict[str, int]:
        """Number of requests of another release than the port's, by host and release, for status and metrics."""
        seen: dict[str, int] = {}
        for listener in self._listeners:
            for (host, names), count in listener.mismatches.items():
                name = f"{host} speaks {names}"
                seen[name] = seen.get(name, 0) + count
        return seen

    def refusals(self) -> dict[str, int]:
        seen: dict[str, int] = {}
        for listener in self._listeners:
            for reason, count in listener.refusals.items():
                seen[reason] = seen.get(reason, 0) + count
        return seen

    def _accepted_forwarded(self, sock: socket.socket, address: tuple[str, int]) -> None:
        if not self.is_open or len(self._tasks) >= FORWARDED_WAITING_MAX:
            sock.close()
        else:
            self._tasks.start(self._greet(sock, f"{address[0]}:{address[1]}"))

    async def _greet(self, sock: socket.socket, peer: str) -> None:
        """Read the release, send HELLO if this worker is the primary, then serve it like any other connection."""
        try:
            async with asyncio.timeout(PREFACE_TIMEOUT_S):
                if self._relay is not None:
                    sock = await self._relay.accepted(sock)
                length = await self._loop.sock_recv(sock, 1)
                table = (await self._exactly(sock, length[0])).decode(errors="replace") if length else ""
                listener = self._by_table.get(table)
                if length and listener is not None and self.is_open and self.server.may_serve():
                    await self._loop.sock_sendall(sock, HELLO)
                    if self.is_open:
                        greeting_bytes = len(length) + length[0] + len(HELLO)
                        self.server.adopt(listener, sock, f"{peer} (forwarded)", greeting_bytes)
                        return
        except (OSError, TimeoutError):
            pass
        with contextlib.suppress(OSError):
            sock.close()

    async def _exactly(self, sock: socket.socket, count: int) -> bytes:
        got = b""
        while len(got) < count:
            piece = await self._loop.sock_recv(sock, count - len(got))
            if not piece:
                raise ConnectionResetError
            got += piece
        return got


def _socket(inherited: Inherited) -> socket.socket:
    sock = socket.socket(fileno=inherited.fd)
    sock.setblocking(False)
    return sock
