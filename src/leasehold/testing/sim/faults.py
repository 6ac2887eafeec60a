"""The faults of a simulated world: their kinds and times are drawn from the seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.ha.events import SwitchoverRequested
from leasehold.mvcc.errors import StoreError
from leasehold.mvcc.model import DeleteRange, Put
from leasehold.testing.sim.storage import NAME as STORE

if TYPE_CHECKING:
    from leasehold.testing.sim.nodes import SimNode
    from leasehold.testing.sim.world import World


class Faults:
    """One fault after the other; they may overlap."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.on = True
        self._kinds = [
            (self._kill_worker, 5),
            (self._kill_host, 4),
            (self._pause_node, 5),
            (self._cut_node, 5),
            (self._cut_clients, 2),
            (self._slow, 3),
            (self._stop_store, 4),
            (self._break_watch, 3),
            (self._compact, 3),
            (self._lose_lease, 2),
            (self._delete_leader, 2),
            (self._stall_watch, 4),
            (self._switchover, 5),
            (self._disturb_messages, 3),
            (self._wipe_disk, 1),
            (self._restart_host, 1),
            (self._silence_host, 1),
            (self._pause_failover, 1),
            (self._store_full, 2),
            (self._power_cut, 1),
        ]
        self._absent = world.clock.random.choice(world.nodes) if world.plan.lonely else None
        if self._absent is not None:
            world.clock.after_ms(self._while_ms(1_000, 5_000), self._leave_for_long, self._absent)
        if world.plan.silent_deposals:
            self._kinds.append((self._depose_silently, 6))
        self._again()

    def _again(self) -> None:
        every_ms = self._world.plan.faults_every_ms
        self._world.clock.after_ms(self._world.clock.random.uniform(0.2, 1.8) * every_ms, self._strike)

    def _strike(self) -> None:
        if not self.on:
            return
        kinds, weights = zip(*self._kinds, strict=True)
        self._world.clock.random.choices(kinds, weights)[0]()
        self._again()

    def _node(self) -> SimNode:
        """Any node, the leader more often than not."""
        world = self._world
        leader = world.leader()
        if leader is not None and world.clock.random.random() < 0.6:
            return world.nodes_by_name[leader.value.name]
        return world.clock.random.choice(world.nodes)

    def _start(self, node: SimNode) -> None:
        """Start a node again, unless it is the one that stays down until everything is healed."""
        if node is not self._absent or not self.on:
            node.start()

    def _leave_for_long(self, node: SimNode) -> None:
        if not self.on:  # no fault is left that starts it again
            return
        self._world.clock.log(node.name, "is down for a long time")
        node.kill(with_guardian=True)

    def _while_ms(self, low: float, high: float) -> float:
        return self._world.clock.random.uniform(low, high)

    def _kill_worker(self) -> None:
        node = self._node()
        node.kill(with_guardian=False)
        self._world.clock.after_ms(self._while_ms(100, 3_000), self._start, node)

    def _kill_host(self) -> None:
        node = self._node()
        node.kill(with_guardian=True)
        self._world.clock.after_ms(self._while_ms(500, 8_000), self._start, node)

    def _pause_node(self) -> None:
        node = self._node()
        node.pause()
        self._world.clock.after_ms(self._while_ms(50, 9_000), node.resume)

    def _cut(self, source: str, target: str, sentence: str, low: float = 300, high: float = 7_000) -> None:
        world = self._world
        world.clock.log("fault", sentence)
        world.network.cut.add((source, target))
        world.clock.after_ms(self._while_ms(low, high), world.network.cut.discard, (source, target))

    def _cut_node(self) -> None:
        node = self._node()
        dice = self._world.clock.random.random()
        if dice < 0.7:
            self._cut(node.name, STORE, f"{node.name} cannot reach the store")
        if dice > 0.3:
            self._cut(STORE, node.name, f"the store cannot reach {node.name}")

    def _cut_clients(self) -> None:
        node = self._node()
        self._cut(node.name, "clients", f"{node.name} cannot reach its clients")

    def _slow(self) -> None:
        who = self._world.clock.random.choice([STORE, self._node().name])
        self._world.clock.log("fault", f"{who} is slow")
        self._world.network.slow.add(who)
        self._world.clock.after_ms(self._while_ms(300, 5_000), self._world.network.slow.discard, who)

    def _stop_store(self) -> None:
        world = self._world
        if not world.store.up:
            return
        world.clock.log("fault", "the store is down")
        world.store.stop()
        world.clock.after_ms(self._while_ms(50, 8_000), self._store_back)

    def _store_back(self) -> None:
        if not self._world.store.up:
            self._world.clock.log("fault", "the store is back")
            self._world.store.start()

    def _store_full(self) -> None:
        """The store is out of space: reads and deletes work, every write is refused."""
        world = self._world
        if world.store.store.quota_bytes:
            return
        world.clock.log("fault", "the store is out of space")
        world.store.fill()
        world.clock.after_ms(self._while_ms(100, 8_000), world.store.give_space)

    def _power_cut(self) -> None:
        """All nodes die together, and some storage hosts, which come back later with empty memory."""
        world, chance = self._world, self._world.clock.random
        world.clock.log("fault", "a power cut")
        for node in world.nodes:
            node.kill(with_guardian=True)
            world.clock.after_ms(self._while_ms(100, 4_000), self._start, node)
        for number in range(len(world.hosts)):
            if chance.random() < 0.5:
                world.restart_host(number, self._while_ms(100, 8_000))

    def _break_watch(self) -> None:
        node = self._node()
        self._world.clock.log("fault", f"the watch of {node.name} breaks")
        self._world.store.break_watches(node.name)

    def _stall_watch(self) -> None:
        """A half-open stream: silent, not closed."""
        node, store = self._node(), self._world.store
        self._world.clock.log("fault", f"the watch of {node.name} is silent")
        store.stalled.add(node.name)
        self._world.clock.after_ms(self._while_ms(500, 7_000), store.stalled.discard, node.name)

    def _compact(self) -> None:
        back = self._world.clock.random.choice((0, 3, 50))
        self._world.clock.log("fault", f"the store compacts all but {back} revisions")
        self._world.store.compact(back)

    def _lose_lease(self) -> None:
        leader = self._world.leader()
        if leader is not None and self._world.store.up:
            self._world.clock.log("fault", f"the lease of epoch {leader.epoch} is revoked")
            try:
                self._world.store.store.lease_revoke(leader.lease)
            except StoreError:
                return

    def _delete_leader(self) -> None:
        if self._world.store.up:
            self._world.clock.log("fault", "an operator deletes the leader key")
            self._world.store.store.execute(DeleteRange(self._world.keys.leader))

    def _depose_silently(self) -> None:
        """The key is deleted and its leader does not notice: its watch is silent, its keep-alives succeed."""
        leader, store = self._world.leader(), self._world.store
        if leader is None or not store.up:
            return
        name = leader.value.name
        self._world.clock.log("fault", f"an operator deletes the leader key, and the watch of {name} is silent")
        store.stalled.add(name)
        self._world.clock.after_ms(self._while_ms(3_000, 12_000), store.stalled.discard, name)
        store.store.execute(DeleteRange(self._world.keys.leader))

    def _switchover(self) -> None:
        node = self._node()
        if node.run is not None:
            others = [one.name for one in self._world.nodes if one is not node]
            target = self._world.clock.random.choice(["", *others])
            self._world.clock.log("operator", f"requests that {node.name} hands over to {target or 'any node'}")
            node.run.deliver(SwitchoverRequested(target))

    def _disturb_messages(self) -> None:
        network = self._world.network
        self._world.clock.log("fault", "messages are lost, late and repeated")
        choice = self._world.clock.random.choice
        network.disturb(choice((0.0, 0.05, 0.2)), choice((0.0, 0.1, 0.3)), choice((2.0, 300.0, 3_000.0)))
        self._world.clock.after_ms(self._while_ms(500, 6_000), network.disturb)

    def _wipe_disk(self) -> None:
        """Only if every other node has a copy: losing two disks is more than the promises cover."""
        world = self._world
        node = self._node()
        others = [one for one in world.nodes if one is not node]
        if world.plan.ha.copies < 2 or any(not one.up or not one.disk for one in others) or world.wiped:
            return
        if world.has_one_copy():
            return
        world.wiped = True
        node.kill(with_guardian=True)
        world.clock.log(node.name, "loses its disk")
        node.disk = []
        world.clock.after_ms(self._while_ms(500, 4_000), self._start, node)

    def _restart_host(self) -> None:
        self._world.restart_host(self._world.clock.random.randrange(len(self._world.hosts)))

    def _silence_host(self) -> None:
        """A storage host is cut off for longer than its TTL: the leader declares it dead although it lives."""
        host = self._world.hosts[self._world.clock.random.randrange(len(self._world.hosts))]
        for node in self._world.nodes:
            self._cut(host.name, node.name, f"{host.name} cannot reach {node.name}", 11_000, 14_000)

    def _pause_failover(self) -> None:
        world = self._world
        if world.store.up and not world.store.store.quota_bytes:
            world.clock.log("operator", "pauses failover")
            world.store.store.execute(Put(world.keys.pause, b"{}"))
            world.clock.after_ms(self._while_ms(500, 5_000), self._resume_failover)

    def _resume_failover(self) -> None:
        world = self._world
        if world.store.up:
            world.clock.log("operator", "resumes failover")
            world.store.store.execute(DeleteRange(world.keys.pause))
        else:
            world.clock.after_ms(500, self._resume_failover)
