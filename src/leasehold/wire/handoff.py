"""A second hold on a connection: another process has it too, and goes on with it if this one dies between requests.

The server's side of the bargain. A **mark** says after how many bytes, read and written together, nothing is open; it
is set just before an answer is written that leaves no other open (`ha.inheritance` has the argument, and the judge).
And since to close such a connection ends nothing, its end is made plain: it is shut down, or cut.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final, Protocol

NEVER: Final = 2**64 - 1  # no connection has ever passed so much: nothing is moved by this mark
UNSEEN: Final = memoryview(bytearray(8)).cast("Q")  # where connections that nobody else holds leave their marks


class SecondHold(Protocol):
    """One connection's."""

    @property
    def checkpoints(self) -> memoryview:
        """Numbers of 64 bits, one store each, that the other process sees."""
        ...

    @property
    def slot(self) -> int:
        """Which of them is this connection's."""
        ...

    def let_go(self) -> None:
        """The connection is over: its place may be another's."""
        ...

    def hand_over(self) -> bool:
        """Nothing is open, and nobody reads from it here any more: the other may go on. False if it cannot be told."""
        ...


Hold = Callable[[socket.socket, int], SecondHold | None]
"""Have a connection held on which nothing is open and so many bytes have passed; None if it cannot be."""
