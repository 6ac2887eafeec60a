"""The caching clients of a simulation: a workload over the real machine, and a record of every answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.cache import client_events as c
from leasehold.cache.model import ABSENT, Code, FromAuthority, Version
from leasehold.cache.settings import ClientSettings
from leasehold.testing.cachesim.world import Process, World
from leasehold.testing.checkers import Operation

if TYPE_CHECKING:
    from leasehold.testing.cachesim.simulation import Simulation

KEYS = 50
HOT_TAIL = b"k%d" % (KEYS - 1)  # the last key gets the whole tail of the distribution
READ_TIMEOUT_MS = 3_000


class ClientProcess(Process):
    """One caching client with a workload: it records every answer, and when it arrived."""

    def __init__(self, world: World, name: str, sim: Simulation) -> None:
        super().__init__(world)
        self._name = name
        self._sim = sim
        self._settings = ClientSettings(
            drift_ppm=world.faults.drift_ppm if sim.rules.client_margin else 0,
            attempt_timeout_ms=max(100, world.faults.term_ms // 2),
            entries_max=KEYS // 2,
        )
        self._target = 0
        self._call_number = 0
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
        if chance.random() >= self.world.faults.write_share:
            others = [b"k%d" % chance.randrange(KEYS) for _ in range(3)] if chance.random() < 0.05 else []
            for each in sorted({key, *others}):  # the order of a set of bytes differs from process to process
                self._read(each)
            return
        if chance.random() < 0.5:  # most callers read first, so that the dropped copy was in use
            self._read(key, then_write=True)
        else:
            self._write(key)

    def _read(self, key: bytes, *, then_write: bool = False) -> None:
        call = self._call(key, "read", None)
        if then_write:
            self._will_write.add(call)
        self._feed(c.Get((key,), call, self.now_ms() + READ_TIMEOUT_MS))

    def _write(self, key: bytes) -> None:
        chance = self.world.chance
        mode, timeout_ms = chance.choice(self.world.faults.modes), self.world.faults.write_timeout_ms
        # Delete cold keys only: deletions write equal values, and the checker must try every order of them.
        deletes = len(key) > 2 and key != HOT_TAIL and chance.random() < 0.2
        value = None if deletes else self._sim.unique_value()
        if key in self._version_of and chance.random() < 0.3:
            version, seen = self._version_of[key]
            call = self._call(key, "cas", (seen, value))
            self._feed(c.Put(key, value, call, mode, timeout_ms, version))
        else:
            call = self._call(key, "write", value)
            self._feed(c.Put(key, value, call, mode, timeout_ms))

    def _call(self, key: bytes, what: str, argument: object) -> int:
        self._call_number += 1
        self._calls[self._call_number] = (key, what, argument, self.world.now_us)
        return self._call_number

    def receive(self, sender: int, message: FromAuthority) -> None:
        self._feed(c.FromServer([message]))

    def _feed(self, event: c.ClientEvent) -> None:
        effects = self.machine.handle(self.now_ms(), event)
        if self._sim.rules.checks_invariants:
            self.machine.check()
        for effect in effects:
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
            case c.Deliver(call, key, value, version):
                self._version_of[key] = (version, value)
                self._end(call, value)
                if call in self._will_write:
                    self._will_write.discard(call)
                    self._read(key)
                    self._write(key)
            case c.Done(call, version):
                self._end(call, True, version)
            case c.Fail(call, code, _, version):
                self._failed(call, code, version)

    def _failed(self, call: int, code: Code, version: Version) -> None:
        if code is Code.NOT_SERVING:
            self._target = (self._target + 1) % self._sim.authorities_count
        key, what, argument, called_us = self._calls.pop(call)
        if code is Code.CONFLICT:  # the answer names the current version, which is the same as a read of its value
            current = None if version == ABSENT else self._sim.store.written[version]
            self._sim.record(key, Operation(called_us, self.world.now_us, "read", None, current, self.identity))
            return
        if code is Code.UNKNOWN and what != "read":
            self._sim.record(key, Operation(called_us, None, what, argument, None, self.identity))
        self._sim.failed[code] = self._sim.failed.get(code, 0) + 1

    def _end(self, call: int, result: object, version: Version = ABSENT) -> None:
        key, what, argument, called_us = self._calls.pop(call)
        now_us, hint = self.world.now_us, hint_of(version)
        self._sim.record(key, Operation(called_us, now_us, what, argument, result, self.identity, hint))

    def finish(self) -> None:
        self._sim.refills += self.machine.refills
        for key, what, argument, called_us in self._calls.values():
            if what != "read":
                self._sim.record(key, Operation(called_us, None, what, argument, None, self.identity))


def hint_of(version: Version) -> float:
    return version.epoch * 1e6 + version.n
