"""What the authority's machine keeps for one key, and for a request on its way. Plain mutable state."""

from __future__ import annotations

from collections import deque
from typing import Final

from leasehold.base.invariants import ensure
from leasehold.cache.model import ABSENT, Item, Version, Write
from leasehold.leases.adaptive import Rates

FOREVER_MS: Final = 2**62


class Request:
    """A client's write, until when it wants to begin, and whether it wants to keep what it writes."""

    __slots__ = ("client", "deadline_ms", "keeps", "write")

    def __init__(self, client: str, write: Write, deadline_ms: int) -> None:
        self.client = client
        self.write = write
        self.deadline_ms = deadline_ms
        self.keeps = write.hits is not None


class Pending:
    """The one write of a key that is under way.

    `ends_ms` is fixed when it begins; `unproven` says that acknowledgements cannot suffice, because somebody holds
    a lease who is not known by name. `token` is set while a store is in flight; `doubtful` once one was not answered.
    """

    __slots__ = ("attempts", "doubtful", "ends_ms", "request", "retry_ms", "ticket", "token", "unacked", "unproven")

    def __init__(self, request: Request, ends_ms: int, ticket: Version, unacked: set[str], unproven: bool) -> None:
        self.request = request
        self.ends_ms = ends_ms
        self.ticket = ticket
        self.unacked = unacked
        self.unproven = unproven
        self.token: Version | None = None
        self.doubtful = False
        self.attempts = 0
        self.retry_ms = 0

    def due_ms(self) -> int:
        """When it may be stored, or has run out of time; while a store is in flight, its answer is what counts."""
        if self.token is not None:
            return FOREVER_MS
        return self.retry_ms if self.doubtful else min(self.ends_ms, self.request.deadline_ms)


class Gather:
    """The answer to one request for several keys, complete when every key's value is known."""

    __slots__ = ("_items", "client", "missing", "seq")

    def __init__(self, client: str, seq: int, keys: int) -> None:
        self.client = client
        self.seq = seq
        self.missing = keys
        self._items: list[Item | None] = [None] * keys

    def put(self, index: int, item: Item) -> None:
        ensure(self._items[index] is None, "a key is answered once", item.key)
        self._items[index] = item
        self.missing -= 1

    def items(self) -> tuple[Item, ...]:
        return tuple(item for item in self._items if item is not None)


class Cell:
    """One key: its value if known, readers that wait for the load, the write under way, and those behind it."""

    __slots__ = (
        "key",
        "known",
        "loading",
        "pending",
        "queue",
        "rates",
        "readers",
        "refills",
        "value",
        "version",
        "wake_ms",
    )

    def __init__(self, key: bytes, rates: Rates) -> None:
        self.key = key
        self.known = False
        self.value: bytes | None = None
        self.version: Version = ABSENT
        self.loading = False
        self.readers: list[tuple[Gather, int]] = []
        self.refills: dict[str, int] = {}  # who acknowledged and wants the new value, by which request of theirs
        self.pending: Pending | None = None
        self.queue: deque[Request] = deque()
        self.rates = rates
        self.wake_ms = FOREVER_MS  # the alarm that is set

    def due_ms(self) -> int:
        """When something here must be looked at again: a write may begin, or has run out of time."""
        due_ms = min((request.deadline_ms for request in self.queue), default=FOREVER_MS)
        return due_ms if self.pending is None else min(due_ms, self.pending.due_ms())

    def idle(self) -> bool:
        return not self.loading and self.pending is None and not self.queue
