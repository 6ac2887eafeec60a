"""How an answer leaves: at once if what it shows is durable, else when it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leasehold.index.index import Index
from leasehold.wire.connection import Connection
from leasehold.wire.frame import Err
from leasehold.wire.gate import Gate
from leasehold.wire.sending import refusal

_PAUSE_S: Final = 0.05
OWNER_WAIT_S: Final = 20.0  # less than the 30 s that Mooncake's clients wait for an answer


class Leaving:
    """The way out, shared by all handlers of a service. `decided` tells the journal that there are new records."""

    def __init__(self, index: Index, gate: Gate, decided: Callable[[], None]) -> None:
        self.gate = gate
        self._index = index
        self._decided = decided
        self._told_n = index.log.last_n

    def tell(self) -> None:
        """Tell the journal if anything was decided since the last time."""
        if self._index.log.last_n != self._told_n:
            self._told_n = self._index.log.last_n
            self._decided()

    def send(self, connection: Connection, seq: int, frame: bytes, after: int, space: bool = False) -> bytes | None:
        """The frame itself if it may leave now; else None, and it leaves when record `after` may be told."""
        if self._index.log.last_n != self._told_n:
            self.tell()
        if after <= (self.gate.durable_n if space else self.gate.acked_n):
            return frame
        connection.send_when_durable(after, seq, frame, space=space)
        return None


def wait_for_owner(
    connection: Connection, seq: int, again: Callable[[float], bytes | None], until_s: float, kept_bytes: int
) -> None:
    """The owner of the memory has not been heard of yet (H9): try again a little later, within what a client waits.

    After that the outcome is unknown, never "not there". `until_s` is 0 the first time, then what `again` is given;
    `kept_bytes` is how much the request keeps meanwhile.
    """
    loop = connection.server.loop
    until_s = until_s or loop.time() + OWNER_WAIT_S

    def retry() -> bytes | None:
        if loop.time() > until_s:
            return refusal(seq, Err.TIMED_OUT, "the memory's owner has not been heard of")
        return again(until_s)

    go_on_later(connection, seq, retry, kept_bytes, _PAUSE_S)


def go_on_later(
    connection: Connection, seq: int, then: Callable[[], bytes | None], kept_bytes: int = 0, pause_s: float = 0.0
) -> None:
    """Let others be served first, then answer with what `then` makes. Without the right to serve nothing goes on."""
    ticket = connection.begin_wait(then, kept_bytes)

    def go_on() -> None:
        if not connection.closed and not connection.server.gate.may_serve():
            connection.abort("the right to serve ended before the answer left")
        connection.end_wait(ticket, seq)

    connection.server.loop.call_later(pause_s, go_on)
