"""The client decides: what it may answer from memory, what it must ask, what it may keep. Pure.

The rules, each of which keeps out a stale read (schedules 6, 22):

- a lease counts from when the attempt that was answered was *sent*, less the drift margin, and is checked at every
  hit;
- a callback drops the copy and *voids* every request in flight for that key: its answer may be returned once, never
  kept;
- the acknowledgement of a callback asks for the new value where the old one was used (a *refill*): one more request,
  with the send time of the acknowledgement. Nobody joins it, because it waits for the writer, and no reader ever does;
- a writer drops its copy before it sends, and keeps nothing that it asked for before its write was answered. Where
  it used that copy, the write itself asks for a lease on what it writes: one more request, sent when the write was,
  void after a callback and after another write of its own;
- concurrent misses ask once. But an answer without a valid lease belongs only to those who called before it was
  asked for: who came later may have seen a newer value elsewhere, so for them it is asked again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from leasehold.base import limits
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
from leasehold.cache.entries import Entries, Entry
from leasehold.cache.in_flight import Flight, Flights, Writing, merged
from leasehold.cache.model import (
    ABSENT,
    Ack,
    Answer,
    Ask,
    Changed,
    Code,
    Drop,
    Item,
    Outcome,
    Refill,
    Release,
    Subscribe,
    Unsubscribe,
    Write,
)
from leasehold.cache.settings import ClientSettings
from leasehold.leases.arithmetic import holder_deadline_ms

_SILENCES_MAX: Final = 2
_MOVE_PAUSE_MS: Final = 50  # before another address is tried, when the one that was reached is not in office


def _hits_if_wanted(copy: Entry | None) -> int | None:
    """How often the copy was used that is given up for a write; None if what is written is not wanted in its place."""
    return copy.hits if copy is not None and copy.wanted_back() else None


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
        self._flights = Flights()
        self._writings: dict[int, Writing] = {}
        self._writing_keys: dict[bytes, int] = {}
        self._attempt_ms = min(settings.attempt_timeout_ms, settings.timeout_ms)
        self._follows: dict[int, Follow] = {}
        self._prefixes: set[bytes] = set()
        self._resubscribed_until_ms: dict[int, int] = {}  # by request, on a new connection: when to look elsewhere
        self._effects: list[ClientEffect] = []
        # Tables: a chain of `case`s costs more than many a decision.
        self._by_event: dict[type, Callable[[int, Any], None]] = {
            FromServer: self._on_messages,
            Get: self._on_get,
            Put: self._on_put,
            Follow: self._on_follow,
            Tick: self._on_tick,
            Lost: self._on_lost,
            Connected: self._on_connected,
        }
        self._by_message: dict[type, Callable[[int, Any], None]] = {
            Answer: self._on_answer,
            Refill: self._on_refill,
            Drop: self._on_drop,
            Outcome: self._on_outcome,
            Changed: self._on_changed,
        }

    def handle(self, now_ms: int, event: ClientEvent) -> list[ClientEffect]:
        """Take one event; what must follow is returned in order."""
        self._by_event[type(event)](now_ms, event)
        effects, self._effects = self._effects, []
        return effects

    def next_wake_ms(self) -> int | None:
        """When a `Tick` is due, or None while nothing is in flight."""
        due = [writing.deadline_ms for writing in self._writings.values()]
        due += self._resubscribed_until_ms.values()
        oldest = next(iter(self._flights.by_request.values()), None)  # all wait equally long, so the first is due first
        if oldest is not None:
            due.append(oldest.sent_ms + self._attempt_ms)
        return min(due, default=None)

    def _on_messages(self, now_ms: int, event: FromServer) -> None:
        self._silences = 0
        for message in event.messages:
            self._by_message[type(message)](now_ms, message)

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
            flight = self._flights.joinable.get(key)
            if flight is not None:
                flight.late.append((get.waiter, get.deadline_ms))
            else:
                fresh.append(Flight(key, 0, now_ms, [(get.waiter, get.deadline_ms)], False))
        self._ask(now_ms, fresh)

    def _ask(self, now_ms: int, flights: list[Flight]) -> None:
        """Send one request for all of these (or as few as can be); each is a new attempt with its own send time."""
        for start in range(0, len(flights), limits.cache_keys_per_ask_max):
            self._ask_once(now_ms, flights[start : start + limits.cache_keys_per_ask_max])

    def _ask_once(self, now_ms: int, flights: list[Flight]) -> None:
        self._seq += 1
        hits = []
        for flight in flights:
            flight.void = flight.key in self._writing_keys
            hits.append(self._drop_unanswered(flight.key))
            self._flights.launch(now_ms, self._seq, flight)
        keys = tuple(flight.key for flight in flights)
        self._effects.append(Transmit(Ask(self._seq, keys, tuple(hits) if any(hits) else ())))

    def _drop_unanswered(self, key: bytes) -> int:
        """What could not be used is dropped, unless it was called back and the new value is on its way. Its uses."""
        entry = self.entries.by_key.get(key)
        if entry is None:
            return 0
        if not entry.asked:
            self.entries.drop(key)
        return entry.hits

    def _on_answer(self, now_ms: int, answer: Answer) -> None:
        again = [self._on_item(now_ms, answer.seq, item) for item in answer.items]
        self._ask(now_ms, [flight for flight in again if flight is not None])

    def _on_refill(self, now_ms: int, refill: Refill) -> None:
        find = self.entries.by_key.get
        sent_ms = term_ms = deadline_ms = 0
        for seq, item in refill.items:
            entry = find(item.key)
            if entry is None or entry.asked != seq or seq == 0:
                continue  # void: it was called back again, or written
            if entry.asked_ms != sent_ms or item.term_ms != term_ms:  # often alike for many
                sent_ms, term_ms = entry.asked_ms, item.term_ms
                deadline_ms = self._deadline_ms(now_ms, sent_ms, term_ms)
            if term_ms > 0 and now_ms < deadline_ms:
                self.entries.refill(item.key, entry, item.value, item.version, deadline_ms)
            else:
                self.entries.drop(item.key)

    def _on_item(self, now_ms: int, seq: int, item: Item) -> Flight | None:
        """Take one answer; returns what has to be asked again."""
        flight = self._flights.land(seq, item.key)
        if flight is None:
            return None  # an attempt that was given up: its callers were asked for again
        if item.code is not Code.OK:
            self._fail_all(flight.early + flight.late, item.code, f"the authority answered {item.code.value}")
            return None
        for waiter, _ in flight.early:
            self._effects.append(Deliver(waiter, item.key, item.value, item.version))
        deadline_ms = self._deadline_ms(now_ms, flight.sent_ms, item.term_ms)
        if not flight.void and item.term_ms > 0 and now_ms < deadline_ms:
            self.entries.keep(item.key, item.value, item.version, deadline_ms)
            for waiter, _ in flight.late:
                self._effects.append(Deliver(waiter, item.key, item.value, item.version))
            return None
        return self._for_the_late(item, flight)

    def _for_the_late(self, item: Item, flight: Flight) -> Flight | None:
        """Who joined after the request was sent may not have an answer without a lease: ask again for them."""
        return Flight(item.key, 0, 0, flight.late, False) if flight.late else None

    def _deadline_ms(self, now_ms: int, sent_ms: int, term_ms: int) -> int:
        return holder_deadline_ms(sent_ms, term_ms, self.settings.drift_ppm)

    # --- callbacks ---

    def _on_drop(self, now_ms: int, drop: Drop) -> None:
        keys = drop.keys
        self.callbacks += 1
        if not keys:
            self._drop_everything()
            return
        seq = self._seq + 1
        hits: list[int | None] = []
        entries = self.entries
        for key, _ in keys:
            writing = key in self._writing_keys
            if writing or key in self._flights.by_key:
                self._void_called_back(key)
            entry = entries.by_key.get(key)
            if entry is not None and not writing and entry.wanted_back():
                hits.append(entry.hits)
                entries.call_back(entry, seq, now_ms)
            else:
                hits.append(None)
                entries.drop(key)
        wanted = len(hits) - hits.count(None)
        if wanted:
            self._seq = seq
            self.refills += wanted
            self._effects.append(Transmit(Ack(keys, seq, tuple(hits))))
        else:
            self._effects.append(Transmit(Ack(keys)))

    def _drop_everything(self) -> None:
        """The authority is stopping."""
        self.entries.clear()
        self._flights.void_all()
        for writing in self._writings.values():
            writing.void = True
        self._effects.append(Transmit(Release()))

    def _void_called_back(self, key: bytes) -> None:
        """A grant that the callback has overtaken must not be kept when it arrives."""
        self._flights.void(key)
        self._void_writings(key)

    def _void_writings(self, key: bytes) -> None:
        """The same for the grant that comes with the outcome of a write."""
        if key in self._writing_keys:
            for writing in self._writings.values():
                if writing.key == key:
                    writing.void = True

    # --- writes ---

    def _on_put(self, now_ms: int, put: Put) -> None:
        entry = self._drop_own(put.key)
        self._void_writings(put.key)  # the authority counts as dropped whatever it gave before this write
        self._seq += 1
        patience_ms = min(self._attempt_ms, put.timeout_ms)
        self._writings[self._seq] = Writing(put, now_ms, patience_ms, put.key in self._writing_keys, entry)
        self._note_writing(put.key, 1)
        message = Write(self._seq, put.key, put.value, put.mode, put.expect, put.timeout_ms, _hits_if_wanted(entry))
        self._effects.append(Transmit(message))

    def _drop_own(self, key: bytes) -> Entry | None:
        """The authority counts a writer's own lease as dropped. What the copy was."""
        self._flights.void(key)
        return self.entries.drop(key)

    def _note_writing(self, key: bytes, change: int) -> None:
        number = self._writing_keys.get(key, 0) + change
        if number:
            self._writing_keys[key] = number
        else:
            self._writing_keys.pop(key, None)

    def _on_outcome(self, now_ms: int, outcome: Outcome) -> None:
        follow = self._follows.pop(outcome.seq, None)
        if follow is not None:
            self._end_follow(follow, outcome)
        if self._resubscribed_until_ms.pop(outcome.seq, None) is not None and outcome.code is Code.NOT_SERVING:
            self._resubscribed_until_ms[outcome.seq] = now_ms + _MOVE_PAUSE_MS
        writing = self._end_writing(outcome.seq)
        if writing is not None:
            self._keep_own(now_ms, writing, outcome)
            self._conclude(writing.waiter, outcome)

    def _keep_own(self, now_ms: int, writing: Writing, outcome: Outcome) -> None:
        """What was written, under the lease that came with the outcome."""
        deadline_ms = self._deadline_ms(now_ms, writing.sent_ms, outcome.term_ms)
        if outcome.code is Code.OK and outcome.term_ms > 0 and not writing.void and now_ms < deadline_ms:
            version = ABSENT if writing.value is None else outcome.version
            self.entries.keep(writing.key, writing.value, version, deadline_ms, writing.unused)

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

    def _on_follow(self, now_ms: int, follow: Follow) -> None:
        self._seq += 1
        if follow.on:
            self._follows[self._seq] = follow
            self._prefixes.add(follow.prefix)
            self._effects.append(Transmit(Subscribe(self._seq, follow.prefix)))
        else:  # nobody waits for the end: with the connection it would come by itself
            self._prefixes.discard(follow.prefix)
            self._effects.append(Transmit(Unsubscribe(self._seq, follow.prefix)))

    def _end_follow(self, follow: Follow, outcome: Outcome) -> None:
        if outcome.code is not Code.OK:
            self._prefixes.discard(follow.prefix)
        self._conclude(follow.waiter, outcome)

    def _on_changed(self, now_ms: int, changed: Changed) -> None:
        self._effects.append(Notify(changed.changes, changed.missed))

    # --- time and connection ---

    def _on_tick(self, now_ms: int, _event: Tick) -> None:
        overdue_ms = now_ms - self._attempt_ms
        flights = [flight for flight in self._flights.by_request.values() if flight.sent_ms <= overdue_ms]
        writes = [seq for seq, writing in self._writings.items() if writing.deadline_ms <= now_ms]
        self._retry(now_ms, flights)
        for seq in writes:
            self._doubt(seq, "the write was not answered in time")
        if writes or flights:
            self._silences += 1
        unheard = any(until_ms <= now_ms for until_ms in self._resubscribed_until_ms.values())
        if unheard or self._silences >= _SILENCES_MAX:
            self._silences = 0
            self._effects.append(Leave())

    def _retry(self, now_ms: int, flights: list[Flight]) -> None:
        """Unanswered: the copy is dropped (`_ask` does) and it is asked again, for those who still wait."""
        again = []
        for flight in flights:
            self._flights.land(flight.seq, flight.key)
            waiting = flight.early + flight.late
            gone = [waiter for waiter in waiting if waiter[1] <= now_ms]
            self._fail_all(gone, Code.UNAVAILABLE, "the authority did not answer in time")
            left = [waiter for waiter in waiting if waiter[1] > now_ms]
            if left:
                again.append(Flight(flight.key, 0, now_ms, left, False))
        self._ask(now_ms, merged(again))

    def _on_lost(self, now_ms: int, _event: Lost) -> None:
        for seq in list(self._writings):
            self._doubt(seq, "the connection was lost before the write was answered")
        for seq, follow in list(self._follows.items()):
            self._end_follow(follow, Outcome(seq, Code.UNAVAILABLE, message="the connection was lost: try again"))
        self._follows.clear()
        self._resubscribed_until_ms.clear()

    def _on_connected(self, now_ms: int, _event: Connected) -> None:
        self._retry(now_ms, list(self._flights.by_request.values()))
        for prefix in sorted(self._prefixes):
            self._seq += 1
            self._resubscribed_until_ms[self._seq] = now_ms + self._attempt_ms
            self._effects.append(Transmit(Subscribe(self._seq, prefix)))
        if self._prefixes:
            self._effects.append(Notify((), missed=True))

    def _doubt(self, seq: int, message: str) -> None:
        writing = self._end_writing(seq)
        if writing is not None:
            self._effects.append(Fail(writing.waiter, Code.UNKNOWN, message + ": read before you repeat it"))

    def _fail_all(self, waiters: list[tuple[int, int]], code: Code, message: str) -> None:
        self._effects.extend(Fail(waiter, code, message) for waiter, _ in waiters)
