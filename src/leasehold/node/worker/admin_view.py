"""The status and the operator's commands of a running node, for its admin port."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import structlog

import leasehold
from leasehold.admin.access import Order
from leasehold.admin.live import LiveNode
from leasehold.admin.samples import Sample
from leasehold.admin.status import ClusterStatus, Counters, HistoryLine, IndexCounts, NodeStatus, Operated
from leasehold.admin.worries import node_worries
from leasehold.base.errors import LeaseholdError, Unavailable
from leasehold.base.measures import Measure
from leasehold.ha.effects import Role
from leasehold.ha.events import FeatureLevelRequested, ForceRequested
from leasehold.ha.feature_level import obstacle
from leasehold.ha.keys import Keys
from leasehold.index.features import LEVEL_NEWEST
from leasehold.node import cluster
from leasehold.node.index_files import whole_index
from leasehold.node.settings import NodeConfig
from leasehold.node.worker.live_view import LiveView
from leasehold.node.worker.measuring import node_measures
from leasehold.node.worker.run import RunningNode
from leasehold.runtime.clock import wall_us

log = structlog.get_logger("leasehold.admin")

SWITCHOVER_TIMEOUT_S: Final = 20.0
LEVEL_TIMEOUT_S: Final = 10.0
SLOW_CALLS_SHOWN: Final = 12
POLL_S: Final = 0.02
STORE_TIMEOUT_S: Final = 2.0  # shorter than the timeout of the operator's command
EXPORT_PAUSE_MS: Final = 10_000  # between two exports of a primary: each blocks it
EXPORT_WHILE_LEADING_MAX: Final = 50_000  # objects; exporting them blocks the primary for about 0.25 s


@asynccontextmanager
async def _store_timeout() -> AsyncIterator[None]:
    """Fail soon, with a clear error, if the store does not answer: an operator waits."""
    try:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            yield
    except TimeoutError:
        raise Unavailable(f"the coordination store did not answer within {STORE_TIMEOUT_S:g} s") from None


def _shared_terms(config: NodeConfig) -> dict[str, int]:
    """Lease settings that should be the same on all nodes: a successor with others changes what clients rely on."""
    ha, index = config.ha, config.index
    return {
        "leader_ttl": ha.leader_ttl_ms,
        "lease_ttl": index.lease_ttl_ms,
        "client_ttl": index.client_ttl_ms,
        "put_release": index.put_release_ms,
    }


class AdminView:
    """Implements `admin.server.AdminFace`."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node
        self._live = LiveView(node)
        settings = node.config.node
        self._keys = Keys(settings.cluster, settings.prefix)
        self._next_export_ms = 0

    def status(self) -> NodeStatus:
        node, machine = self._node, self._node.machine
        now_ms = node.clock.now_ms()
        serves = machine.may_serve(now_ms)
        identity, view, seen = machine.identity, machine.ctx.view, machine.ctx.state.last_write
        return NodeStatus(
            name=identity.name,
            run=identity.run,
            pid=os.getpid(),
            cluster=identity.cluster,
            version=leasehold.__version__,
            role=machine.role.value,
            reason=machine.sentence,
            may_serve=serves,
            ready=serves or machine.role is Role.STANDBY,
            epoch=machine.epoch,
            leader=view.leader.value.name if view.leader is not None and view.leader.trusted else "",
            applied_n=machine.index.log.last_n,
            durable_n=machine.durable_n,
            snapshot_loaded=-1.0 if machine.loading is None else machine.loading.share,
            lag_records=machine.lag,
            behind_ms=-1 if serves or not seen.live else now_ms - seen.seen_ms,
            quarantined_records=len(machine.ctx.state.quarantined_records),
            paused=view.paused,
            rpc=identity.rpc,
            admin=identity.admin,
            up_ms=now_ms - node.started_ms,
            connections=len(node.entrance.server.connections),
            held_answers=node.machine.outbox.waiting,
            durability=node.config.ha.durability,
            durable_copies=machine.durable_copies,
            journal_batches=machine.ctx.state.journal_length.batches,
            journal_bytes=machine.ctx.state.journal_length.bytes,
            journal_full=machine.index.log.journal_full,
            snapshot_problem=node.keeping.snapshots.problem,
            buffer_waiting_bytes=node.keeping.cleanup.waiting_bytes(
                machine.epoch if machine.role in (Role.PRIMARY, Role.STEPPING_DOWN) else None
            ),
            buffer_quarantined_batches=node.keeping.cleanup.quarantined.batches,
            feature_level=machine.index.features.level,
            feature_level_n=machine.index.features.switched_n,
            reads_level=LEVEL_NEWEST,
            terms=_shared_terms(node.config),
            index=self._index_counts(),
            other_releases=node.entrance.other_releases(),
            refused=self._refused(),
            host_refusals=node.storage_hosts.refusals(machine.serving.now_ms),
            counters=self._counters(),
        )

    def _index_counts(self) -> IndexCounts:
        index = self._node.machine.index
        return IndexCounts(
            objects=index.catalog.object_count,
            unfinished=len(index.catalog.unfinished),
            segments=len(index.space.segments),
            clients=len(index.owners.clients),
            bytes_used=index.space.used_bytes,
            bytes_total=index.space.total_bytes,
            quarantined_extents=len(index.space.quarantine),
            evicted=index.eviction.evicted_count,
        )

    def _refused(self) -> dict[str, int]:
        """Requests refused by the wire server and by the index, by reason."""
        machine = self._node.machine
        forged = Counter(
            {"forged leader value": machine.forgeries, "forged registration": len(machine.ctx.view.rejected)}
        )
        return dict(Counter(self._node.entrance.refusals()) + Counter(machine.index.log.refused) + forged)

    def _counters(self) -> Counters:
        server = self._node.entrance.server
        return Counters(server.accepted, server.turned_away, self._node.machine.outbox.unknown_count)

    def measures(self) -> list[Measure]:
        return node_measures(self._node)

    def close(self) -> None:
        self._live.close()

    def peers(self) -> list[str]:
        return [node.admin for node in self._node.machine.ctx.view.nodes.values() if node.admin]

    def samples(self) -> list[Sample]:
        return self._live.samples()

    def live(self) -> LiveNode:
        node, status = self._node, self.status()
        ha = node.config.ha
        left_ms = node.machine.outbox.lease_until_ms - node.clock.now_ms()
        return LiveNode(
            wall_ms=wall_us() // 1_000,
            status=status,
            lease_ms=ha.leader_ttl_ms - ha.leader_margin_ms,
            lease_left_ms=left_ms if status.may_serve else -1,
            sample=self._live.newest(),
            pool=self._live.pool,
            slow=tuple(node.calls.slow()[:SLOW_CALLS_SHOWN]),
            worries=tuple(node_worries(status)),
        )

    def moment(self) -> object:
        machine, view = self._node.machine, self._node.machine.ctx.view
        nodes = tuple((node.name, node.role, node.run) for node in view.nodes.values())
        return machine.role, machine.epoch, view.leader, view.paused, nodes

    async def cluster(self) -> ClusterStatus:
        async with _store_timeout():
            node = self._node
            return await cluster.read_cluster(node.coord, self._keys, node.config.node.cluster, node.machine.ctx.signer)

    async def history(self, limit: int) -> list[HistoryLine]:
        async with _store_timeout():
            return await cluster.read_history(self._node.coord, self._keys, limit)

    async def record_order(self, order: Order) -> None:
        log.warning("order", order=order.name, detail=order.detail, by=order.by, address=order.address)
        node = self._node
        name, entries_max = node.machine.identity.name, node.config.ha.history_max
        async with _store_timeout():
            await cluster.record_order(node.coord, self._keys, name, order, entries_max)

    async def switchover(self, target: str) -> Operated:
        """Hand the leadership over, and wait until another node leads."""
        node = self._node
        if node.machine.role is not Role.PRIMARY:
            return await self._not_the_leader()
        others = [peer.name for peer in (await self.cluster()).nodes if peer.ready and not peer.leads]
        if not others:
            return Operated(False, "no other node is ready to lead: see `leasehold status`")
        if target == node.machine.identity.name:
            return Operated(False, f"'{target}' leads already: there is nothing to hand over")
        if target and target not in others:
            return Operated(False, f"'{target}' is not ready to lead; ready nodes: {', '.join(others)}")
        await node.hand_over(target)
        try:
            async with asyncio.timeout(SWITCHOVER_TIMEOUT_S):
                return await self._successor()
        except TimeoutError:
            return Operated(False, f"no node took over within {SWITCHOVER_TIMEOUT_S:g} s: see `leasehold status`")

    async def _not_the_leader(self) -> Operated:
        leader = (await self.cluster()).leader
        now = f"the leader is {leader}" if leader else "no node leads"
        return Operated(False, f"this node does not lead ({now}): send the command to the leader")

    async def _successor(self) -> Operated:
        me = self._node.machine.identity.name
        while True:
            with contextlib.suppress(LeaseholdError):  # the store may fail for a moment: the switchover continues
                view = await self.cluster()
                if view.leader and (view.leader != me or self._node.machine.role is Role.PRIMARY):
                    return Operated(view.leader != me, f"{view.leader} leads now")
            await asyncio.sleep(POLL_S)

    async def force(self) -> Operated:
        machine = self._node.machine
        if machine.role is Role.PRIMARY:
            return Operated(False, "this node leads already: there is nothing to force")
        leader = machine.ctx.view.leader
        if leader is not None and leader.value.run != machine.identity.run:
            return Operated(
                False, f"'{leader.value.name}' leads: a node can be forced to lead only when no other node does"
            )
        self._node.driver.tell(ForceRequested())
        return Operated(True, "this node will lead despite missing records, once it wins an election")

    async def switch_level(self, level: str) -> Operated:
        """Switch the cluster's feature level, and wait until the switch is durable."""
        machine = self._node.machine
        if machine.role is not Role.PRIMARY:
            return await self._not_the_leader()
        wanted = int(level) if level.isdecimal() else -1
        if reason := obstacle(wanted, machine.index.features.level, machine.ctx.view.nodes.values()):
            return Operated(False, reason)
        self._node.driver.tell(FeatureLevelRequested(wanted))
        try:
            async with asyncio.timeout(LEVEL_TIMEOUT_S):
                while True:
                    features = machine.index.features
                    if features.level == wanted and machine.durable_n >= features.switched_n:
                        return Operated(True, f"the feature level is {wanted} from record {features.switched_n} on")
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            return Operated(False, f"the switch was not durable within {LEVEL_TIMEOUT_S:g} s: see `leasehold status`")

    async def pause(self, reason: str) -> Operated:
        return await cluster.pause(self._node.coord, self._keys, self._node.machine.identity.name, reason)

    async def resume(self) -> Operated:
        return await cluster.resume(self._node.coord, self._keys)

    async def export(self) -> bytes:
        node = self._node
        if not node.machine.ready:
            raise Unavailable("this node is not ready, so its index is incomplete: export from another node")
        if node.machine.role is Role.PRIMARY and node.machine.index.catalog.object_count > EXPORT_WHILE_LEADING_MAX:
            raise Unavailable(
                "this node is the primary, and an export would block its clients: start a standby, and export from it"
            )
        if node.machine.index.log.last_n > node.machine.durable_n:
            raise Unavailable("this node is the primary and has unfinished writes: export from a standby, or retry")
        if node.machine.role is Role.PRIMARY:
            now_ms = node.clock.now_ms()
            if now_ms < self._next_export_ms:
                raise Unavailable(
                    "this node is the primary and made an export a moment ago, which delays its clients: export from a "
                    f"standby, or retry in {EXPORT_PAUSE_MS // 1000} s"
                )
            self._next_export_ms = now_ms + EXPORT_PAUSE_MS
        return whole_index(node.machine.index, node.config.node.cluster, node.lifeline.beat)

    async def snapshot(self) -> bytes | None:
        return await self._node.keeping.snapshots.newest_file()
