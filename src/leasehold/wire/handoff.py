"""A connection that another process shares, and continues to serve if this one dies between two requests.

This is the server's side. A **checkpoint** is the number of bytes, read and written together, after which no request
is open. It is stored just before an answer is written that leaves no other request open (`ha.connection_verdict` reads
it). Closing a shared socket does not end the connection, so the server also shuts it down or resets it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final, Protocol

NEVER: Final = 2**64 - 1  # no connection ever passes this many bytes: the other process does not continue it
UNSHARED: Final = memoryview(bytearray(8)).cast("Q")  # where connections that are not shared store their checkpoints


class SharedConnection(Protocol):
    """One connection that another process shares."""

    @property
    def checkpoints(self) -> memoryview:
        """Numbers of 64 bits, one store each, that the other process sees."""
        ...

    @property
    def slot(self) -> int:
        """The index of this connection's checkpoint."""
        ...

    def let_go(self) -> None:
        """The connection is closed: its slot may be reused."""
        ...

    def hand_over(self) -> bool:
        """No request is open, and this process has stopped reading: the other may continue.

        False if the other process cannot be notified.
        """
        ...


Share = Callable[[socket.socket, int], SharedConnection | None]
"""Share a connection on which no request is open, after this number of bytes; None if there is no free slot."""
