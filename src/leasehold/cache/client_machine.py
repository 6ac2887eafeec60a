"""The client decides: what it may answer from memory, what it must ask, what it may keep. Pure.

The rules, each of which keeps out a stale read (schedules 6, 22):

- a lease counts from when the attempt that was answered was *sent*, less the drift margin, and is checked at every
  hit;
- a callback drops the copy and *voids* every request in flight for that key: its answer may be returned once, never
  kept;
- the acknowledgement of a callback asks for the new value where the old one was used (a *refill*): one more request,
  with the send time of the acknowledgement. Nobody joins it, because it waits for the writer, and no reader ever does;
- a writer drops its copy before it sends, and keeps nothing that it asked for before its write was answered;
- concurrent misses ask once. But an answer without a valid lease belongs only to those who called before it was
  asked for: who came later may have seen a newer value elsewhere, so for them it is asked again.
"""

from __future__ import annotations

from typing import Final

from leasehold.cache.client_events import (
    ClientEffect,
    ClientEvent,
    Connected,
    Deliver,
    Done,
    Fail,
    Follow,
    FromServer,
    Get,
    Leave,
    Lost,
    Notify,
    Put,
    Tick,
    Transmit,
)
from leasehold.cache.entries import Entries
from leasehold.cache.model import (
    Ack,
    Answer,
    Ask,
    Changed,
    Code,
    Drop,
    Item,
    Outcome,
    Release,
    Subscribe,
    Unsubscribe,
    Version,
    Write,
)
from leasehold.cache.settings import ClientSettings
from leasehold.leases.arithmetic import holder_deadline_ms

_SILENCES_MAX: Final = 2


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


class Writing:
    __slots__ = ("deadline_ms", "key", "waiter")

    def __init__(self, key: bytes, waiter: int, deadline_ms: int) -> None:
        self.key = key
        self.waiter = waiter
        self.deadline_ms = deadline_ms


class ClientMachine:
    """One identity of a client: `handle(now_ms, event) -> effects`. A fork makes a new one."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.entries = Entries(settings.entries_max, settings.bytes_max)
        self.misses = 0
        self.callbacks = 0
        self.refills = 0
        self._seq = 0
        self._silences = 0  # times that something was overdue, since anything was heard
        self._flights: dict[tuple[int, bytes], Flight] = {}
        self._in_flight: dict[bytes, list[Flight]] = {}  # the same, by key
        self._joinable: dict[bytes, Flight] = {}
        self._writings: dict[int, Writing] = {}
        self._writing_keys: dict[bytes, int] = {}
        self._follows: dict[int, int] = {}
        self._prefixes: set[bytes] = set()
        self._effects: list[ClientEffect] = []

    def handle(self, now_ms: int, event: ClientEvent) -> list[ClientEffect]:
        """Take one event; what must follow is returned in order."""
        if isinstance(event, FromServer):
            self._silences = 0
        match event:
            case Get():
                self._on_get(now_ms, event)
            case FromServer(Answer(seq, items)):
                again = [self._on_item(now_ms, seq, item) for item in items]
                self._ask(now_ms, [flight for flight in again if flight is not None])
            case FromServer(Drop(keys)):
                self._on_drop(now_ms, keys)
            case FromServer(Outcome() as outcome):
                self._on_outcome(outcome)
            case FromServer(Changed(changes, missed)):
                self._effects.append(Notify(changes, missed))
            case Put():
                self._on_put(now_ms, event)
            case Follow():
                self._on_follow(event)
            case Tick():
                self._on_tick(now_ms)
            case Lost():
                self._on_lost(now_ms)
            case Connected():
                self._on_connected(now_ms)
        effects, self._effects = self._effects, []
        return effects

    def next_wake_ms(self) -> int | None:
        """When a `Tick` is due, or None while nothing is in flight."""
        due = [writing.deadline_ms for writing in self._writings.values()]
        oldest = next(iter(self._flights.values()), None)  # all wait equally long, so the first is due first
        if oldest is not None:
            due.append(oldest.sent_ms + self.settings.attempt_timeout_ms)
        return min(due, default=None)

    # --- reads ---

    def _on_get(self, now_ms: int, get: Get) -> None:
        fresh: list[Flight] = []
        for key in get.keys:
            entry = self.entries.valid(now_ms, key)
            if entry is not None:
                self.entries.use(now_ms, key, entry)
                self._effects.append(Deliver(get.waiter, key, entry.value, entry.version))
                continue
            self.misses += 1
            flight = self._joinable.get(key)
            if flight is not None:
                flight.late.append((get.waiter, get.deadline_ms))
            else:
                fresh.append(Flight(key, 0, now_ms, [(get.waiter, get.deadline_ms)], False))
        self._ask(now_ms, fresh)

    def _ask(self, now_ms: int, flights: list[Flight]) -> None:
        """Send one request for all of these; each is a new attempt with a send time of its own."""
        if not flights:
            return
        self._seq += 1
        hits = []
        for flight in flights:
            flight.void = flight.key in self._writing_keys
            hits.append(self.entries.drop(flight.key))
            self._launch(now_ms, flight)
            self._joinable[flight.key] = flight
        keys = tuple(flight.key for flight in flights)
        self._effects.append(Transmit(Ask(self._seq, keys, tuple(hits) if any(hits) else ())))

    def _launch(self, now_ms: int, flight: Flight) -> None:
        flight.seq, flight.sent_ms = self._seq, now_ms
        self._flights[flight.seq, flight.key] = flight
        self._in_flight.setdefault(flight.key, []).append(flight)

    def _on_item(self, now_ms: int, seq: int, item: Item) -> Flight | None:
        """Take one answer; returns what has to be asked again."""
        flight = self._flights.pop((seq, item.key), None)
        if flight is None:
            return None  # an attempt that was given up: its callers were asked for again
        self._landed(flight)
        if item.code is not Code.OK:
            self._fail_all(flight.early + flight.late, item.code, f"the authority answered {item.code.value}")
            return None
        for waiter, _ in flight.early:
            self._effects.append(Deliver(waiter, item.key, item.value, item.version))
        deadline_ms = self._deadline_ms(now_ms, flight, item.term_ms)
        if not flight.void and item.term_ms > 0 and now_ms < deadline_ms:
            self.entries.keep(item.key, item.value, item.version, deadline_ms)
            for waiter, _ in flight.late:
                self._effects.append(Deliver(waiter, item.key, item.value, item.version))
            return None
        return self._for_the_late(item, flight)

    def _for_the_late(self, item: Item, flight: Flight) -> Flight | None:
        """Who joined after the request was sent may not have an answer without a lease: ask again for them."""
        return Flight(item.key, 0, 0, flight.late, False) if flight.late else None

    def _deadline_ms(self, now_ms: int, flight: Flight, term_ms: int) -> int:
        return holder_deadline_ms(flight.sent_ms, term_ms, self.settings.drift_ppm)

    def _landed(self, flight: Flight) -> None:
        same_key = self._in_flight[flight.key]
        same_key.remove(flight)
        if not same_key:
            del self._in_flight[flight.key]
        if self._joinable.get(flight.key) is flight:
            del self._joinable[flight.key]

    def _void_in_flight(self, key: bytes) -> None:
        """Nothing that is on its way for `key` may be kept, and nobody may join it."""
        for flight in self._in_flight.get(key, ()):
            flight.void = True
        self._joinable.pop(key, None)

    # --- callbacks ---

    def _on_drop(self, now_ms: int, keys: tuple[tuple[bytes, Version], ...]) -> None:
        self.callbacks += 1
        if not keys:  # everything: the authority is stopping
            self.entries.clear()
            for flight in self._flights.values():
                flight.void = True
            self._joinable.clear()
            self._effects.append(Transmit(Release()))
            return
        hits = []
        for key, _ in keys:
            used = self.entries.drop(key)
            self._void_called_back(key)
            hits.append(0 if key in self._writing_keys else used)
        if not any(hits):
            self._effects.append(Transmit(Ack(keys)))
            return
        self._seq += 1
        for (key, _), used in zip(keys, hits, strict=True):
            if used:
                self.refills += 1
                self._launch(now_ms, Flight(key, 0, 0, [], False))
        self._effects.append(Transmit(Ack(keys, self._seq, tuple(hits))))

    def _void_called_back(self, key: bytes) -> None:
        """A grant that the callback has overtaken must not be kept when it arrives."""
        self._void_in_flight(key)

    # --- writes ---

    def _on_put(self, now_ms: int, put: Put) -> None:
        self._drop_own(put.key)
        self._seq += 1
        self._writings[self._seq] = Writing(put.key, put.waiter, now_ms + put.timeout_ms)
        self._note_writing(put.key, 1)
        message = Write(self._seq, put.key, put.value, put.mode, put.expect, put.timeout_ms)
        self._effects.append(Transmit(message))

    def _drop_own(self, key: bytes) -> None:
        """The authority counts a writer's own lease as dropped."""
        self.entries.drop(key)
        self._void_in_flight(key)

    def _note_writing(self, key: bytes, change: int) -> None:
        number = self._writing_keys.get(key, 0) + change
        if number:
            self._writing_keys[key] = number
        else:
            self._writing_keys.pop(key, None)

    def _on_outcome(self, outcome: Outcome) -> None:
        follower = self._follows.pop(outcome.seq, None)
        if follower is not None:
            self._conclude(follower, outcome)
        writing = self._end_writing(outcome.seq)
        if writing is not None:
            self._conclude(writing.waiter, outcome)

    def _conclude(self, waiter: int, outcome: Outcome) -> None:
        if outcome.code is Code.OK:
            self._effects.append(Done(waiter, outcome.version))
        else:
            self._effects.append(Fail(waiter, outcome.code, outcome.message, outcome.version))

    def _end_writing(self, seq: int) -> Writing | None:
        writing = self._writings.pop(seq, None)
        if writing is not None:
            self._drop_own(writing.key)
            self._note_writing(writing.key, -1)
        return writing

    # --- subscriptions ---

    def _on_follow(self, follow: Follow) -> None:
        self._seq += 1
        self._follows[self._seq] = follow.waiter
        if follow.on:
            self._prefixes.add(follow.prefix)
            self._effects.append(Transmit(Subscribe(self._seq, follow.prefix)))
        else:
            self._prefixes.discard(follow.prefix)
            self._effects.append(Transmit(Unsubscribe(self._seq, follow.prefix)))

    # --- time and connection ---

    def _on_tick(self, now_ms: int) -> None:
        overdue_ms = now_ms - self.settings.attempt_timeout_ms
        flights = [flight for flight in self._flights.values() if flight.sent_ms <= overdue_ms]
        writes = [seq for seq, writing in self._writings.items() if writing.deadline_ms <= now_ms]
        self._retry(now_ms, flights)
        for seq in writes:
            self._doubt(seq, "the write was not answered in time")
        # A refill may rightly take long; a read that somebody waits for is answered at once wherever there is life.
        if writes or any(flight.early or flight.late for flight in flights):
            self._silences += 1
            if self._silences >= _SILENCES_MAX:
                self._silences = 0
                self._effects.append(Leave())

    def _retry(self, now_ms: int, flights: list[Flight]) -> None:
        """Unanswered: the copy is dropped (`_ask` does) and it is asked again, for those who still wait."""
        again = []
        for flight in flights:
            del self._flights[flight.seq, flight.key]
            self._landed(flight)
            waiting = flight.early + flight.late
            gone = [waiter for waiter in waiting if waiter[1] <= now_ms]
            self._fail_all(gone, Code.UNAVAILABLE, "the authority did not answer in time")
            left = [waiter for waiter in waiting if waiter[1] > now_ms]
            if left:
                again.append(Flight(flight.key, 0, now_ms, left, False))
        merged: dict[bytes, Flight] = {}
        for flight in again:
            if flight.key in merged:
                merged[flight.key].early.extend(flight.early)
            else:
                merged[flight.key] = flight
        self._ask(now_ms, list(merged.values()))

    def _on_lost(self, now_ms: int) -> None:
        for seq in list(self._writings):
            self._doubt(seq, "the connection was lost before the write was answered")
        self._fail_all([(waiter, 0) for waiter in self._follows.values()], Code.UNAVAILABLE, "connection lost")
        self._follows.clear()

    def _on_connected(self, now_ms: int) -> None:
        self._retry(now_ms, list(self._flights.values()))
        for prefix in sorted(self._prefixes):
            self._seq += 1
            self._effects.append(Transmit(Subscribe(self._seq, prefix)))
        if self._prefixes:
            self._effects.append(Notify((), missed=True))

    def _doubt(self, seq: int, message: str) -> None:
        writing = self._end_writing(seq)
        if writing is not None:
            self._effects.append(Fail(writing.waiter, Code.UNKNOWN, message + ": read before you repeat it"))

    def _fail_all(self, waiters: list[tuple[int, int]], code: Code, message: str) -> None:
        self._effects.extend(Fail(waiter, code, message) for waiter, _ in waiters)
