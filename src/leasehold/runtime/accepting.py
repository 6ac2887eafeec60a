"""Accept connections on a listening socket, without spinning when the process is out of descriptors."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any, Final

from leasehold.runtime.log import get_logger

log = get_logger("leasehold.accepting")

ACCEPTS_PER_TURN: Final = 64  # bounded, so that other readers of the loop get their turn
PAUSE_S: Final = 0.1
STARVED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
OnConnection = Callable[[socket.socket, Any], None]


class Acceptor:
    """While on, passes every connection (non-blocking) and its peer's address to `on_connection`.

    The socket may be shared with another process: the faster one gets the connection. Without descriptors or memory
    the socket stays readable, and retrying immediately would use a whole core. So it pauses; the kernel keeps the
    connections queued.
    """

    __slots__ = ("_loop", "_on", "_on_connection", "_paused", "_sock", "_starved")

    def __init__(self, sock: socket.socket, on_connection: OnConnection) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._on_connection = on_connection
        self._on = False
        self._paused: asyncio.TimerHandle | None = None
        self._starved = False  # and logged

    def set_on(self, on: bool) -> None:
        """Start or stop accepting; the socket stays open."""
        if on == self._on:
            return
        self._on = on
        if self._paused is not None:
            self._paused.cancel()
            self._paused = None
        if on:
            self._loop.add_reader(self._sock.fileno(), self._accept)
        else:
            self._loop.remove_reader(self._sock.fileno())

    def finish(self) -> None:
        """Accept the queued connections, then stop and close the socket: closing it would reset those in the queue."""
        self.set_on(True)
        queued = True
        while queued and self._paused is None:
            queued = self._accept()
        self.set_on(False)
        self._sock.close()

    def _accept(self) -> bool:
        """Accept some connections; False if the queue is empty or this is switched off."""
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = self._sock.accept()
            except OSError as error:
                if error.errno in STARVED:
                    self._pause(error)
                return False  # the queue is empty, the other process was faster, or the peer has closed
            self._starved = False
            sock.setblocking(False)
            self._on_connection(sock, address)
            if not self._on:
                return False
        return True

    def _pause(self, error: OSError) -> None:
        if not self._starved:
            self._starved = True
            log.error("cannot accept connections: raise the limit of open files", error=str(error))
        self._loop.remove_reader(self._sock.fileno())
        self._paused = self._loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._paused = None
        if self._on:
            self._loop.add_reader(self._sock.fileno(), self._accept)
