"""Clients, authorities, a store and the network between them, with the faults of one seed."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from leasehold.cache.model import Code, FromAuthority, FromClient
from leasehold.testing.cachesim.authority_process import AuthorityProcess, LeaderKey
from leasehold.testing.cachesim.client_process import ClientProcess, hint_of
from leasehold.testing.cachesim.rules import Rules
from leasehold.testing.cachesim.world import Process, SimStore, World
from leasehold.testing.checkers import Operation

CLIENTS = 16


class Simulation:
    """Sixteen clients, one or two authorities, one store, and the history of all answers."""

    think_ms = 25.0

    def __init__(self, world: World, rules: Rules) -> None:
        self.world = world
        self.rules = rules
        self.failed: dict[Code, int] = {}
        self.refills = 0
        self.history: list[tuple[bytes, Operation]] = []
        self.clients: dict[str, ClientProcess] = {}
        self._values = 0
        self.store, leader_key = SimStore(world, checks_tokens=rules.tokens), LeaderKey()
        self.authorities_count = 2 if world.faults.failover else 1
        self._authorities = [
            AuthorityProcess(world, i, self.store, leader_key, self) for i in range(self.authorities_count)
        ]
        self._processes = [ClientProcess(world, f"c{i}", self) for i in range(CLIENTS)]
        self._inject(world.faults.pause_every_ms / CLIENTS, self._pause_one)
        self._inject(world.faults.client_crash_every_ms / CLIENTS, lambda: world.chance.choice(self._processes).crash())
        self._inject(world.faults.authority_crash_every_ms, lambda: world.chance.choice(self._authorities).crash())

    def _inject(self, mean_ms: float, fault: Callable[[], None]) -> None:
        def again() -> None:
            fault()
            self._inject(mean_ms, fault)

        if mean_ms < 10**6:
            self.world.after_ms(self.world.every_about_ms(mean_ms), again)

    def _pause_one(self) -> None:
        processes: list[Process] = [*self._processes, *self._authorities]
        self.world.chance.choice(processes).pause(self.world.between_ms(self.world.faults.pause_ms))

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
        """The history, with the versions as hints about the order for the checker.

        The store knows the version of a write that was never answered.
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
