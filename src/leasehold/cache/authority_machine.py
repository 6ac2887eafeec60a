"""The authority decides: which client may keep which value for how long, and when a write takes effect. Pure.

The rules, each of which prevents a stale read that has been seen (schedules 6, 9, 22, H13):

- A write takes effect only when no lease on the old value can be valid. The latest end of those leases is fixed when
  the write begins, so readers cannot starve it.
- While a `callback` write is pending, reads get the old value *without* a lease. While a `wait` write is pending, they
  get a lease that ends with those already granted.
- The writer's own lease counts as dropped only if it was requested before the write. A write that arrives late must
  not cancel a lease that its writer requested afterwards.
- A write may request a lease on the value it writes, and an acknowledgement may request the new value. Both are
  answered when no write of that key is pending any more. Earlier they would get a lease on the old value.
- A write begins only when the key's value is known, and nothing is loaded while it is pending: load, decision and
  grant are one step.
- A store whose outcome is unknown is repeated under a newer token until one is confirmed. Until then no lease is
  granted.
- After a start nothing is written for the longest lease that the predecessor may have granted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from leasehold.cache.authority_alarms import Alarms
from leasehold.cache.authority_effects import Effects
from leasehold.cache.authority_grants import Grants
from leasehold.cache.authority_keys import Keys
from leasehold.cache.authority_reads import Reads
from leasehold.cache.authority_term import AuthorityTerm
from leasehold.cache.authority_writes import Writes
from leasehold.cache.events import (
    Disconnected,
    Effect,
    Event,
    LeaderLease,
    Loaded,
    LoadFailed,
    Received,
    RecordCleanStop,
    SettleTerm,
    Stop,
    Stored,
    StoreRefused,
    StoreUnknown,
    Tick,
)
from leasehold.cache.key_state import FOREVER_MS
from leasehold.cache.model import (
    ABSENT,
    Ack,
    Ask,
    Code,
    Drop,
    Hello,
    Outcome,
    Release,
    Subscribe,
    Unsubscribe,
    Write,
)
from leasehold.cache.settings import AuthoritySettings
from leasehold.cache.subscriptions import Subscriptions

_SWEEP_EVERY_MS: Final = 1_000

OnEvent = Callable[[int, Any], None]
OnMessage = Callable[[int, str, Any], None]


class PartTypes(Struct, frozen=True):
    """The classes of the parts that hold the rules. The simulation replaces one to switch a rule off."""

    term: type[AuthorityTerm] = AuthorityTerm
    grants: type[Grants] = Grants
    writes: type[Writes] = Writes


REAL_PARTS: Final = PartTypes()


class AuthorityMachine:
    """One term of an authority: `handle(now_ms, event) -> effects`. A restart or a failover makes a new one.

    `term_before_ms` is the longest lease that a predecessor may have granted, 0 if there was none or if it stopped
    cleanly. With `keeps_all` the machine's memory is the only copy of the values.
    """

    def __init__(
        self,
        now_ms: int,
        settings: AuthoritySettings,
        epoch: int,
        *,
        term_before_ms: int = 0,
        keeps_all: bool = False,
        serve_until_ms: int = FOREVER_MS,
        parts: PartTypes = REAL_PARTS,
    ) -> None:
        self.settings = settings
        self.term = parts.term(now_ms, epoch, term_before_ms, settings.drift_ppm, serve_until_ms)
        self.effects = Effects()
        self.alarms = Alarms()
        self.subscriptions = Subscriptions()
        self.keys = Keys(settings.entries_max, self.effects, keeps_all=keeps_all)
        self.grants = parts.grants(settings, self.term)
        self.reads = Reads(self.term, self.keys, self.grants, self.effects)
        self.writes = parts.writes(self.term, self.keys, self.grants, self.alarms, self.subscriptions, self.effects)
        self._swept_ms = now_ms
        # Tables of handlers: a chain of `case`s costs more than most decisions.
        self._by_event: dict[type, OnEvent] = {
            Received: self._on_received,
            Loaded: self._on_loaded,
            LoadFailed: self._on_load_failed,
            Stored: self.writes.stored,
            StoreUnknown: self.writes.store_unknown,
            StoreRefused: self.writes.store_refused,
            Tick: self._on_tick,
            LeaderLease: self._on_leader_lease,
            Disconnected: self._on_disconnected,
            Stop: self._on_stop,
        }
        self._by_message: dict[type, OnMessage] = {
            Ask: self.reads.ask,
            Write: self.writes.submit,
            Ack: self.writes.acknowledge,
            Hello: self._on_hello,
            Release: self._on_release,
            Subscribe: self._on_subscribe,
            Unsubscribe: self._on_unsubscribe,
        }

    # --- entry points ---

    def handle(self, now_ms: int, event: Event) -> list[Effect]:
        """Handle one event and return what must be done, in order."""
        if not self.term.closed:
            self._by_event[type(event)](now_ms, event)
        return self.effects.take()

    def next_wake_ms(self) -> int:
        """When a `Tick` is due at the latest."""
        due_ms = self._swept_ms + _SWEEP_EVERY_MS
        if not self.term.lease_bound_settled:
            due_ms = min(due_ms, max(self.term.writes_from_ms, self._swept_ms))
        return min(due_ms, self.alarms.next_ms())

    def check(self, now_ms: int) -> None:
        """Check the invariants of every part; call it between two events."""
        if self.term.closed:
            return
        self.term.check(now_ms)
        self.effects.check()
        self.keys.check()
        self.alarms.check(now_ms, self.keys.all())
        self.grants.check(self.writes.pending())
        self.reads.check()
        self.writes.check()
        self.subscriptions.check()

    # --- messages of clients ---

    def _on_received(self, now_ms: int, event: Received) -> None:
        client = event.client
        for message in event.messages:
            if self.term.closed:
                return  # the previous message closed this term
            self._by_message[type(message)](now_ms, client, message)

    def _on_subscribe(self, now_ms: int, client: str, message: Subscribe) -> None:
        objection = self.subscriptions.add(client, message.prefix)
        code = Code.OK if objection is None else Code.BAD_REQUEST
        self.effects.send(client, Outcome(message.seq, code, ABSENT, objection or ""))

    def _on_unsubscribe(self, now_ms: int, client: str, message: Unsubscribe) -> None:
        self.subscriptions.remove(client, message.prefix)
        self.effects.send(client, Outcome(message.seq, Code.OK))

    def _on_hello(self, now_ms: int, client: str, _hello: Hello) -> None:
        self.writes.remind(client)

    def _on_release(self, now_ms: int, client: str, _release: Release) -> None:
        self.grants.table.release_holder(client)
        self._forget(client)
        self.writes.release(now_ms, client)
        self._close_if_drained(now_ms)

    def _on_disconnected(self, now_ms: int, event: Disconnected) -> None:
        self._forget(event.client)

    def _forget(self, client: str) -> None:
        self.subscriptions.forget(client)
        self.writes.forget_wishes(client)

    # --- answers of the store ---

    def _on_loaded(self, now_ms: int, event: Loaded) -> None:
        state = self.keys.loading(event.key)
        if state is None:
            return
        without_token = event.value is not None and event.version == ABSENT
        state.finish_load(event.value, self.term.next_version() if without_token else event.version)
        self.writes.advance(now_ms, state)  # first, or a queued write would wait for the leases granted here
        self.reads.answer_loaded(now_ms, state)

    def _on_load_failed(self, now_ms: int, event: LoadFailed) -> None:
        state = self.keys.loading(event.key)
        if state is not None:
            self.keys.forget(event.key)
            self.reads.fail_load(state)
            self.writes.fail_load(state, event.reason)

    # --- time, and the end of the term ---

    def _on_leader_lease(self, now_ms: int, event: LeaderLease) -> None:
        self.term.extend(event.until_ms)

    def _on_tick(self, now_ms: int, _event: Tick) -> None:
        while (rung := self.alarms.pop_due(now_ms)) is not None:
            at_ms, key = rung
            state = self.keys.get(key)
            if state is not None and state.clear_alarm(at_ms):
                self.writes.on_alarm(now_ms, state)
        if now_ms - self._swept_ms >= _SWEEP_EVERY_MS:
            self._swept_ms = now_ms
            self.grants.table.sweep(now_ms)
        if not self.term.lease_bound_settled and now_ms >= self.term.writes_from_ms:
            self.term.settle_lease_bound()
            self.effects.add(SettleTerm())
        self._close_if_drained(now_ms)

    def _on_stop(self, now_ms: int, _event: Stop) -> None:
        self.term.stop()
        for holder in self.grants.table.holders():
            self.effects.send(holder, Drop(()))
        self._close_if_drained(now_ms)

    def _close_if_drained(self, now_ms: int) -> None:
        """A stopping term closes when no write is pending and no lease is out, not even of a predecessor."""
        if not self.term.stopping or self.writes.pending():
            return
        if now_ms >= self.term.writes_from_ms and now_ms >= self.grants.table.live_until_ms():
            self.term.close()
            self.effects.add(RecordCleanStop())
