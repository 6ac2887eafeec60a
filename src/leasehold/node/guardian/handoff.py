"""The guardian's side of the handoff: it has its worker's connections open too, and takes them over when it dies."""

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
from leasehold.node.boot import HandoffBoot
from leasehold.node.worker.handoff import MESSAGE, YOURS, Checkpoints
from leasehold.runtime.tcp import passed_bytes, peer_has_closed, reset

MESSAGES_PER_TURN: Final = 64  # bounded, so that other work of the guardian gets its turn
OnHandedOver = Callable[[socket.socket, int], None]
OWN_FILES: Final = 64  # descriptors reserved for the guardian itself


class HeldConnections:
    """The connections of one worker. Created before the worker starts; `inherit` is called after it was reaped.

    A connection that is closed in both directions is released: the worker has shut it down, or the peer has. Nothing
    else is watched: an epoll registration without events reports only hang-up, so requests do not wake the guardian.
    """

    def __init__(self, slots: int) -> None:
        with contextlib.ExitStack() as undo:  # a guardian without free descriptors retries: leak none
            self._checkpoints_fd = Checkpoints.create(slots)
            undo.callback(os.close, self._checkpoints_fd)
            self._checkpoints = Checkpoints(self._checkpoints_fd, slots)
            undo.callback(self._checkpoints.close)
            self._ended = select.epoll()
            undo.callback(self._ended.close)
            self._channel, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undo.pop_all()
        self._channel.setblocking(False)
        self._held: dict[int, tuple[socket.socket, int]] = {}  # by slot: the connection and its port
        self._slot_of: dict[int, int] = {}  # by descriptor
        self._loop = asyncio.get_running_loop()
        self._slots = slots
        self._on_handed_over: OnHandedOver = lambda sock, _: reset(sock)

    def __len__(self) -> int:
        return len(self._held)

    def boot(self) -> HandoffBoot:
        """The descriptors for the worker."""
        return HandoffBoot(self._checkpoints_fd, self._theirs.fileno(), self._slots)

    def started(self, on_handed_over: OnHandedOver) -> None:
        """The worker has started. `on_handed_over` receives connections that a living worker hands over."""
        self._on_handed_over = on_handed_over
        os.close(self._checkpoints_fd)
        self._theirs.close()
        self._loop.add_reader(self._channel.fileno(), self._take_some)
        self._loop.add_reader(self._ended.fileno(), self._release_ended)

    def never_started(self) -> None:
        os.close(self._checkpoints_fd)
        self._theirs.close()
        self._close()

    def inherit(self) -> Iterator[tuple[socket.socket, int, ConnectionVerdict]]:
        """After the worker's death: every connection with its port and its fate. The caller owns each of them."""
        self._loop.remove_reader(self._channel.fileno())
        self._loop.remove_reader(self._ended.fileno())
        while self._take():
            pass  # messages that the worker sent before it died
        try:
            while self._held:
                slot, (sock, port) = self._held.popitem()
                closed = peer_has_closed(sock)
                yield (
                    sock,
                    port,
                    judge(self._checkpoints.numbers[slot], None if closed else passed_bytes(sock), gone=closed),
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
        """Receive one message; False if there is none."""
        try:
            data, fds, _, _ = socket.recv_fds(self._channel, MESSAGE.size, 1, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            return False
        if not data:  # the worker has closed its end: it is about to be reaped
            self._loop.remove_reader(self._channel.fileno())
            return False
        slot, port = MESSAGE.unpack(data)
        if port == YOURS:
            if (held := self._forget(slot)) is not None:
                self._on_handed_over(*held)
        elif fds:  # none if this process is out of descriptors: then the connection ends with its worker
            self._keep(slot, port, socket.socket(fileno=fds[0]))
        return True

    def _keep(self, slot: int, port: int, sock: socket.socket) -> None:
        self._release(slot)  # the worker reuses a slot only after its connection is closed
        self._held[slot] = sock, port
        self._slot_of[sock.fileno()] = slot
        self._ended.register(sock.fileno(), 0)

    def _release(self, slot: int) -> None:
        if (held := self._forget(slot)) is not None:
            held[0].close()

    def _forget(self, slot: int) -> tuple[socket.socket, int] | None:
        if (held := self._held.pop(slot, None)) is not None:
            self._slot_of.pop(held[0].fileno())
            self._ended.unregister(held[0].fileno())
        return held

    def _release_ended(self) -> None:
        with contextlib.suppress(InterruptedError):
            for fd, _ in self._ended.poll(0, MESSAGES_PER_TURN):
                self._release(self._slot_of[fd])


def slots_for(held_max: int) -> int:
    """Number of connections to hold: at most `held_max`, and few enough to leave descriptors for the guardian."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(0, min(held_max, files // 2 - OWN_FILES)) if files != resource.RLIM_INFINITY else held_max
