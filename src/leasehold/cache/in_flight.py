"""What a client has asked for and not heard of yet: reads (`Flights`) and writes (`Writing`). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.cache.client_events import Put
from leasehold.cache.entries import Entry


class Flight:
    """One key asked for once: who called before it was sent, who joined later, whether it may be kept."""

    __slots__ = ("early", "key", "late", "sent_ms", "seq", "void")

    def __init__(self, key: bytes, seq: int, sent_ms: int, early: list[tuple[int, int]], void: bool) -> None:
        self.key = key
        self.seq = seq
        self.sent_ms = sent_ms
        self.early = early  # (waiter, deadline)
        self.late: list[tuple[int, int]] = []
        self.void = void


class Flights:
    """Every read in flight, by its request and by its key, and which of them may still be joined."""

    __slots__ = ("by_key", "by_request", "joinable")

    def __init__(self) -> None:
        self.by_request: dict[tuple[int, bytes], Flight] = {}  # the oldest first
        self.by_key: dict[bytes, list[Flight]] = {}
        self.joinable: dict[bytes, Flight] = {}

    def launch(self, now_ms: int, seq: int, flight: Flight) -> None:
        """It is sent now, with request `seq`; who misses the same key from here on joins it."""
        flight.seq, flight.sent_ms = seq, now_ms
        self.by_request[seq, flight.key] = flight
        self.by_key.setdefault(flight.key, []).append(flight)
        self.joinable[flight.key] = flight

    def land(self, seq: int, key: bytes) -> Flight | None:
        """It was answered, or is given up; None if it had been given up before."""
        flight = self.by_request.pop((seq, key), None)
        if flight is None:
            return None
        same_key = self.by_key[key]
        same_key.remove(flight)
        if not same_key:
            del self.by_key[key]
        if self.joinable.get(key) is flight:
            del self.joinable[key]
        return flight

    def void(self, key: bytes) -> None:
        """Nothing that is on its way for `key` may be kept, and nobody may join it."""
        if key in self.by_key:
            for flight in self.by_key[key]:
                flight.void = True
            self.joinable.pop(key, None)

    def void_all(self) -> None:
        for flight in self.by_request.values():
            flight.void = True
        self.joinable.clear()


def merged(flights: Iterable[Flight]) -> list[Flight]:
    """One a key: who waits for the same asks together."""
    by_key: dict[bytes, Flight] = {}
    for flight in flights:
        if flight.key in by_key:
            by_key[flight.key].early.extend(flight.early)
        else:
            by_key[flight.key] = flight
    return list(by_key.values())


class Writing:
    """A write in flight; `void`: what it wrote may not be kept.

    Its time runs out at the authority first, which counts from when the write arrives and says that nothing was done:
    that answer is worth `patience_ms`, for without it the outcome is unknown.
    """

    __slots__ = ("deadline_ms", "key", "sent_ms", "unused", "value", "void", "waiter")

    def __init__(self, put: Put, sent_ms: int, patience_ms: int, void: bool, copy: Entry | None) -> None:
        self.key = put.key
        self.value = put.value
        self.waiter = put.waiter
        self.sent_ms = sent_ms
        self.deadline_ms = sent_ms + put.timeout_ms + patience_ms
        self.void = void
        self.unused = copy.unused_with_this() if copy is not None else 0
