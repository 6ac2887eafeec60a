"""The candidates for the authority in a simulation: a thin shell over the real machine, as the real shell is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leasehold.cache import events as e
from leasehold.cache.authority_machine import AuthorityMachine
from leasehold.cache.model import FromClient, Refill
from leasehold.cache.settings import AuthoritySettings
from leasehold.leases.arithmetic import holder_deadline_ms
from leasehold.testing.cachesim.weather import AT_ONCE
from leasehold.testing.cachesim.world import US_PER_MS, Process, SimStore, World

if TYPE_CHECKING:
    from leasehold.testing.cachesim.simulation import Simulation

STORE_TIMEOUT_MS = 100


def void(_: object) -> None:
    """What nobody waits for."""


class Office:
    """Who is in office, by a lease of its own (what an election over a coordination store gives)."""

    def __init__(self) -> None:
        self.holder: tuple[int, int] | None = None
        self.expires_us = 0


class AuthorityProcess(Process):
    """One candidate. Alone it is always in office; with failover it campaigns and renews."""

    def __init__(self, world: World, index: int, store: SimStore, office: Office, sim: Simulation) -> None:
        super().__init__(world)
        self._index = index
        self._store = store
        self._office = office
        self._sim = sim
        self.machine: AuthorityMachine | None = None
        self._settings = AuthoritySettings(
            term_ms=world.weather.term_ms,
            drift_ppm=world.weather.drift_ppm,
            holders_per_key_max=world.weather.holders_per_key_max,
            entries_max=world.weather.authority_entries_max,
        )
        self._campaign()

    def crash(self) -> None:
        self.incarnation += 1
        self.machine = None
        down_ms = self.world.between_ms(self.world.weather.authority_down_ms)
        self.run_after_ms(down_ms, self._campaign)

    def receive(self, client: str, message: FromClient) -> None:
        if self.machine is not None:
            self.feed(e.Received(client, [message]))

    def feed(self, event: e.Event) -> None:
        machine = self.machine
        if machine is None:
            return
        for effect in machine.handle(self.now_ms(), event):
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
            case e.Refilled(asked, item):
                for client, seq in asked.items():
                    self._send_held(client, Refill(((seq, item),)))
            case e.Load(key):
                machine = self.machine
                self.run_after_ms(
                    self.world.between_ms((1, 20)), lambda: self._loaded(key) if self.machine is machine else None
                )
            case e.Store():
                self._store_behind(effect)
            case e.Deposed():
                self.machine = None

    def _send_held(self, client: str, refill: Refill) -> None:
        """Nobody waits for a refill, so it may be held back on its way; what is said meanwhile overtakes it."""
        if self.world.weather.refill_held_ms == AT_ONCE:
            self._sim.to_client(client, self._index, refill)
        else:
            held_ms = self.world.between_ms(self.world.weather.refill_held_ms)
            self.world.after_ms(held_ms, lambda: self._sim.to_client(client, self._index, refill))

    def _loaded(self, key: bytes) -> None:
        """Read, and hear of it a little later: the store may have changed in between."""
        value, version = self._store.load(key)
        self.run_after_ms(self.world.between_ms((1, 20)), self._told(e.Loaded(key, value, version)))

    def _told(self, event: e.Event) -> Callable[[], None]:
        """An answer for the machine that asked: a later term of office must not hear of it."""
        machine = self.machine

        def tell() -> None:
            if self.machine is machine:
                self.feed(event)

        return tell

    def _store_behind(self, effect: e.Store) -> None:
        chance = self.world.chance
        key, value, token = effect.key, effect.value, effect.token
        if chance.random() < self.world.weather.store_unknown:
            if chance.random() < 0.7:  # it lands after all, whoever is in office by then
                late_ms = self.world.between_ms(self.world.weather.store_late_ms)
                self.world.after_ms(late_ms, lambda: void(self._store.store(key, value, token)))
            self.run_after_ms(STORE_TIMEOUT_MS, self._told(e.StoreUnknown(key, token, "no answer")))
            return
        born = self.incarnation
        taken, refused = self._told(e.Stored(key, token)), self._told(e.StoreRefused(key, token))

        def landed() -> None:
            answer = taken if self._store.store(key, value, token) else refused
            if self.incarnation == born:
                self.run_after_ms(chance.uniform(1, 5), answer)

        self.world.after_ms(chance.uniform(1, 10), landed)

    # --- office ---

    def _campaign(self) -> None:
        sent_ms = self.now_ms()
        ttl_ms = self.world.weather.office_ttl_ms
        if not self.world.weather.failover:
            if self.machine is None:
                self._take_office(2**62)
            return
        born, delay_ms = self.incarnation, self.world.between_ms((1, 10))
        self.world.after_ms(delay_ms, lambda: self._ballot(born, sent_ms))
        self.run_after_ms(ttl_ms / 4, self._campaign)

    def _ballot(self, born: int, sent_ms: int) -> None:
        """At the coordination store: the office goes to whoever asks once it is free."""
        office, me = self._office, (self._index, born)
        ttl_ms = self.world.weather.office_ttl_ms
        free = office.holder is None or self.world.now_us >= office.expires_us
        if office.holder != me and not free:
            return
        until_ms = holder_deadline_ms(sent_ms, ttl_ms, self.world.weather.drift_ppm)
        slowest = 1 + self.world.weather.drift_ppm / 1_000_000
        first = office.holder != me or free
        if first and office.holder == me:
            office.holder = None  # expired: it must take office anew, with a new epoch
        office.holder = me
        office.expires_us = self.world.now_us + round(ttl_ms * slowest * US_PER_MS)
        if self.incarnation != born:
            return
        if first:
            self.run_after_ms(self.world.between_ms((1, 10)), lambda: self._take_office(until_ms))
        else:
            self.run_after_ms(self.world.between_ms((1, 10)), lambda: self.feed(e.Right(until_ms)))

    def _take_office(self, until_ms: int) -> None:
        if self.now_ms() >= until_ms:
            return  # stopped on the way: the office may be somebody else's
        epoch, before_ms = self._store.open(self.world.weather.term_ms)
        self.machine = self._sim.rules.authority(
            self.now_ms(), self._settings, epoch, term_before_ms=before_ms, right_until_ms=until_ms
        )
        self.feed(e.Tick())
