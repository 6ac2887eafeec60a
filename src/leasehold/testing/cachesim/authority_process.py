"""The authorities of a simulation: a thin shell over the real machine, like the real shell."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from leasehold.cache import events as e
from leasehold.cache.authority_machine import AuthorityMachine
from leasehold.cache.model import FromClient, Refill
from leasehold.cache.settings import AuthoritySettings
from leasehold.leases.arithmetic import holder_deadline_ms
from leasehold.testing.cachesim.faults import IMMEDIATELY
from leasehold.testing.cachesim.world import US_PER_MS, Process, SimStore, World

if TYPE_CHECKING:
    from leasehold.testing.cachesim.simulation import Simulation

STORE_TIMEOUT_MS = 100
CHECK_EVERY: Final = 8  # events: the invariants are checked after each of these


class LeaderKey:
    """The leader key of an election, with its lease: which authority holds it, and until when."""

    def __init__(self) -> None:
        self.holder: tuple[int, int] | None = None
        self.expires_us = 0

    def free(self, now_us: int) -> bool:
        return self.holder is None or now_us >= self.expires_us

    def take(self, holder: tuple[int, int], expires_us: int) -> None:
        self.holder = holder
        self.expires_us = expires_us


class AuthorityProcess(Process):
    """One candidate. Without failover it always serves; with failover it campaigns and renews its leader lease."""

    def __init__(self, world: World, index: int, store: SimStore, leader_key: LeaderKey, sim: Simulation) -> None:
        super().__init__(world)
        self._index = index
        self._store = store
        self._leader_key = leader_key
        self._sim = sim
        self._events = 0
        self.machine: AuthorityMachine | None = None
        self._settings = AuthoritySettings(
            term_ms=world.faults.term_ms,
            drift_ppm=world.faults.drift_ppm,
            holders_per_key_max=world.faults.holders_per_key_max,
            entries_max=world.faults.authority_entries_max,
        )
        self._campaign()

    def crash(self) -> None:
        self.incarnation += 1
        self.machine = None
        down_ms = self.world.between_ms(self.world.faults.authority_down_ms)
        self.run_after_ms(down_ms, self._campaign)

    def receive(self, client: str, message: FromClient) -> None:
        if self.machine is not None:
            self.feed(e.Received(client, [message]))

    def feed(self, event: e.Event) -> None:
        machine = self.machine
        if machine is None:
            return
        now_ms = self.now_ms()
        effects = machine.handle(now_ms, event)
        self._events += 1
        if self._sim.rules.checks_invariants and self._events % CHECK_EVERY == 0:
            machine.check(now_ms)
        for effect in effects:
            self._do(effect)
        self.wake_at(self.real_us(machine.next_wake_ms()))

    def tick(self) -> None:
        machine = self.machine
        if machine is not None and self.now_ms() >= machine.next_wake_ms():
            self.feed(e.Tick())
        elif machine is not None:
            self.wake_at(self.real_us(machine.next_wake_ms()))

    def _do(self, effect: e.Effect) -> None:
        match effect:
            case e.Send(client, message):
                self._sim.to_client(client, self._index, message)
            case e.CallBack(holders, drop):
                for holder in holders:
                    self._sim.to_client(holder, self._index, drop)
            case e.Refilled(requests, item):
                for client, seq in requests.items():
                    self._send_refill(client, Refill(((seq, item),)))
            case e.Load(key):
                machine = self.machine
                self.run_after_ms(
                    self.world.between_ms((1, 20)), lambda: self._load(key) if self.machine is machine else None
                )
            case e.Store():
                self._write_to_store(effect)
            case e.Deposed():
                self.machine = None

    def _send_refill(self, client: str, refill: Refill) -> None:
        """No client waits for a refill, so it may be delayed, and later messages may overtake it."""
        if self.world.faults.refill_delay_ms == IMMEDIATELY:
            self._sim.to_client(client, self._index, refill)
        else:
            delay_ms = self.world.between_ms(self.world.faults.refill_delay_ms)
            self.world.after_ms(delay_ms, lambda: self._sim.to_client(client, self._index, refill))

    def _load(self, key: bytes) -> None:
        """Read now and deliver the answer a little later: the store may change in between."""
        value, version = self._store.load(key)
        self.run_after_ms(self.world.between_ms((1, 20)), self._delivery(e.Loaded(key, value, version)))

    def _delivery(self, event: e.Event) -> Callable[[], None]:
        """Deliver an answer to the machine that requested it, and never to one of a later term."""
        machine = self.machine

        def deliver() -> None:
            if self.machine is machine:
                self.feed(event)

        return deliver

    def _write_to_store(self, effect: e.Store) -> None:
        chance = self.world.chance
        key, value, token = effect.key, effect.value, effect.token
        if chance.random() < self.world.faults.store_unknown:
            if chance.random() < 0.7:  # the write arrives late, perhaps in another authority's term
                late_ms = self.world.between_ms(self.world.faults.store_late_ms)
                self.world.after_ms(late_ms, lambda: self._store.store_unanswered(key, value, token))
            self.run_after_ms(STORE_TIMEOUT_MS, self._delivery(e.StoreUnknown(key, token, "no answer")))
            return
        born = self.incarnation
        taken, refused = self._delivery(e.Stored(key, token)), self._delivery(e.StoreRefused(key, token))

        def arrive() -> None:
            answer = taken if self._store.store(key, value, token) else refused
            if self.incarnation == born:
                self.run_after_ms(chance.uniform(1, 5), answer)

        self.world.after_ms(chance.uniform(1, 10), arrive)

    # --- the election ---

    def _campaign(self) -> None:
        sent_ms = self.now_ms()
        ttl_ms = self.world.faults.leader_ttl_ms
        if not self.world.faults.failover:
            if self.machine is None:
                self._begin_term(2**62)
            return
        born, delay_ms = self.incarnation, self.world.between_ms((1, 10))
        self.world.after_ms(delay_ms, lambda: self._request_lease(born, sent_ms))
        self.run_after_ms(ttl_ms / 4, self._campaign)

    def _request_lease(self, born: int, sent_ms: int) -> None:
        """At the coordination store: the first request after the leader key is free gets it."""
        key, me = self._leader_key, (self._index, born)
        ttl_ms = self.world.faults.leader_ttl_ms
        free = key.free(self.world.now_us)
        if key.holder != me and not free:
            return
        until_ms = holder_deadline_ms(sent_ms, ttl_ms, self.world.faults.drift_ppm)
        slowest = 1 + self.world.faults.drift_ppm / 1_000_000
        first = key.holder != me or free  # after its lease expired it must begin a new term, with a new epoch
        key.take(me, self.world.now_us + round(ttl_ms * slowest * US_PER_MS))
        if self.incarnation != born:
            return
        if first:
            self.run_after_ms(self.world.between_ms((1, 10)), lambda: self._begin_term(until_ms))
        else:
            self.run_after_ms(self.world.between_ms((1, 10)), lambda: self.feed(e.LeaderLease(until_ms)))

    def _begin_term(self, until_ms: int) -> None:
        if self.now_ms() >= until_ms:
            return  # paused on the way: another authority may hold the leader lease
        epoch, before_ms = self._store.open(self.world.faults.term_ms)
        self.machine = AuthorityMachine(
            self.now_ms(),
            self._settings,
            epoch,
            term_before_ms=before_ms,
            serve_until_ms=until_ms,
            parts=self._sim.rules.authority,
        )
        self.feed(e.Tick())
