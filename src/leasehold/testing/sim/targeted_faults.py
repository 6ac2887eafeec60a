"""Faults that strike at a chosen moment, and long faults: pure chance meets them once in a thousand seeds.

They draw from a random generator of their own (`Random(f"ambush-{seed}")`), so that other seeds keep their events.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from leasehold.ha.effects import Role
from leasehold.testing.sim.storage import NAME as STORE

if TYPE_CHECKING:
    from leasehold.testing.sim.nodes import Run, SimNode
    from leasehold.testing.sim.world import World


class TargetedFault(Enum):
    SNAPSHOT = "a node dies soon after its snapshot was stored, and starts from it"
    BETWEEN_STEPS = "a node is stopped between two steps of long work"
    PROMOTION = "answers of the store are lost while a node is being promoted"
    ALL_DOWN = "all nodes are down, for a short or a long time, and come back one by one"
    LATE_STANDBY = "a standby is stopped, or cut off, for a long time; meanwhile the leader dies"
    LONG_OUTAGE = "the store is down for longer than a storage host's TTL"
    SINGLE_NODE = "one node is left alone for a long time"
    NO_WRITES = "no client writes for a while, but clients read"


def targeted_faults_for(seed: int) -> frozenset[TargetedFault]:
    """Half of all seeds have none; the others about three."""
    chance = random.Random(f"ambush-kinds-{seed}")
    if chance.random() < 0.5:
        return frozenset()
    return frozenset(kind for kind in TargetedFault if chance.random() < 0.35)


class TargetedFaults:
    """The simulator calls it at every moment at which one of these faults may strike."""

    def __init__(self, world: World, seed: int, kinds: frozenset[TargetedFault]) -> None:
        self._world, self._kinds = world, kinds
        self._chance = random.Random(f"ambush-{seed}")
        for kind, strike in (
            (TargetedFault.ALL_DOWN, self._all_down),
            (TargetedFault.LATE_STANDBY, self._late_standby),
            (TargetedFault.LONG_OUTAGE, self._long_outage),
            (TargetedFault.SINGLE_NODE, self._single_node),
            (TargetedFault.NO_WRITES, self._no_writes),
        ):
            if kind in kinds:
                self._later(strike)

    def _later(self, strike: Callable[[], None]) -> None:
        self._world.clock.after_ms(self._chance.uniform(2_000, 25_000), self._strike, strike)

    def _strike(self, strike: Callable[[], None]) -> None:
        if self._world.faults.on:
            strike()
            self._later(strike)

    def _hits(self, kind: TargetedFault, share: float) -> bool:
        return kind in self._kinds and self._world.faults.on and self._chance.random() < share

    def _log(self, who: str, sentence: str) -> None:
        self._world.clock.log(who, sentence)

    # --- at a chosen moment ---

    def snapshot_stored(self, node: SimNode) -> None:
        """Its file is complete: leases granted from now until it dies are in no file and in no record."""
        if self._hits(TargetedFault.SNAPSHOT, 0.4):
            self._world.clock.after_ms(self._chance.choice((0, 5, 100, 1_500)), self._begin_from_snapshot, node)

    def dies_with_its_snapshot(self, node: SimNode) -> bool:
        """Whether its process dies in the same moment in which its file is complete."""
        if not self._hits(TargetedFault.SNAPSHOT, 0.5):
            return False
        self._world.clock.after_ms(0, self._begin_from_snapshot, node)
        return True

    def _begin_from_snapshot(self, node: SimNode) -> None:
        alone = self._chance.random() < 0.5
        for one in self._world.nodes if alone else [node]:
            one.kill(with_guardian=self._chance.random() < 0.2)  # else its key is released now: leases are young
            late_ms = 0.0 if one is node else self._chance.uniform(3_000, 9_000)
            self._world.clock.after_ms(self._chance.uniform(1, 300) + late_ms, one.start)

    def worked(self, run: Run) -> None:
        """A node did one step of an event; there may be more steps."""
        if run.machine.busy and self._hits(TargetedFault.BETWEEN_STEPS, 0.1):
            run.node.pause()
            self._world.clock.after_ms(self._chance.choice((20, 700, 4_000, 15_000)), run.node.resume)

    def role_changed(self, run: Run, role: Role) -> None:
        if role in (Role.PROMOTING, Role.PRIMARY) and self._hits(TargetedFault.PROMOTION, 0.5):
            self._world.clock.after_ms(self._chance.choice((0.05, 1, 3, 8)), self._lose_answers, run.name)

    def _lose_answers(self, name: str) -> None:
        """The store executes the node's requests, but its answers are lost."""
        network = self._world.network
        self._log("fault", f"answers of the store to {name} are lost")
        network.cut.add((STORE, name))
        self._world.clock.after_ms(self._chance.choice((20, 400, 2_500, 7_000)), network.cut.discard, (STORE, name))

    # --- long faults ---

    def _all_down(self) -> None:
        world = self._world
        self._log("fault", "all nodes are down")
        away_ms = self._chance.choice((50, 1_000, 6_000, 30_000))
        nodes = list(world.nodes)
        self._chance.shuffle(nodes)
        for node in nodes:
            node.kill(with_guardian=True)
            world.clock.after_ms(away_ms, node.start)
            away_ms += self._chance.choice((0, 200, 8_000))
        self._restart_hosts(away_ms)

    def _restart_hosts(self, within_ms: float) -> None:
        for number in range(len(self._world.hosts)):
            if self._chance.random() < 0.4:
                delay_ms, down_ms = self._chance.uniform(0, within_ms), self._chance.uniform(100, within_ms + 3_000)
                self._world.clock.after_ms(delay_ms, self._world.restart_host, number, down_ms)

    def _late_standby(self) -> None:
        """A standby that receives events late must not take them for recent ones."""
        world, leader = self._world, self._world.leader()
        if leader is None:
            return
        away_ms = self._chance.choice((4_000, 12_000, 30_000))
        cut_off = self._chance.random() < 0.5
        for node in world.nodes:
            if node.name == leader.value.name:
                world.clock.after_ms(self._chance.uniform(500, 4_000), self._die, node, away_ms + 5_000)
            elif cut_off:
                self._log("fault", f"{node.name} and the store are cut off from each other")
                for way in ((STORE, node.name), (node.name, STORE)):
                    world.network.cut.add(way)
                    world.clock.after_ms(away_ms, world.network.cut.discard, way)
            else:
                node.pause()
                world.clock.after_ms(away_ms, node.resume)
        self._restart_hosts(away_ms)

    def _die(self, node: SimNode, down_ms: float) -> None:
        node.kill(with_guardian=True)
        self._world.clock.after_ms(down_ms, node.start)

    def _long_outage(self) -> None:
        world = self._world
        if not world.store.up:
            return
        self._log("fault", "the store is down for a long time")
        world.store.stop()
        away_ms = self._chance.choice((5_000, 14_000, 25_000))
        world.clock.after_ms(away_ms, self._store_back)
        self._restart_hosts(away_ms)
        leader = world.leader()
        if leader is not None and self._chance.random() < 0.4:
            node = world.nodes_by_name[leader.value.name]
            world.clock.after_ms(away_ms + self._chance.uniform(100, 12_000), self._die, node, 3_000)

    def _store_back(self) -> None:
        if not self._world.store.up:
            self._log("fault", "the store is back")
            self._world.store.start()

    def _single_node(self) -> None:
        stays = self._chance.choice(self._world.nodes)
        away_ms = self._chance.choice((8_000, 30_000))
        for node in self._world.nodes:
            if node is not stays:
                self._log(node.name, "is down for a long time")
                self._die(node, away_ms)

    def _no_writes(self) -> None:
        world = self._world
        world.pause_writes(not world.lull)
        if world.lull:
            self._log("world", "no client writes for a while")
            world.clock.after_ms(self._chance.uniform(1_000, 9_000), self._resume_writes)

    def _resume_writes(self) -> None:
        self._world.pause_writes(False)
