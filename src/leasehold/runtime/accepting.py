"""Accepting connections on a listening socket, without spinning when the process is out of descriptors."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any, Final

from leasehold.runtime.log import get_logger

log = get_logger("leasehold.accepting")

ACCEPTS_PER_TURN: Final = 64  # a bounded burst: other readers want their turn
REST_S: Final = 0.1
STARVED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
OnConnection = Callable[[socket.socket, Any], None]


class Acceptor:
    """While it is on, hands every connection (not blocking) and its peer's address to `on_connection`.

    The socket may be shared with another process: who is faster has the connection. Out of descriptors or memory the
    socket stays readable, so a loop that only tried again would burn a core: it rests, and what waits stays queued.
    """

    __slots__ = ("_loop", "_on", "_on_connection", "_resting", "_sock", "_starved")

    def __init__(self, sock: socket.socket, on_connection: OnConnection) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._on_connection = on_connection
        self._on = False
        self._resting: asyncio.TimerHandle | None = None
        self._starved = False  # and it was said

    def set_on(self, on: bool) -> None:
        """Start or stop accepting; the socket stays open."""
        if on == self._on:
            return
        self._on = on
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        if on:
            self._loop.add_reader(self._sock.fileno(), self._accept)
        else:
            self._loop.remove_reader(self._sock.fileno())

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = self._sock.accept()
            except OSError as error:
                if error.errno in STARVED:
                    self._rest(error)
                return  # nothing more waits, or the other process was faster, or the peer has gone again
            self._starved = False
            sock.setblocking(False)
            self._on_connection(sock, address)
            if not self._on:
                return

    def _rest(self, error: OSError) -> None:
        if not self._starved:
            self._starved = True
            log.error("connections cannot be accepted: raise the limit of open files", error=str(error))
        self._loop.remove_reader(self._sock.fileno())
        self._resting = self._loop.call_later(REST_S, self._again)

    def _again(self) -> None:
        self._resting = None
        if self._on:
            self._loop.add_reader(self._sock.fileno(), self._accept)
