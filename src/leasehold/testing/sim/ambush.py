"""Misfortunes that wait for their moment, and long ones: what blind chance meets once in a thousand seeds.

All of it from a chance of its own (`Random(f"ambush-{seed}")`), so that a seed without any keeps its story.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from leasehold.ha.effects import Role
from leasehold.testing.sim.storage import NAME as STORE

if TYPE_CHECKING:
    from leasehold.testing.sim.nodes import Run, SimNode
    from leasehold.testing.sim.world import World

KINDS = (
    "snapshot",  # a node dies soon after its snapshot was stored, and begins from it
    "pieces",  # a node is stopped in the middle of long work
    "promotion",  # answers of the store are lost while a node is being promoted
    "absence",  # all nodes are down, for a short or a long time, and come back one by one
    "stupor",  # a standby is stopped, or cut off, for long; meanwhile the leader dies
    "outage",  # the store is away for longer than a storage host's term
    "solo",  # one node is left alone for long
    "lull",  # nobody writes for a while, but they read
)


def kinds_for(seed: int) -> frozenset[str]:
    """In half of all seeds nothing; in the others about three of them."""
    chance = random.Random(f"ambush-kinds-{seed}")
    if chance.random() < 0.5:
        return frozenset()
    return frozenset(kind for kind in KINDS if chance.random() < 0.35)


class Ambush:
    """Asked at every moment that may be the right one."""

    def __init__(self, world: World, seed: int, kinds: frozenset[str]) -> None:
        self._world, self._kinds = world, kinds
        self._chance = random.Random(f"ambush-{seed}")
        for kind, strike in (
            ("absence", self._absence), ("stupor", self._stupor), ("outage", self._outage), ("solo", self._solo),
            ("lull", self._lull),
        ):  # fmt: skip
            if kind in kinds:
                self._later(strike)

    def _later(self, strike: object) -> None:
        self._world.clock.after_ms(self._chance.uniform(2_000, 25_000), self._strike, strike)

    def _strike(self, strike: object) -> None:
        if self._world.faults.on and callable(strike):
            strike()
            self._later(strike)

    def _hits(self, kind: str, share: float) -> bool:
        return kind in self._kinds and self._world.faults.on and self._chance.random() < share

    def _say(self, who: str, sentence: str) -> None:
        self._world.clock.tell(who, sentence)

    # --- moments ---

    def snapshot_stored(self, node: SimNode) -> None:
        """Its file is complete: what was granted since, and until it dies, is in no file and in no record."""
        if self._hits("snapshot", 0.4):
            self._world.clock.after_ms(self._chance.choice((0, 5, 100, 1_500)), self._begin_from_snapshot, node)

    def dies_with_its_snapshot(self, node: SimNode) -> bool:
        """Whether the file is there at once, and its process gone: nothing has happened since."""
        if not self._hits("snapshot", 0.5):
            return False
        self._world.clock.after_ms(0, self._begin_from_snapshot, node)
        return True

    def _begin_from_snapshot(self, node: SimNode) -> None:
        alone = self._chance.random() < 0.5
        for one in self._world.nodes if alone else [node]:
            one.kill(with_guardian=self._chance.random() < 0.2)  # else its key is given up at once: leases are young
            late_ms = 0.0 if one is node else self._chance.uniform(3_000, 9_000)
            self._world.clock.after_ms(self._chance.uniform(1, 300) + late_ms, one.start)

    def worked(self, run: Run) -> None:
        """Something was done about an event; there may be more to do."""
        if run.machine.busy and self._hits("pieces", 0.1):
            run.node.pause()
            self._world.clock.after_ms(self._chance.choice((20, 700, 4_000, 15_000)), run.node.resume)

    def role_changed(self, run: Run, role: Role) -> None:
        if role in (Role.PROMOTING, Role.PRIMARY) and self._hits("promotion", 0.5):
            self._world.clock.after_ms(self._chance.choice((0.05, 1, 3, 8)), self._deafen, run.name)

    def _deafen(self, name: str) -> None:
        """What it asks for happens, but it does not hear of it."""
        network = self._world.network
        self._say("fault", f"answers of the store to {name} are lost")
        network.cut.add((STORE, name))
        self._world.clock.after_ms(self._chance.choice((20, 400, 2_500, 7_000)), network.cut.discard, (STORE, name))

    # --- long ones ---

    def _absence(self) -> None:
        world = self._world
        self._say("fault", "all nodes are down")
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

    def _stupor(self) -> None:
        """Whoever hears late of what happened long ago must not take it for news."""
        world, leader = self._world, self._world.leader()
        if leader is None:
            return
        away_ms = self._chance.choice((4_000, 12_000, 30_000))
        cut_off = self._chance.random() < 0.5
        for node in world.nodes:
            if node.name == leader.value.name:
                world.clock.after_ms(self._chance.uniform(500, 4_000), self._die, node, away_ms + 5_000)
            elif cut_off:
                self._say("fault", f"{node.name} and the store are cut off from each other")
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

    def _outage(self) -> None:
        world = self._world
        if not world.store.up:
            return
        self._say("fault", "the store is away for long")
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
            self._say("fault", "the store is back")
            self._world.store.start()

    def _solo(self) -> None:
        stays = self._chance.choice(self._world.nodes)
        away_ms = self._chance.choice((8_000, 30_000))
        for node in self._world.nodes:
            if node is not stays:
                self._say(node.name, "is down for long")
                self._die(node, away_ms)

    def _lull(self) -> None:
        world = self._world
        world.lull = not world.lull
        if world.lull:
            self._say("world", "nobody writes for a while")
            world.clock.after_ms(self._chance.uniform(1_000, 9_000), self._end_lull)

    def _end_lull(self) -> None:
        self._world.lull = False
