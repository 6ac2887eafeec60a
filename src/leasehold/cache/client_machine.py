"""The client decides: which reads it may answer from memory, which requests it sends, which answers it keeps. Pure.

The rules, each of which prevents a stale read (schedules 6, 22):

- A lease counts from when the attempt that was answered was *sent*, less the drift margin. It is checked at every hit.
- A callback drops the copy and *voids* every request in flight for that key: its answer may be returned once, never
  kept.
- The acknowledgement of a callback requests the new value if the old one was used (a *refill*). Its lease counts from
  when the acknowledgement was sent. No reader joins this request, because it waits for the writer.
- A writer drops its copy before it sends, and keeps nothing that it requested before its write was answered. If it
  used that copy, the write also requests a lease on the new value. That request counts from when the write was sent,
  and is void after a callback and after another write of its own.
- Concurrent misses send one request. But an answer without a valid lease belongs only to callers from before it was
  sent: a later caller may have seen a newer value elsewhere, so for it the key is requested again.
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
    Unfollow,
)
from leasehold.cache.client_subscriptions import ClientSubscriptions
from leasehold.cache.entries import Entries, Entry
from leasehold.cache.in_flight import Caller, ReadAttempt, ReadsInFlight, WriteAttempt, WritesInFlight, merged
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


def _hits_if_wanted(copy: Entry | None) -> int | None:
    """How often the writer used the copy that it drops; None if it does not want the new value in its place."""
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
        self._silences = 0  # timeouts since the last message
        self._reads = ReadsInFlight()
        self._writes = WritesInFlight()
        self._subscriptions = ClientSubscriptions()
        self._attempt_ms = min(settings.attempt_timeout_ms, settings.timeout_ms)
        self._effects: list[ClientEffect] = []
        # Tables of handlers: a chain of `case`s costs more than most decisions.
        self._by_event: dict[type, Callable[[int, Any], None]] = {
            FromServer: self._on_messages,
            Get: self._on_get,
            Put: self._on_put,
            Follow: self._on_follow,
            Unfollow: self._on_unfollow,
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
        """Handle one event and return what must be done, in order."""
        self._by_event[type(event)](now_ms, event)
        effects, self._effects = self._effects, []
        return effects

    def next_wake_ms(self) -> int | None:
        """When a `Tick` is due, or None while nothing is in flight."""
        due: list[int] = []
        if self._writes.by_request:
            due += self._writes.deadlines_ms()
        if self._subscriptions.resubscribed_until_ms:
            due += self._subscriptions.resubscribed_until_ms.values()
        if self._reads.by_request:  # all have the same timeout, so the first sent is due first
            due.append(self._reads.oldest_sent_ms() + self._attempt_ms)
        return min(due) if due else None

    def check(self) -> None:
        """Check the invariants of every part; call it between two events."""
        self.entries.check()
        self._reads.check()
        self._writes.check()
        self._subscriptions.check()

    def _on_messages(self, now_ms: int, event: FromServer) -> None:
        self._silences = 0
        for message in event.messages:
            self._by_message[type(message)](now_ms, message)

    # --- reads ---

    def _on_get(self, now_ms: int, get: Get) -> None:
        attempts: list[ReadAttempt] = []
        for key in get.keys:
            entry = self.entries.valid(now_ms, key)
            if entry is not None:
                self.entries.use(now_ms, key, entry)
                self._effects.append(Deliver(get.call, key, entry.value, entry.version))
                continue
            self.misses += 1
            caller = Caller(get.call, get.deadline_ms)
            attempt = self._reads.joinable(key)
            if attempt is not None:
                attempt.join(caller)
            else:
                attempts.append(ReadAttempt(key, [caller]))
        self._request(now_ms, attempts)

    def _request(self, now_ms: int, attempts: list[ReadAttempt]) -> None:
        """Send as few requests as possible for all of these keys."""
        for start in range(0, len(attempts), limits.cache_keys_per_ask_max):
            self._request_once(now_ms, attempts[start : start + limits.cache_keys_per_ask_max])

    def _request_once(self, now_ms: int, attempts: list[ReadAttempt]) -> None:
        self._seq += 1
        hits = []
        for attempt in attempts:
            hits.append(self._drop_expired(attempt.key))
            attempt.send(now_ms, self._seq, void=attempt.key in self._writes.count_by_key)
            self._reads.add(attempt)
        keys = tuple(attempt.key for attempt in attempts)
        self._effects.append(Transmit(Ask(self._seq, keys, tuple(hits) if any(hits) else ())))

    def _drop_expired(self, key: bytes) -> int:
        """Drop a copy that could not be used, unless its refill is on the way; returns how often it was used."""
        entry = self.entries.by_key.get(key)
        if entry is None:
            return 0
        if not entry.refill_seq:
            self.entries.drop(key)
        return entry.hits

    def _on_answer(self, now_ms: int, answer: Answer) -> None:
        again = [self._on_item(now_ms, answer.seq, item) for item in answer.items]
        self._request(now_ms, [attempt for attempt in again if attempt is not None])

    def _on_refill(self, now_ms: int, refill: Refill) -> None:
        find = self.entries.by_key.get
        sent_ms = term_ms = deadline_ms = 0
        for seq, item in refill.items:
            entry = find(item.key)
            if entry is None or entry.refill_seq != seq or seq == 0:
                continue  # void: the key was called back again, or written
            if entry.refill_sent_ms != sent_ms or item.term_ms != term_ms:  # often the same for many keys
                sent_ms, term_ms = entry.refill_sent_ms, item.term_ms
                deadline_ms = self._deadline_ms(now_ms, sent_ms, term_ms)
            if term_ms > 0 and now_ms < deadline_ms:
                self.entries.refill(item.key, entry, item.value, item.version, deadline_ms)
            else:
                self.entries.drop(item.key)

    def _on_item(self, now_ms: int, seq: int, item: Item) -> ReadAttempt | None:
        """Handle one key of an answer; returns an attempt if the key has to be requested again."""
        attempt = self._reads.remove(seq, item.key)
        if attempt is None:
            return None  # an attempt that was given up: its callers wait for a newer one
        if item.code is not Code.OK:
            self._fail_all(attempt.all_callers(), item.code, f"the authority answered {item.code.value}")
            return None
        self._deliver(attempt.callers, item)
        deadline_ms = self._deadline_ms(now_ms, attempt.sent_ms, item.term_ms)
        if not attempt.void and item.term_ms > 0 and now_ms < deadline_ms:
            self.entries.keep(item.key, item.value, item.version, deadline_ms)
            self._deliver(attempt.late_callers, item)
            return None
        return self._for_late_callers(item, attempt.late_callers)

    def _deliver(self, callers: list[Caller], item: Item) -> None:
        for caller in callers:
            self._effects.append(Deliver(caller.call, item.key, item.value, item.version))

    def _for_late_callers(self, item: Item, callers: list[Caller]) -> ReadAttempt | None:
        """An answer without a lease is not for callers that joined after it was requested: request it again."""
        return ReadAttempt(item.key, callers) if callers else None

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
        entries, writes, reads = self.entries, self._writes.count_by_key, self._reads.by_key
        for key, _ in keys:
            writing = key in writes
            if writing or key in reads:
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
        self._reads.void_all()
        self._writes.void_all()
        self._effects.append(Transmit(Release()))

    def _void_called_back(self, key: bytes) -> None:
        """A lease that the callback has overtaken must not be used when it arrives."""
        self._reads.void(key)
        self._writes.void(key)

    # --- writes ---

    def _on_put(self, now_ms: int, put: Put) -> None:
        entry = self._drop_own(put.key)
        self._writes.void(put.key)  # the authority counts as dropped every lease that it granted before this write
        self._seq += 1
        patience_ms = min(self._attempt_ms, put.timeout_ms)
        self._writes.add(self._seq, WriteAttempt(put, now_ms, patience_ms, put.key in self._writes.count_by_key, entry))
        message = Write(self._seq, put.key, put.value, put.mode, put.expect, put.timeout_ms, _hits_if_wanted(entry))
        self._effects.append(Transmit(message))

    def _drop_own(self, key: bytes) -> Entry | None:
        """Drop the writer's copy, as the authority assumes; returns it."""
        self._reads.void(key)
        return self.entries.drop(key)

    def _on_outcome(self, now_ms: int, outcome: Outcome) -> None:
        follow = self._subscriptions.answered(now_ms, outcome)
        if follow is not None:
            self._finish_call(follow.call, outcome)
        write = self._end_write(outcome.seq)
        if write is not None:
            self._keep_own(now_ms, write, outcome)
            self._finish_call(write.call, outcome)

    def _keep_own(self, now_ms: int, write: WriteAttempt, outcome: Outcome) -> None:
        """Keep the value that was written, under the lease that came with the outcome."""
        deadline_ms = self._deadline_ms(now_ms, write.sent_ms, outcome.term_ms)
        if outcome.code is Code.OK and outcome.term_ms > 0 and not write.void and now_ms < deadline_ms:
            version = ABSENT if write.value is None else outcome.version
            self.entries.keep(write.key, write.value, version, deadline_ms, write.unused)

    def _finish_call(self, call: int, outcome: Outcome) -> None:
        if outcome.code is Code.OK:
            self._effects.append(Done(call, outcome.version))
        else:
            self._effects.append(Fail(call, outcome.code, outcome.message, outcome.version))

    def _end_write(self, seq: int) -> WriteAttempt | None:
        write = self._writes.remove(seq)
        if write is not None:
            self._drop_own(write.key)
        return write

    # --- subscriptions ---

    def _on_follow(self, now_ms: int, follow: Follow) -> None:
        self._seq += 1
        self._subscriptions.add(self._seq, follow)
        self._effects.append(Transmit(Subscribe(self._seq, follow.prefix)))

    def _on_unfollow(self, now_ms: int, unfollow: Unfollow) -> None:
        self._seq += 1
        self._subscriptions.remove(unfollow.prefix)
        self._effects.append(Transmit(Unsubscribe(self._seq, unfollow.prefix)))

    def _on_changed(self, now_ms: int, changed: Changed) -> None:
        self._effects.append(Notify(changed.changes, changed.missed))

    # --- time and connection ---

    def _on_tick(self, now_ms: int, _event: Tick) -> None:
        overdue_ms = now_ms - self._attempt_ms
        reads = [attempt for attempt in self._reads.all() if attempt.sent_ms <= overdue_ms]
        writes = self._writes.overdue(now_ms)
        self._retry(now_ms, reads)
        for seq in writes:
            self._fail_unknown(seq, "the write was not answered in time")
        if writes or reads:
            self._silences += 1
        if self._subscriptions.overdue(now_ms) or self._silences >= _SILENCES_MAX:
            self._silences = 0
            self._effects.append(Leave())

    def _retry(self, now_ms: int, attempts: list[ReadAttempt]) -> None:
        """Request unanswered keys again (which drops their copies), for the callers that still wait."""
        again = []
        for attempt in attempts:
            self._reads.remove(attempt.seq, attempt.key)
            callers = attempt.all_callers()
            expired = [caller for caller in callers if caller.deadline_ms <= now_ms]
            self._fail_all(expired, Code.UNAVAILABLE, "the authority did not answer in time")
            waiting = [caller for caller in callers if caller.deadline_ms > now_ms]
            if waiting:
                again.append(ReadAttempt(attempt.key, waiting))
        self._request(now_ms, merged(again))

    def _on_lost(self, now_ms: int, _event: Lost) -> None:
        for seq in self._writes.requests():
            self._fail_unknown(seq, "the connection was lost before the write was answered")
        for follow in self._subscriptions.fail_requested():
            self._effects.append(Fail(follow.call, Code.UNAVAILABLE, "the connection was lost: try again"))

    def _on_connected(self, now_ms: int, _event: Connected) -> None:
        self._retry(now_ms, self._reads.all())
        prefixes = self._subscriptions.prefixes()
        for prefix in prefixes:
            self._seq += 1
            self._subscriptions.resubscribe(self._seq, now_ms + self._attempt_ms)
            self._effects.append(Transmit(Subscribe(self._seq, prefix)))
        if prefixes:
            self._effects.append(Notify((), missed=True))

    def _fail_unknown(self, seq: int, message: str) -> None:
        write = self._end_write(seq)
        if write is not None:
            self._effects.append(Fail(write.call, Code.UNKNOWN, message + ": read before you repeat it"))

    def _fail_all(self, callers: list[Caller], code: Code, message: str) -> None:
        self._effects.extend(Fail(caller.call, code, message) for caller in callers)
