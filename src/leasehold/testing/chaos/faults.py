"""Carry out the faults of a plan on a running cluster. Each is undone before its method returns."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from leasehold.base.errors import LeaseholdError
from leasehold.coord.connect import connect
from leasehold.runtime.clock import boot_ns
from leasehold.testing.chaos.cluster import ChaosCluster
from leasehold.testing.chaos.history import FaultLine, HostLoss
from leasehold.testing.chaos.network import CLIENTS, Cut
from leasehold.testing.chaos.plan import KINDS, Fault, Group
from leasehold.testing.etcd import EtcdNode
from leasehold.testing.node import NodeProcess
from leasehold.testing.process import ServerProcess, wait_until

SETTLE_S = 40.0
DUTY_S = (0.03, 0.07)  # a slow process runs for the first time, and is stopped for the second
CLOCK_JUMP_S = 3600
BALLAST_BLOCK = bytes(1 << 20)


class FaultInjector:
    """Carries out one fault at a time, in a thread."""

    def __init__(self, cluster: ChaosCluster) -> None:
        self._cluster = cluster
        self.losses: list[HostLoss] = []
        self._victim = ""
        self._began_ns = 0

    def carry_out(self, fault: Fault) -> FaultLine:
        """Apply the fault, undo it, and wait until the cluster has settled."""
        method = "cut" if KINDS[fault.kind].group is Group.CUT else fault.kind.replace("-", "_")
        act: Callable[[Fault], None] = getattr(self, f"_{method}")
        self._victim, self._began_ns = "", boot_ns()
        problem = ""
        try:
            act(fault)
        except (LeaseholdError, OSError) as error:
            problem = f"{type(error).__name__}: {error}".splitlines()[0]
        self._cluster.network.heal_all()
        healed_ns = boot_ns()
        if not self._cluster.settle(SETTLE_S):
            problem = problem or f"the cluster did not settle within {SETTLE_S:g} s"
        return FaultLine(fault.number, fault.kind, self._victim, self._began_ns, healed_ns, boot_ns(), problem)

    # --- victims

    def _begin(self, victim: str) -> None:
        """The fault starts now: time that was needed to find its victim does not count."""
        self._victim, self._began_ns = victim, boot_ns()

    def _primary(self) -> NodeProcess:
        return self._cluster.nodes.primary()

    def _standby(self, fault: Fault) -> NodeProcess:
        standbys = self._cluster.nodes.standbys()
        return standbys[int(fault.choice * len(standbys))]

    def _any_node(self, fault: Fault) -> NodeProcess:
        nodes = self._cluster.nodes.nodes
        return nodes[int(fault.choice * len(nodes))]

    def _leader(self) -> EtcdNode:
        return self._cluster.etcd.leader()

    # --- kills

    def _kill_worker(self, fault: Fault) -> None:
        node = self._primary()
        self._begin(node.node_name)
        node.kill_worker()

    def _kill_guardian(self, fault: Fault) -> None:
        node = self._primary()
        worker = Path(f"/proc/{node.worker_pid}/stat")
        self._begin(node.node_name)
        node.kill_guardian()
        wait_until(lambda: not worker.exists() or " Z " in worker.read_text(), "the worker exits with its guardian")
        node.start()

    def _kill_node(self, fault: Fault) -> None:
        self._kill_and_start(self._primary(), fault)

    def _kill_standby(self, fault: Fault) -> None:
        self._kill_and_start(self._standby(fault), fault)

    def _kill_and_start(self, node: NodeProcess, fault: Fault) -> None:
        self._begin(node.node_name)
        node.kill_host()
        time.sleep(fault.hold_ms / 1000)
        node.start()

    def _kill_etcd(self, fault: Fault) -> None:
        leader = self._leader()
        self._begin(leader.name)
        leader.kill()
        time.sleep(fault.hold_ms / 1000)
        leader.start()

    def _kill_host(self, fault: Fault) -> None:
        host = self._cluster.passing
        self._begin(host.name)
        host.kill()
        time.sleep(fault.hold_ms / 1000)
        host.start()
        self.losses.append(HostLoss(host.endpoint, self._began_ns, boot_ns()))

    # --- pauses

    def _pause_worker(self, fault: Fault) -> None:
        node = self._primary()
        self._begin(node.node_name)
        node.freeze_worker()
        try:
            time.sleep(fault.hold_ms / 1000)
        finally:
            node.thaw_worker()

    def _pause_node(self, fault: Fault) -> None:
        self._pause_both(self._primary(), fault)

    def _pause_standby(self, fault: Fault) -> None:
        self._pause_both(self._standby(fault), fault)

    def _pause_both(self, node: NodeProcess, fault: Fault) -> None:
        self._begin(node.node_name)
        node.freeze_host()
        try:
            time.sleep(fault.hold_ms / 1000)
        finally:
            node.thaw_host()

    def _pause_host(self, fault: Fault) -> None:
        hosts = [*self._cluster.stable, self._cluster.passing]
        with self._stopped(hosts[int(fault.choice * len(hosts))]):
            time.sleep(fault.hold_ms / 1000)

    def _freeze_etcd(self, fault: Fault) -> None:
        with self._stopped(self._leader()):
            time.sleep(fault.hold_ms / 1000)

    def _freeze_quorum(self, fault: Fault) -> None:
        with self._stopped(*self._cluster.etcd.nodes[:2]):
            time.sleep(fault.hold_ms / 1000)

    def _slow_etcd(self, fault: Fault) -> None:
        leader = self._leader()
        self._begin(leader.name)
        end_ns = boot_ns() + fault.hold_ms * 1_000_000
        while boot_ns() < end_ns:
            leader.freeze()
            time.sleep(DUTY_S[1])
            leader.thaw()
            time.sleep(DUTY_S[0])

    @contextlib.contextmanager
    def _stopped(self, *processes: ServerProcess) -> Iterator[None]:
        self._begin(", ".join(process.name for process in processes))
        try:
            for process in processes:
                process.freeze()
            yield
        finally:
            for process in processes:
                process.thaw()

    # --- cuts

    def _cut(self, fault: Fault) -> None:
        """Discard packets in one direction, as the name of the kind states: `cut-SOURCE-to-TARGET`."""
        nodes, etcd = self._cluster.nodes, self._cluster.etcd
        members = [member.place.host for member in etcd.nodes]
        source, _, target = fault.kind.removeprefix("cut-").partition("-to-")
        ends = {"etcd": ("etcd", members), "clients": ("clients", [CLIENTS])}
        for end in {source, target} - set(ends):
            one = (
                etcd.leader() if end == "etcd-leader" else nodes.primary() if end == "primary" else self._standby(fault)
            )
            ends[end] = (one.name, [one.place.host])
        self._begin(f"{ends[source][0]} to {ends[target][0]}")
        cuts = [Cut(here, there) for here in ends[source][1] for there in ends[target][1] if here != there]
        self._cluster.network.cut(*cuts)
        time.sleep(fault.hold_ms / 1000)
        self._cluster.network.heal(*cuts)

    # --- etcd

    def _etcd_leader_change(self, fault: Fault) -> None:
        leader = self._leader()
        others = [member for member in self._cluster.etcd.nodes if member is not leader]
        target = others[int(fault.choice * len(others))]
        self._begin(f"{leader.name} to {target.name}")
        leader.hand_leadership_to(target)

    def _compaction(self, fault: Fault) -> None:
        standby = self._standby(fault)
        self._begin(standby.node_name)
        standby.freeze_host()
        try:
            time.sleep(fault.hold_ms / 1000)
            asyncio.run(_compact(self._cluster.etcd.url))
        finally:
            standby.thaw_host()

    # --- everything else

    def _restart_with_snapshot(self, fault: Fault) -> None:
        node = self._primary()
        self._begin(node.node_name)
        node.stop()
        node.start()

    def _wipe_standby(self, fault: Fault) -> None:
        node = self._standby(fault)
        self._begin(node.node_name)
        node.stop()
        self._cluster.wipe(node)
        node.start()

    def _full_disk(self, fault: Fault) -> None:
        node = self._any_node(fault)
        self._begin(node.node_name)
        ballast = node.data_dir / "data" / "ballast"
        try:
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while file.write(BALLAST_BLOCK):
                    pass
            time.sleep(fault.hold_ms / 1000)
        finally:
            ballast.unlink(missing_ok=True)

    def _clock_jump(self, fault: Fault) -> None:
        node = self._any_node(fault)
        self._begin(node.node_name)
        self._cluster.set_wall_clock(node, int((2 * fault.choice - 1) * CLOCK_JUMP_S))
        time.sleep(fault.hold_ms / 1000)
        self._cluster.set_wall_clock(node, 0)

    def _switchover(self, fault: Fault) -> None:
        node = self._primary()
        self._begin(node.node_name)
        node.switchover()

    def _rolling_restart(self, fault: Fault) -> None:
        self._begin("all nodes")
        for node in self._cluster.nodes.nodes:
            self._restart(node)

    def _rolling_version(self, fault: Fault) -> None:
        cluster = self._cluster
        other = not cluster.on_other_release
        self._begin(f"all nodes to {'the other' if other else 'this'} release")
        for node in cluster.nodes.nodes:
            if (node.node_name in cluster.on_other_release) != other:
                cluster.use_release(node, other=other)
                self._restart(node)

    def _restart(self, node: NodeProcess) -> None:
        node.stop()
        node.start()
        self._cluster.settle(SETTLE_S)


async def _compact(url: str) -> None:
    async with await connect(url) as coord:
        await coord.compact((await coord.get(b"x")).header.revision)
