"""The authority decides: who may keep what for how long, and when a write may take effect. Pure.

The rules, each of which keeps out a stale read that has been seen (schedules 6, 9, 22, H13):

- a write takes effect only when no lease on the old value can be valid. The latest end is fixed when the write
  begins, so it is never starved;
- while a `callback` write waits, reads get the old value *without* a lease; while a `wait` write waits, with a
  lease that ends with those already out;
- the writer's own lease counts as dropped only if it was asked for before the write: a write that arrives late
  must not override a lease that its writer asked for afterwards;
- a write may ask for a lease on what it writes, an acknowledgement for the new value. Both are requests like any
  other, answered when no write of that key is under way any more, never before: a lease on the old value would
  outlive them;
- a write begins only when the key's value is known, and nothing is loaded while it is under way: load, decision
  and grant are one step;
- a store whose outcome is unknown is repeated under a newer token until one stands; until then no lease;
- after a start nothing is written for the longest term that the predecessor may have given.
"""

from __future__ import annotations

from heapq import heappop

from leasehold.cache.authority_base import OnEvent, OnMessage
from leasehold.cache.authority_writes import AuthorityWrites
from leasehold.cache.events import (
    Disconnected,
    Effect,
    Event,
    Loaded,
    LoadFailed,
    MarkClean,
    Received,
    Right,
    SettleTerm,
    Stop,
    Stored,
    StoreRefused,
    StoreUnknown,
    Tick,
)
from leasehold.cache.key_state import FOREVER_MS, Cell
from leasehold.cache.model import ABSENT, Ack, Ask, Code, Drop, Hello, Release, Subscribe, Unsubscribe, Write


class AuthorityMachine(AuthorityWrites):
    """One term of office: `handle(now_ms, event) -> effects`."""

    def _tables(self) -> tuple[dict[type, OnEvent], dict[type, OnMessage]]:
        by_event: dict[type, OnEvent] = {
            Received: self._on_received,
            Loaded: self._on_loaded,
            LoadFailed: self._on_load_failed,
            Stored: self._on_stored,
            StoreUnknown: self._on_store_unknown,
            StoreRefused: self._on_store_refused,
            Tick: self._on_tick,
            Right: self._on_right,
            Disconnected: self._on_disconnected,
            Stop: self._on_stop,
        }
        by_message: dict[type, OnMessage] = {
            Ask: self._on_ask,
            Write: self._on_write,
            Ack: self._on_acks,
            Hello: self._remind,
            Release: self._on_release,
            Subscribe: self._on_subscribe,
            Unsubscribe: self._on_unsubscribe,
        }
        return by_event, by_message

    # --- the door ---

    def handle(self, now_ms: int, event: Event) -> list[Effect]:
        """Take one event; what must follow is returned in order."""
        if not self.closed:
            self._by_event[type(event)](now_ms, event)
        effects, self._effects = self._effects, []
        return effects

    def next_wake_ms(self) -> int:
        """When a `Tick` is due at the latest."""
        due = self._swept_ms + 1_000
        if not self._term_settled:
            due = min(due, max(self.writes_from_ms, self._swept_ms))
        return min(due, self._wakes[0][0]) if self._wakes else due

    def _on_received(self, now_ms: int, event: Received) -> None:
        client = event.client
        for message in event.messages:
            if self.closed:
                return  # by the message before
            self._by_message[type(message)](now_ms, client, message)

    def _on_right(self, now_ms: int, event: Right) -> None:
        self._right_until_ms = event.until_ms

    def _on_acks(self, now_ms: int, client: str, ack: Ack) -> None:
        for index, (key, ticket) in enumerate(ack.dropped):
            self._on_ack(now_ms, client, key, ticket, ack.seq, ack.hits[index] if index < len(ack.hits) else None)

    def _on_subscribe(self, now_ms: int, client: str, message: Subscribe) -> None:
        refusal = self._subscriptions.add(client, message.prefix)
        self._outcome(client, message.seq, Code.BAD_REQUEST if refusal else Code.OK, ABSENT, refusal)

    def _on_unsubscribe(self, now_ms: int, client: str, message: Unsubscribe) -> None:
        self._subscriptions.remove(client, message.prefix)
        self._outcome(client, message.seq, Code.OK)

    # --- time, presence, the end ---

    def _on_tick(self, now_ms: int, _event: Tick) -> None:
        while self._wakes and self._wakes[0][0] <= now_ms:
            at_ms, key = heappop(self._wakes)
            cell = self._cells.get(key)
            if cell is None or cell.wake_ms != at_ms:
                continue  # the alarm of a cell that was forgotten, or one that an earlier one has replaced
            cell.wake_ms = FOREVER_MS
            self._expire(now_ms, cell)
            self._proceed(now_ms, cell)
            self._wake(max(now_ms + 1, cell.due_ms()), cell)
        if now_ms - self._swept_ms >= 1_000:
            self._swept_ms = now_ms
            self.table.sweep(now_ms)
        if not self._term_settled and now_ms >= self.writes_from_ms:
            self._term_settled = True
            self._effects.append(SettleTerm())
        self._end_if_drained(now_ms)

    def _expire(self, now_ms: int, cell: Cell) -> None:
        """Writes whose time ran out before they were stored have not happened."""
        late = [request for request in cell.queue if request.deadline_ms <= now_ms]
        for request in late:
            cell.queue.remove(request)
            self._refuse(request, Code.EXPIRED, "its time ran out before it could begin; nothing was done")
        pending = cell.pending
        if pending is None or pending.request.deadline_ms > now_ms or now_ms >= pending.ends_ms:
            return
        if pending.token is None and not pending.doubtful:
            self._give_up(now_ms, cell, Code.EXPIRED, "its time ran out while leases were out; nothing was done")

    def _remind(self, now_ms: int, client: str, _hello: Hello) -> None:
        """Back on a new connection: what it was told to drop may have been lost with the old one."""
        for cell in self._busy.values():
            if cell.pending is not None and client in cell.pending.unacked:
                self._send(client, Drop(((cell.key, cell.pending.ticket),)))

    def _on_disconnected(self, now_ms: int, event: Disconnected) -> None:
        self._on_gone(event.client)

    def _on_gone(self, client: str) -> None:
        """Who is gone hears of no changes, and gets no lease that the next write would have to wait for."""
        self._subscriptions.forget(client)
        for cell in self._busy.values():
            cell.refills.pop(client, None)
            for request in (*cell.queue, *([cell.pending.request] if cell.pending is not None else [])):
                if request.client == client:
                    request.keeps = False

    def _on_release(self, now_ms: int, client: str, _release: Release) -> None:
        self.table.release_holder(client)
        self._on_gone(client)
        for cell in list(self._busy.values()):
            if cell.pending is not None and client in cell.pending.unacked:
                cell.pending.unacked.discard(client)
                self._proceed(now_ms, cell)
        self._end_if_drained(now_ms)

    def _on_stop(self, now_ms: int, _event: Stop) -> None:
        self.stopping = True
        for holder in self.table.holders():
            self._send(holder, Drop(()))
        self._end_if_drained(now_ms)

    def _end_if_drained(self, now_ms: int) -> None:
        if self.stopping and not self._busy and now_ms >= self.writes_from_ms and now_ms >= self.table.live_until_ms():
            self.closed = True
            self._effects.append(MarkClean())
