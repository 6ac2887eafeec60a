"""The results of a handler: bytes that may be sent, an answer that waits for a record, or work that goes on later.

The types keep raw bytes out: only the outbox (`ha/outbox.py`) turns a frame that shows state into `Released`. RPC
errors, pushes and the functions of `rpc.py` show no journalled state, and are `Released` where they are made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NewType, Protocol, TypeAlias

from msgspec import Struct

Released = NewType("Released", bytes)
"""A frame that may be sent now."""


Call: TypeAlias = tuple[int, int]
"""A request that is answered later, as it is measured: its function, and when it arrived (`Server.now_ns`)."""


class Waiting(Struct, order=True):
    """An answer that waits for record `after`. The outbox keeps it, in the order of `after` and then of arrival.

    `payload` is the frame, or a function that makes the answer once the record may be acknowledged. Its
    `owner` is the connection that will send it, which counts `kept_bytes` until then.
    """

    after: int
    arrival: int
    give_up_ms: int
    payload: Any
    kept_bytes: int
    owner: Any = None
    seq: int = 0
    call: Call = (0, 0)

    def attach(self, owner: Any, seq: int, call: Call) -> None:
        """`owner` will send the answer, to its request `seq`."""
        self.owner, self.seq, self.call = owner, seq, call

    def forget(self) -> None:
        """The connection is closed: keep no bytes for it."""
        self.payload = None


class Later(Struct):
    """Go on with the request after `pause_s`, so that others are served first; it keeps `kept_bytes` until then."""

    proceed: Callable[[], Answer]
    kept_bytes: int = 0
    pause_s: float = 0.0


Answer: TypeAlias = Released | Waiting | Later | None
"""None: the request has no answer, or its handler sends one later with `send_later`."""


class ServePermit(Protocol):
    """A server checks it before it handles a burst of requests, and again before it writes their answers."""

    def may_serve(self, now_ms: int) -> bool:
        """Whether this process may answer at `now_ms`. If not, connections are reset."""
        ...


class AlwaysServes:
    """For servers whose answers depend on no leader lease."""

    def may_serve(self, now_ms: int) -> bool:
        return True
