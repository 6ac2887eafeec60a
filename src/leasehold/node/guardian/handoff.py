"""The guardian's side of the second hold: it has its worker's connections too, and judges them when that is dead."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import select
import socket
from collections.abc import Callable, Iterator
from typing import Final

from leasehold.ha.connection_verdict import ConnectionVerdict, judge
from leasehold.node.boot import HoldsBoot
from leasehold.node.worker.handoff import MESSAGE, YOURS, Marks
from leasehold.runtime.tcp import passed_bytes, peer_has_closed, reset

MESSAGES_PER_TURN: Final = 64  # a bounded burst: the guardian has other things to look at
OnHandedOver = Callable[[socket.socket, int], None]
OWN_FILES: Final = 64  # descriptors that the guardian needs for itself


class Holding:
    """The hold on one worker's connections. Made before the worker is started, judged after it was reaped.

    A connection whose both directions have ended is let go: the worker has shut it down, or the peer is gone. That is
    all that is watched here: an epoll without events reports nothing but the end, so no request wakes the guardian.
    """

    def __init__(self, slots: int) -> None:
        with contextlib.ExitStack() as undo:  # a guardian without descriptors tries again and again
            self._marks_fd = Marks.create(slots)
            undo.callback(os.close, self._marks_fd)
            self._checkpoints = Marks(self._marks_fd, slots)
            undo.callback(self._checkpoints.close)
            self._ended = select.epoll()
            undo.callback(self._ended.close)
            self._channel, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undo.pop_all()
        self._channel.setblocking(False)
        self._held: dict[int, tuple[socket.socket, int]] = {}  # by slot: the connection, and the port it came by
        self._slot_of: dict[int, int] = {}  # by descriptor
        self._loop = asyncio.get_running_loop()
        self._slots = slots
        self._on_handed_over: OnHandedOver = lambda sock, _: reset(sock)

    def __len__(self) -> int:
        return len(self._held)

    def boot(self) -> HoldsBoot:
        """What the worker is told of it."""
        return HoldsBoot(self._marks_fd, self._theirs.fileno(), self._slots)

    def started(self, on_handed_over: OnHandedOver) -> None:
        """The worker has its ends of it. `on_handed_over` gets what it leaves to us while it lives, stepping down."""
        self._on_handed_over = on_handed_over
        os.close(self._marks_fd)
        self._theirs.close()
        self._loop.add_reader(self._channel.fileno(), self._take_some)
        self._loop.add_reader(self._ended.fileno(), self._let_go_of_ended)

    def never_started(self) -> None:
        os.close(self._marks_fd)
        self._theirs.close()
        self._close()

    def inherit(self) -> Iterator[tuple[socket.socket, int, ConnectionVerdict]]:
        """The worker is dead: every connection with its port and what is to become of it. Each is the caller's now."""
        self._loop.remove_reader(self._channel.fileno())
        self._loop.remove_reader(self._ended.fileno())
        while self._take():
            pass  # what the worker had sent and we had not read yet
        try:
            while self._held:
                slot, (sock, port) = self._held.popitem()
                gone = peer_has_closed(sock)
                yield (
                    sock,
                    port,
                    judge(self._checkpoints.numbers[slot], None if gone else passed_bytes(sock), gone=gone),
                )
        finally:
            self._close()

    def _close(self) -> None:
        for sock, _ in self._held.values():
            reset(sock)
        self._held.clear()
        self._ended.close()
        self._channel.close()
        self._checkpoints.close()

    def _take_some(self) -> None:
        for _ in range(MESSAGES_PER_TURN):
            if not self._take():
                return

    def _take(self) -> bool:
        """Take one connection; False if there is none now."""
        try:
            data, fds, _, _ = socket.recv_fds(self._channel, MESSAGE.size, 1, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            return False
        if not data:  # the worker's end is closed: its death follows, by another way
            self._loop.remove_reader(self._channel.fileno())
            return False
        slot, port = MESSAGE.unpack(data)
        if port == YOURS:
            if (held := self._forget(slot)) is not None:
                self._on_handed_over(*held)
        elif fds:  # none if this process may open no more: then the connection ends with its worker
            self._keep(slot, port, socket.socket(fileno=fds[0]))
        return True

    def _keep(self, slot: int, port: int, sock: socket.socket) -> None:
        self._let_go(slot)  # the worker uses a slot again only when its connection is over
        self._held[slot] = sock, port
        self._slot_of[sock.fileno()] = slot
        self._ended.register(sock.fileno(), 0)

    def _let_go(self, slot: int) -> None:
        if (held := self._forget(slot)) is not None:
            held[0].close()

    def _forget(self, slot: int) -> tuple[socket.socket, int] | None:
        if (held := self._held.pop(slot, None)) is not None:
            self._slot_of.pop(held[0].fileno())
            self._ended.unregister(held[0].fileno())
        return held

    def _let_go_of_ended(self) -> None:
        with contextlib.suppress(InterruptedError):
            for fd, _ in self._ended.poll(0, MESSAGES_PER_TURN):
                self._let_go(self._slot_of[fd])


def slots_for(held_max: int) -> int:
    """How many connections may be held: never so many that the guardian itself is left without descriptors."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(0, min(held_max, files // 2 - OWN_FILES)) if files != resource.RLIM_INFINITY else held_max
