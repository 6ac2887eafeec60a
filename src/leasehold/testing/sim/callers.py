"""The common part of all clients of a simulated world: their calls, and the memory that they use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from leasehold.index.index import Index
from leasehold.index.model import Object, Replica
from leasehold.testing.sim.calls import Answer
from leasehold.testing.sim.oracle import Block, blocks_of

if TYPE_CHECKING:
    from leasehold.testing.sim.world import World

TENANT = b"default"
CALL_MS = 4_000
RETRY_MS = 60
Execute = Callable[[Index, int], Answer | None]
"""`(index, leader time)`; None: the leader waits for a ping of the memory's owner."""


class Caller:
    """A client: calls the node that leads, and tries the next one when a node refuses."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.alive = True
        self.guess = world.clock.random.randrange(len(world.nodes))

    def call(
        self,
        what: str,
        execute: Execute,
        then: Callable[[Any], None],
        leaving: Callable[[Answer], None] | None = None,
    ) -> None:
        """Calls `then(value)`; None means: no answer, outcome unknown."""
        _Call(self, what, execute, then, leaving).go()


class _Call:
    def __init__(
        self,
        caller: Caller,
        what: str,
        execute: Execute,
        then: Callable[[Any], None],
        leaving: Callable[[Answer], None] | None,
    ) -> None:
        self.caller, self.what = caller, what
        self._execute, self._then, self._leaving = execute, then, leaving
        self.open = True
        self._sent_to = 0

    def go(self) -> None:
        world = self.caller.world
        world.clock.after_ms(CALL_MS, self._end, None)
        self._send()

    def _send(self) -> None:
        caller = self.caller
        if not self.open or not caller.alive:
            return
        world = caller.world
        node = world.nodes[caller.guess % len(world.nodes)]
        self._sent_to = caller.guess
        if node.run is None:
            self.refused_later()
            return
        if world.network.connected(caller.name, node.name):
            world.clock.after_ms(world.network.latency_ms(caller.name, node.name), node.run.serve, self)

    def refused_later(self) -> None:
        self.caller.world.clock.after_ms(RETRY_MS, self.refused)

    def execute(self, index: Index, leader_ms: int) -> Answer | None:
        return self._execute(index, leader_ms)

    def leaving(self, answer: Answer) -> None:
        if self._leaving is not None:
            self._leaving(answer)

    def finish(self, value: Any) -> None:
        self._end(value)

    def refused(self) -> None:
        """The node is not the primary and did nothing: try the next node."""
        if self.open and self.caller.alive:
            if self.caller.guess == self._sent_to:
                self.caller.guess += 1
            self.caller.world.clock.after_ms(RETRY_MS, self._send)

    def _end(self, value: Any) -> None:
        if self.open:
            self.open = False
            if value is None:
                self.caller.guess += 1
            if self.caller.alive:
                self._then(value)


def lenders_of(found: Object) -> set[bytes]:
    """The segments that hold an object's memory."""
    return {replica.segment.spec.id for replica in found.replicas}


def are_live(world: World, lenders: set[bytes]) -> bool:
    """Whether the processes that lend this memory are still running: otherwise nothing is promised."""
    return lenders <= {host.spec.id for host in world.hosts if host.alive}


def blocks_of_object(found: Object) -> tuple[Block, ...]:
    """Every block of every replica."""
    return blocks_of_replicas(found.replicas, found.size)


def blocks_of_replicas(replicas: Iterable[Replica], size: int) -> tuple[Block, ...]:
    return tuple(
        block for replica in replicas for block in blocks_of(replica.segment.spec.endpoint, replica.address, size)
    )
