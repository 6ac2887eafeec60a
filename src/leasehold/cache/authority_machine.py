"""The authority decides: who may keep what for how long, and when a write may take effect. Pure.

The rules, each of which keeps out a stale read that has been seen (schedules 6, 9, 22, H13):

- a write takes effect only when no lease on the old value can be valid. The latest end is fixed when the write
  begins, so it is never starved;
- while a `callback` write waits, reads get the old value *without* a lease; while a `wait` write waits, with a
  lease that ends with those already out;
- the writer's own lease counts as dropped only if it was asked for before the write: a write that arrives late
  must not override a lease that its writer asked for afterwards;
- an acknowledgement may ask for the new value. It is answered when no write of that key is under way any more, never
  before: a lease on the old value would outlive the acknowledgement;
- a write begins only when the key's value is known, and nothing is loaded while it is under way: load, decision
  and grant are one step;
- a store whose outcome is unknown is repeated under a newer token until one stands; until then no lease;
- after a start nothing is written for the longest term that the predecessor may have given.
"""

from __future__ import annotations

from heapq import heappop

from leasehold.base.invariants import ensure
from leasehold.cache.authority_writes import AuthorityWrites
from leasehold.cache.cells import Cell
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
from leasehold.cache.model import ABSENT, Ack, Ask, Code, Drop, Hello, Release, Subscribe, Unsubscribe, Write


class AuthorityMachine(AuthorityWrites):
    """One term of office: `handle(now_ms, event) -> effects`."""

    # --- the door ---

    def handle(self, now_ms: int, event: Event) -> list[Effect]:
        """Take one event; what must follow is returned in order."""
        if not self.closed:
            self._dispatch(now_ms, event)
        effects, self._effects = self._effects, []
        return effects

    def next_wake_ms(self) -> int:
        """When a `Tick` is due at the latest."""
        due = self._swept_ms + 1_000
        if not self._term_settled:
            due = min(due, max(self.writes_from_ms, self._swept_ms))
        return min(due, self._wakes[0][0]) if self._wakes else due

    def _dispatch(self, now_ms: int, event: Event) -> None:
        match event:
            case Received(client, message):
                self._on_message(now_ms, client, message)
            case Loaded():
                self._on_loaded(now_ms, event)
            case LoadFailed(key, reason):
                self._on_load_failed(key, reason)
            case Stored(key, token):
                self._on_stored(now_ms, key, token)
            case StoreUnknown():
                self._on_store_unknown(now_ms, event)
            case StoreRefused(key, token):
                self._on_store_refused(key, token)
            case Tick():
                self._on_tick(now_ms)
            case Right(until_ms):
                self._right_until_ms = until_ms
            case Disconnected(client):
                self._on_disconnected(client)
            case Stop():
                self._on_stop(now_ms)

    def _on_message(self, now_ms: int, client: str, message: object) -> None:
        match message:
            case Ask():
                self._on_ask(now_ms, client, message)
            case Write():
                self._on_write(now_ms, client, message)
            case Ack(dropped, seq, hits):
                for index, (key, ticket) in enumerate(dropped):
                    self._on_ack(now_ms, client, key, ticket, seq, hits[index] if index < len(hits) else 0)
            case Hello():
                self._remind(client)
            case Release():
                self._on_release(now_ms, client)
            case Subscribe(seq, prefix):
                refusal = self._subscriptions.add(client, prefix)
                self._outcome(client, seq, Code.BAD_REQUEST if refusal else Code.OK, ABSENT, refusal)
            case Unsubscribe(seq, prefix):
                self._subscriptions.remove(client, prefix)
                self._outcome(client, seq, Code.OK)
            case _:
                ensure(False, "the cache authority knows every message", message)

    # --- time, presence, the end ---

    def _on_tick(self, now_ms: int) -> None:
        while self._wakes and self._wakes[0][0] <= now_ms:
            _, key = heappop(self._wakes)
            cell = self._cells.get(key)
            if cell is not None:
                self._expire(now_ms, cell)
                self._proceed(now_ms, cell)
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

    def _remind(self, client: str) -> None:
        """Back on a new connection: what it was told to drop may have been lost with the old one."""
        for cell in self._busy.values():
            if cell.pending is not None and client in cell.pending.unacked:
                self._send(client, Drop(((cell.key, cell.pending.ticket),)))

    def _on_disconnected(self, client: str) -> None:
        """Who is gone hears of no changes, and gets no lease that the next write would have to wait for."""
        self._subscriptions.forget(client)
        for cell in self._busy.values():
            cell.refills.pop(client, None)

    def _on_release(self, now_ms: int, client: str) -> None:
        self.table.release_holder(client)
        self._on_disconnected(client)
        for cell in list(self._busy.values()):
            if cell.pending is not None and client in cell.pending.unacked:
                cell.pending.unacked.discard(client)
                self._proceed(now_ms, cell)
        self._end_if_drained(now_ms)

    def _on_stop(self, now_ms: int) -> None:
        self.stopping = True
        for holder in self.table.holders():
            self._send(holder, Drop(()))
        self._end_if_drained(now_ms)

    def _end_if_drained(self, now_ms: int) -> None:
        if self.stopping and not self._busy and now_ms >= self.writes_from_ms and now_ms >= self.table.live_until_ms():
            self.closed = True
            self._effects.append(MarkClean())
