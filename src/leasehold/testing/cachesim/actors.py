"""The processes of the simulation: thin shells over the real machines, as the real shells are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from leasehold.cache import client_events as c
from leasehold.cache import events as e
from leasehold.cache.authority_machine import AuthorityMachine
from leasehold.cache.client_machine import ClientMachine
from leasehold.cache.model import ABSENT, Code, FromAuthority, FromClient, Refill, Version
from leasehold.cache.settings import AuthoritySettings, ClientSettings
from leasehold.leases.arithmetic import holder_deadline_ms
from leasehold.testing.cachesim.world import US_PER_MS, Process, SimStore, World
from leasehold.testing.checkers import Operation

KEYS = 50
CLIENTS = 16
HOT_TAIL = b"k%d" % (KEYS - 1)  # where the tail of the distribution gathers
STORE_TIMEOUT_MS = 100
READ_TIMEOUT_MS = 3_000


class Rules:
    """Which machines play: the real ones, or one with a rule switched off."""

    authority: type[AuthorityMachine] = AuthorityMachine
    client: type[ClientMachine] = ClientMachine
    client_margin = True
    tokens = True


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
                    self._sim.to_client(client, self._index, Refill(((seq, item),)))
            case e.Load(key):
                machine = self.machine
                self.run_after_ms(
                    self.world.between_ms((1, 20)), lambda: self._loaded(key) if self.machine is machine else None
                )
            case e.Store():
                self._store_behind(effect)
            case e.Deposed():
                self.machine = None

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


class ClientProcess(Process):
    """One caching client with a workload: it records what it was told, and when."""

    def __init__(self, world: World, name: str, sim: Simulation) -> None:
        super().__init__(world)
        self._name = name
        self._sim = sim
        self._settings = ClientSettings(
            drift_ppm=world.weather.drift_ppm if sim.rules.client_margin else 0,
            attempt_timeout_ms=max(100, world.weather.term_ms // 2),
            entries_max=KEYS // 2,
        )
        self._target = 0
        self._waiter = 0
        self._calls: dict[int, tuple[bytes, str, Any, int]] = {}
        self._will_write: set[int] = set()  # reads after which the same key is read again and written
        self._version_of: dict[bytes, tuple[Version, bytes | None]] = {}
        self._start()

    def _start(self) -> None:
        self.identity = f"{self._name}#{self.incarnation}"
        self.machine = self._sim.rules.client(self._settings)
        self._sim.clients[self.identity] = self
        self._next()

    def crash(self) -> None:
        """A write in flight has an unknown outcome; a new process has a new identity."""
        for key, what, argument, called_us in self._calls.values():
            if what != "read":
                self._sim.record(key, Operation(called_us, None, what, argument, None, self.identity))
        self._calls.clear()
        self._will_write.clear()
        self._sim.refills += self.machine.refills
        self.incarnation += 1
        self._start()

    def _next(self) -> None:
        self.run_after_ms(self.world.every_about_ms(self._sim.think_ms), self._act)

    def _act(self) -> None:
        self._next()
        if len(self._calls) > 6:
            return
        chance = self.world.chance
        key = b"k%d" % min(KEYS - 1, int(chance.paretovariate(0.5)) - 1)
        if chance.random() >= self.world.weather.write_share:
            others = [b"k%d" % chance.randrange(KEYS) for _ in range(3)] if chance.random() < 0.05 else []
            for each in sorted({key, *others}):  # sets of bytes have another order in every process
                self._read(each)
            return
        if chance.random() < 0.5:  # look before you write, as most do: so the copy that is dropped was in use
            self._read(key, then_write=True)
        else:
            self._write(key)

    def _read(self, key: bytes, *, then_write: bool = False) -> None:
        waiter = self._call(key, "read", None)
        if then_write:
            self._will_write.add(waiter)
        self._feed(c.Get((key,), waiter, self.now_ms() + READ_TIMEOUT_MS))

    def _write(self, key: bytes) -> None:
        chance = self.world.chance
        mode, timeout_ms = chance.choice(self.world.weather.modes), self.world.weather.write_timeout_ms
        # Deletions only of cold keys: all write the same value, and the checker must try their orders.
        deletes = len(key) > 2 and key != HOT_TAIL and chance.random() < 0.2
        value = None if deletes else self._sim.unique_value()
        if key in self._version_of and chance.random() < 0.3:
            version, seen = self._version_of[key]
            waiter = self._call(key, "cas", (seen, value))
            self._feed(c.Put(key, value, waiter, mode, timeout_ms, version))
        else:
            waiter = self._call(key, "write", value)
            self._feed(c.Put(key, value, waiter, mode, timeout_ms))

    def _call(self, key: bytes, what: str, argument: object) -> int:
        self._waiter += 1
        self._calls[self._waiter] = (key, what, argument, self.world.now_us)
        return self._waiter

    def receive(self, sender: int, message: FromAuthority) -> None:
        self._feed(c.FromServer([message]))

    def _feed(self, event: c.ClientEvent) -> None:
        for effect in self.machine.handle(self.now_ms(), event):
            self._do(effect)
        wake_ms = self.machine.next_wake_ms()
        if wake_ms is not None:
            self.wake_at(self.real_us(wake_ms))

    def tick(self) -> None:
        wake_ms = self.machine.next_wake_ms()
        if wake_ms is not None and self.now_ms() >= wake_ms:
            self._target = (self._target + 1) % self._sim.authorities_count
            self._feed(c.Tick())
        elif wake_ms is not None:
            self.wake_at(self.real_us(wake_ms))

    def _do(self, effect: c.ClientEffect) -> None:
        match effect:
            case c.Transmit(message):
                self._sim.to_authority(self._target, self.identity, message)
            case c.Deliver(waiter, key, value, version):
                self._version_of[key] = (version, value)
                self._end(waiter, value)
                if waiter in self._will_write:
                    self._will_write.discard(waiter)
                    self._read(key)
                    self._write(key)
            case c.Done(waiter, version):
                self._end(waiter, True, version)
            case c.Fail(waiter, code, _, version):
                self._failed(waiter, code, version)

    def _failed(self, waiter: int, code: Code, version: Version) -> None:
        if code is Code.NOT_SERVING:
            self._target = (self._target + 1) % self._sim.authorities_count
        key, what, argument, called_us = self._calls.pop(waiter)
        if code is Code.CONFLICT:  # the version that stood was named: as good as a read of its value
            stood = None if version == ABSENT else self._sim.store.written[version]
            self._sim.record(key, Operation(called_us, self.world.now_us, "read", None, stood, self.identity))
            return
        if code is Code.UNKNOWN and what != "read":
            self._sim.record(key, Operation(called_us, None, what, argument, None, self.identity))
        self._sim.failed[code] = self._sim.failed.get(code, 0) + 1

    def _end(self, waiter: int, result: object, version: Version = ABSENT) -> None:
        key, what, argument, called_us = self._calls.pop(waiter)
        now_us, hint = self.world.now_us, hint_of(version)
        self._sim.record(key, Operation(called_us, now_us, what, argument, result, self.identity, hint))

    def finish(self) -> None:
        self._sim.refills += self.machine.refills
        for key, what, argument, called_us in self._calls.values():
            if what != "read":
                self._sim.record(key, Operation(called_us, None, what, argument, None, self.identity))


class Simulation:
    """Sixteen clients, one or two authorities, one store, and the history of what everybody was told."""

    think_ms = 25.0

    def __init__(self, world: World, rules: Rules) -> None:
        self.world = world
        self.rules = rules
        self.failed: dict[Code, int] = {}
        self.refills = 0
        self.history: list[tuple[bytes, Operation]] = []
        self.clients: dict[str, ClientProcess] = {}
        self._values = 0
        self.store, office = SimStore(world, checks_tokens=rules.tokens), Office()
        self.authorities_count = 2 if world.weather.failover else 1
        self._authorities = [
            AuthorityProcess(world, i, self.store, office, self) for i in range(self.authorities_count)
        ]
        self._processes = [ClientProcess(world, f"c{i}", self) for i in range(CLIENTS)]
        self._trouble(world.weather.pause_every_ms / CLIENTS, self._pause_one)
        self._trouble(
            world.weather.client_crash_every_ms / CLIENTS, lambda: world.chance.choice(self._processes).crash()
        )
        self._trouble(world.weather.authority_crash_every_ms, lambda: world.chance.choice(self._authorities).crash())

    def _trouble(self, mean_ms: float, strike: Callable[[], None]) -> None:
        def again() -> None:
            strike()
            self._trouble(mean_ms, strike)

        if mean_ms < 10**6:
            self.world.after_ms(self.world.every_about_ms(mean_ms), again)

    def _pause_one(self) -> None:
        everybody: list[Process] = [*self._processes, *self._authorities]
        self.world.chance.choice(everybody).pause(self.world.between_ms(self.world.weather.pause_ms))

    def to_authority(self, index: int, client: str, message: FromClient) -> None:
        delay_ms = self.world.network_delay_ms()
        if delay_ms is not None:
            authority = self._authorities[index]
            # A message outlives the incarnation it was meant for: the next one may get it.
            self.world.after_ms(delay_ms, lambda: authority.reach(lambda: authority.receive(client, message)))

    def to_client(self, client: str, sender: int, message: FromAuthority) -> None:
        delay_ms = self.world.network_delay_ms()
        if delay_ms is not None:
            process = self.clients[client]

            def arrive() -> None:
                if process.identity == client:
                    process.reach(lambda: process.receive(sender, message))

            self.world.after_ms(delay_ms, arrive)

    def unique_value(self) -> bytes:
        self._values += 1
        return b"v%d" % self._values

    def record(self, key: bytes, operation: Operation) -> None:
        self.history.append((key, operation))

    def finish(self) -> list[tuple[bytes, Operation]]:
        """The history, with what the versions say about the order as a hint for the checker.

        The place of a write whose writer never heard of it is known to the store.
        """
        for process in self._processes:
            process.finish()
        hints = {value: hint_of(version) for version, value in self.store.written.items() if value is not None}

        def hinted(operation: Operation) -> Operation:
            if operation.returned is not None or operation.what == "read":
                return operation
            value = operation.argument if operation.what == "write" else operation.argument[1]
            return structs.replace(operation, hint=hints.get(value, float("inf")))

        return [(key, hinted(operation)) for key, operation in self.history]


def hint_of(version: Version) -> float:
    return version.epoch * 1e6 + version.n
