"""A simulated world: nodes, store, clients, faults and the oracle that watches them."""

from __future__ import annotations

from leasehold.ha.effects import Role
from leasehold.ha.keys import Keys, LeaderValue, unpack
from leasehold.ha.node_values import TruncationPoint
from leasehold.ha.view import Leader
from leasehold.mvcc.model import DeleteRange, Range, prefix_end
from leasehold.testing.sim.buffer import SimBuffer
from leasehold.testing.sim.bugs import plant
from leasehold.testing.sim.disks import DiskCounts, Folder
from leasehold.testing.sim.drain_operator import DrainOperator
from leasehold.testing.sim.faults import Faults
from leasehold.testing.sim.hosts import Host
from leasehold.testing.sim.network import Network
from leasehold.testing.sim.nodes import Run, SimNode
from leasehold.testing.sim.old_pool import OldPool
from leasehold.testing.sim.oracle import Oracle, Writing
from leasehold.testing.sim.plan import Plan
from leasehold.testing.sim.quota_operator import QuotaOperator
from leasehold.testing.sim.readers import Reader
from leasehold.testing.sim.storage import SimStore, unfenced
from leasehold.testing.sim.subscriber import Subscriber
from leasehold.testing.sim.targeted_faults import TargetedFaults
from leasehold.testing.sim.virtual_clock import Violation, VirtualClock
from leasehold.testing.sim.writers import Writer

LAG_MS_MAX = 12_000  # a ready node has applied every record older than this

# Records still written after puts are refused at twice the journal's limit: those decided until the next check of its
# length (a second), the ends of puts under way, one removal of each object, mounts, and each epoch's first record.
JOURNAL_SLACK = 40
HEALTHY_S = 6  # after all nodes were ready for this long, the journal must have been truncated


class World:
    """One simulated cluster with its clients."""

    def __init__(self, seed: int, plan: Plan, bugs: frozenset[str] = frozenset(), *, start_nodes: bool = True) -> None:
        self.seed, self.plan, self.bugs = seed, plan, bugs
        self.cluster = "sim"
        self.keys = Keys(self.cluster)
        self.clock = VirtualClock(seed)
        self.network = Network(self.clock)
        self.oracle = Oracle(self.clock, plan, self.keys)
        self.store = SimStore(
            self.clock,
            self.network,
            keeps_expiry=plan.store_keeps_expiry,
            on_write=self.oracle.wrote,
            rewrite=unfenced(self.keys.leader) if "no-fence" in bugs else None,
        )
        self.buffer = SimBuffer(self)
        self.quiet = False  # clients start no new calls
        self.lull = False  # clients start no new writes, but read
        self.think_ms = plan.think_ms
        self.wiped = False
        self.promotions = 0
        self.tails: list[tuple[int, int]] = []  # (true ms, tail n), once a second
        self._batches_max = 2 * plan.ha.journal_batches_max + JOURNAL_SLACK + 3 * plan.keys
        self._healthy_s = 0
        chance = self.clock.random
        self.nodes: list[SimNode] = []
        self.nodes_by_name: dict[str, SimNode] = {}
        for number in range(plan.nodes):
            rate = 1 + chance.uniform(-plan.drift, plan.drift) / 2
            node = SimNode(self, f"n{number + 1}", chance.randrange(10**9), rate)
            self.nodes.append(node)
            self.nodes_by_name[node.name] = node
            if start_nodes:
                self.clock.after_ms(chance.uniform(0, 500), node.start)
        self.disk_counts = DiskCounts()
        self.folders = [Folder(number) for number in range(plan.hosts)] if plan.index.enable_offload else []
        self.hosts = [Host(self, number, 0, mounted=plan.adopted) for number in range(plan.hosts)]
        self._incarnations = plan.hosts
        self.old_pool = OldPool(self) if plan.adopted else None
        self.callers = [Writer(self, number) for number in range(plan.writers)]
        self.readers = [Reader(self, number) for number in range(plan.readers)]
        self.subscriber = Subscriber(self)
        self.drain_operator = DrainOperator(self) if plan.drains and plan.copies else None
        self.quota_operator = QuotaOperator(self) if plan.index.tenant_quotas else None
        self.faults = Faults(self)
        self.targeted_faults = TargetedFaults(self, seed, plan.targeted_faults)
        self.clock.after_ms(1_000, self._sample)

    def leader(self) -> Leader | None:
        """The leader key in the store."""
        kvs = self.store.store.range(Range(self.keys.leader)).kvs
        if not kvs:
            return None
        return Leader(kvs[0].create_revision, kvs[0].lease, unpack(LeaderValue, kvs[0].value, kvs[0].key))

    def restart_host(self, number: int, down_ms: float = 0) -> None:
        """A storage process dies and comes back after a while with the same address, new ids and empty memory."""
        old = self.hosts[number]
        if not old.alive:
            return
        old.alive = False
        self.clock.log(old.name, "dies and starts again, with empty memory")
        self.oracle.host_died(old.endpoint)
        self.clock.after_ms(down_ms, self._start_host, number)

    def _start_host(self, number: int) -> None:
        self._incarnations += 1
        self.hosts[number] = Host(self, number, self._incarnations)

    def pause_writes(self, paused: bool) -> None:
        """Clients start no new writes, or start them again."""
        self.lull = paused

    def give_up_in_time(self, writing: Writing, sent_us: int) -> None:
        """A writer must stop by the release time, counted from when it sent its request."""
        left_us = int(self.plan.index.put_release_ms * 1000 * 0.97) - (self.clock.now_us - sent_us)
        self.clock.after_us(max(0, left_us), _give_up, writing)

    # --- checks after every event ---

    def role_changed(self, run: Run, role: Role) -> None:
        if role is Role.PRIMARY:
            self.promotions += 1
        plant(self.bugs, run, role)
        self.targeted_faults.role_changed(run, role)

    def check_node(self, run: Run) -> None:
        """Check one node after it handled an event."""
        truth, applied = self.oracle.truth, run.machine.ctx.state.applied
        if run.machine.role is Role.STANDBY:
            if applied.n > truth.tail_n or truth.epochs[applied.n] != applied.epoch:
                raise Violation("P7", f"{run.name} reports ready and holds {applied}, which is not in the journal")
            if applied.n < self._tail_before(LAG_MS_MAX):
                raise Violation("P7", f"{run.name} reports ready at record {applied.n} of {truth.tail_n}")
            if self.quota_operator is not None and applied.n == truth.tail_n:
                self.quota_operator.check_recorded(run.machine.index, run.name)

    def check(self) -> None:
        """Check the cluster after every event."""
        serving = [node.name for node in self.nodes if node.run is not None and node.run.may_serve()]
        if len(serving) > 1:
            raise Violation("P4", f"{' and '.join(serving)} may both answer")
        if len(self.oracle.slots) > self._batches_max:
            raise Violation(
                "P6", f"{len(self.oracle.slots)} explicit batches are in the store, more than {self._batches_max}"
            )
        self.subscriber.step()

    def _sample(self) -> None:
        self.clock.after_ms(1_000, self._sample)
        self.tails.append((self.clock.now_ms, self.oracle.truth.tail_n))
        self._check_bounds()

    def _tail_before(self, age_ms: int) -> int:
        """The tail at that age."""
        limit_ms = self.clock.now_ms - age_ms
        for at_ms, tail_n in reversed(self.tails):
            if at_ms <= limit_ms:
                return tail_n
        return 0

    def _check_bounds(self) -> None:
        """P6: the number of keys in the store is bounded."""
        store, keys = self.store.store, self.keys
        unlogged = store.range(Range(keys.unlogged, prefix_end(keys.unlogged), count_only=True)).count
        bound = 12 * (self.plan.ha.unlogged_ttl_s + 30)
        if unlogged > bound:
            raise Violation("P6", f"{unlogged} unlogged batches are in the store, more than {bound}")
        self._healthy_s = self._healthy_s + 1 if self._healthy() else 0
        if self._healthy_s >= HEALTHY_S:
            self._check_truncation()

    def _healthy(self) -> bool:
        network, store = self.network, self.store
        ready = all(node.run is not None and not node.paused and node.run.machine.ready for node in self.nodes)
        trouble = network.cut or network.slow or network.loss or network.delay_ms_max > 2 or store.stalled
        return ready and not trouble and store.up and not store.store.quota_bytes

    def _check_truncation(self) -> None:
        """With all nodes ready the journal holds no more records than lie between two snapshots.

        A snapshot is due `snapshot_records` after the end of the last one, and the truncation point follows the
        beginning of the last complete one. Records decided meanwhile are added.
        """
        point, tail_n = self.truncation_point(), self.oracle.truth.tail_n
        truncated_n = point.n if point is not None else 0
        bound = 2 * (self.plan.ha.snapshot_records + tail_n - self._tail_before(1_000 * HEALTHY_S))
        if tail_n - truncated_n > bound:
            raise Violation("P6", f"{tail_n - truncated_n} records are above the truncation point, more than {bound}")

    def truncation_point(self) -> TruncationPoint | None:
        kvs = self.store.store.range(Range(self.keys.truncation)).kvs
        return unpack(TruncationPoint, kvs[0].value, kvs[0].key) if kvs else None

    def has_one_copy(self) -> bool:
        """Whether truncated records are, or soon will be, on one node's disk only (`durable_copies` 1)."""
        point = self.truncation_point()
        if point is not None and point.copies == 1:
            return True
        return any(node.run is not None and node.run.machine.durable_copies == 1 for node in self.nodes)

    # --- the end ---

    def heal(self) -> None:
        """Stop all faults and restart everything."""
        self.clock.log("world", "everything is healed")
        self.faults.on = self.lull = False
        self.network.calm()
        self.store.stalled.clear()
        if not self.store.up:
            self.store.start()
        self.store.give_space()
        self.store.store.execute(DeleteRange(self.keys.pause))
        for node in self.nodes:
            node.resume()
            node.start()

    def converged(self) -> str:
        """Returns an empty string if the cluster has converged, else the reason why not."""
        tail_n = self.oracle.truth.tail_n
        leading = [node for node in self.nodes if node.run is not None and node.run.may_serve()]
        if len(leading) != 1:
            return f"{len(leading)} nodes serve"
        for node in self.nodes:
            if node.run is None:
                return f"{node.name} is down"
            machine = node.run.machine
            if node is not leading[0] and machine.role is not Role.STANDBY:
                return f"{node.name} is {machine.role.value}: {machine.sentence}"
            if machine.ctx.state.applied.n != tail_n or machine.index.log.last_n != tail_n:
                return f"{node.name} is at record {machine.ctx.state.applied.n} of {tail_n}"
        return ""

    def final_check(self) -> None:
        """Every acknowledged object exists, and all nodes agree."""
        truth = self.oracle.truth
        serving = next(node.run for node in self.nodes if node.run is not None and node.run.may_serve())
        now_ms = serving.machine.leader_ms(serving.node.now_ms())
        if self.oracle.nothing_is_evicted():
            for key, put_seq in truth.visible.items():
                found = serving.machine.index.reads.get(now_ms, b"default", key)
                if found is None or found.put_seq != put_seq:
                    held = "nothing" if found is None else f"put {found.put_seq}"
                    raise Violation("P1", f"at the end {key!r} should be put {put_seq}, and {serving.name} has {held}")
        self.subscriber.final_check(serving)
        digests = {}
        for node in self.nodes:
            if node.run is not None:
                node.run.machine.index.check()
                if self.drain_operator is not None:
                    self.drain_operator.final_check(node.run.machine.index, node.name)
                if self.quota_operator is not None:
                    self.quota_operator.check_recorded(node.run.machine.index, node.name)
                digests[node.name] = node.run.machine.index.digest()
        if self.oracle.nothing_is_evicted() and len(set(digests.values())) > 1:
            raise Violation("convergence", f"nodes at the same record differ: {digests}")


def _give_up(writing: Writing) -> None:
    writing.active = False
