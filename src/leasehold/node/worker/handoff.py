"""The second hold: what a worker accepts it also gives to its guardian, so that it outlives the worker.

One message for each connection, with its descriptor: `(slot, port)`. Nothing is said when it ends: the worker shuts
it down, which the guardian sees on its own descriptor. A worker that steps down says `(slot, YOURS)` of each on which
nothing is open. The marks are one page of numbers that both see.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
from typing import Final

from leasehold.node.boot import HoldsBoot
from leasehold.wire.handoff import NEVER

MESSAGE: Final = struct.Struct("<II")
YOURS: Final = 2**32 - 1
_MARK_BYTES: Final = 8


class Marks:
    """One number of 64 bits for each slot; each is read and written in one go."""

    def __init__(self, fd: int, slots: int) -> None:
        self._map = mmap.mmap(fd, slots * _MARK_BYTES)
        self.numbers = memoryview(self._map).cast("Q")

    @staticmethod
    def create(slots: int) -> int:
        fd = os.memfd_create("leasehold-marks", 0)
        os.ftruncate(fd, slots * _MARK_BYTES)
        return fd

    def close(self) -> None:
        self.numbers.release()
        self._map.close()


class _Held:
    """Implements `wire.handoff.SharedConnection`."""

    __slots__ = ("_channel", "_free", "checkpoints", "slot")

    def __init__(self, checkpoints: memoryview, slot: int, free: list[int], channel: socket.socket) -> None:
        self.checkpoints = checkpoints
        self.slot = slot
        self._free = free
        self._channel = channel

    def let_go(self) -> None:
        self._free.append(self.slot)

    def hand_over(self) -> bool:
        try:
            self._channel.send(MESSAGE.pack(self.slot, YOURS))
        except OSError:
            return False
        self.let_go()  # messages come in order: the guardian has taken it out before the slot is used again
        return True


class WorkerHolds:
    """The worker's side. `hold` never waits: if the guardian does not listen, or no slot is free, nothing is held."""

    def __init__(self, boot: HoldsBoot) -> None:
        self._checkpoints = Marks(boot.marks_fd, boot.slots)
        self._channel = socket.socket(fileno=boot.channel_fd)
        self._channel.setblocking(False)
        self._free = list(range(boot.slots - 1, -1, -1))

    def hold(self, port: int, sock: socket.socket, passed_bytes: int) -> _Held | None:
        """Give the guardian a connection on which nothing is open, and which speaks as on the `port`th of our ports."""
        if not self._free:
            return None
        slot = self._free.pop()
        self._checkpoints.numbers[slot] = passed_bytes
        try:
            socket.send_fds(self._channel, [MESSAGE.pack(slot, port)], [sock.fileno()])
        except OSError:  # full, since the guardian is slow or frozen; or out of what the kernel needs for it
            self._checkpoints.numbers[slot] = NEVER
            self._free.append(slot)
            return None
        return _Held(self._checkpoints.numbers, slot, self._free, self._channel)
