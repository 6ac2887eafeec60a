"""The worker's side of the handoff: it shares every connection with its guardian, so that it survives the worker.

The worker sends one message per connection, with its descriptor: `(slot, port)`. It sends none when a connection
ends: it shuts the connection down, which the guardian sees on its own descriptor. A worker that steps down sends
`(slot, YOURS)` for each connection without an open request. The checkpoints are numbers in shared memory.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
from typing import Final

from leasehold.node.boot import HandoffBoot
from leasehold.wire.handoff import NEVER

MESSAGE: Final = struct.Struct("<II")
YOURS: Final = 2**32 - 1
_NUMBER_BYTES: Final = 8


class Checkpoints:
    """One 64-bit number per slot, read and written atomically."""

    def __init__(self, fd: int, slots: int) -> None:
        self._map = mmap.mmap(fd, slots * _NUMBER_BYTES)
        self.numbers = memoryview(self._map).cast("Q")

    def write(self, slot: int, number: int) -> None:
        self.numbers[slot] = number

    @staticmethod
    def create(slots: int) -> int:
        fd = os.memfd_create("leasehold-checkpoints", 0)
        os.ftruncate(fd, slots * _NUMBER_BYTES)
        return fd

    def close(self) -> None:
        self.numbers.release()
        self._map.close()


class _SharedConnection:
    """One shared connection; implements the protocol in `wire/handoff.py`."""

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
        self.let_go()  # messages arrive in order: the guardian frees the slot before it is used again
        return True


class ConnectionSharing:
    """Shares connections with the guardian. `hold` never blocks: without a free slot or a reader it returns None."""

    def __init__(self, boot: HandoffBoot) -> None:
        self._checkpoints = Checkpoints(boot.checkpoints_fd, boot.slots)
        self._channel = socket.socket(fileno=boot.channel_fd)
        self._channel.setblocking(False)
        self._free = list(range(boot.slots - 1, -1, -1))

    def hold(self, port: int, sock: socket.socket, passed_bytes: int) -> _SharedConnection | None:
        """Share a connection without an open request; `port` is the index of the port it was accepted on."""
        if not self._free:
            return None
        slot = self._free.pop()
        self._checkpoints.write(slot, passed_bytes)
        try:
            socket.send_fds(self._channel, [MESSAGE.pack(slot, port)], [sock.fileno()])
        except OSError:  # the guardian is slow or frozen, or the kernel lacks resources
            self._checkpoints.write(slot, NEVER)
            self._free.append(slot)
            return None
        return _SharedConnection(self._checkpoints.numbers, slot, self._free, self._channel)
