"""One node of a simulated world: the real machine, its gate, its disk, and the faults of its process."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from leasehold.base.codes import Code
from leasehold.base.invariants import ensure
from leasehold.events.messages import Encoder, Message, Style
from leasehold.events.stream import EventStream
from leasehold.ha.effects import (
    ChangeRole,
    CloseWatch,
    DrainBuffer,
    DropLease,
    ForgetBuffer,
    GrantLease,
    KeepLease,
    NodeEffect,
    OpenWatch,
    PushBuffer,
    ReadSnapshot,
    Role,
    Say,
    SendAnswers,
    StoreRequest,
    WriteSnapshot,
)
from leasehold.ha.events import (
    Decided,
    LeaseLost,
    NodeEvent,
    SnapshotRead,
    SnapshotStored,
    Started,
    Ticked,
)
from leasehold.ha.keys import EndMarker, end_epoch
from leasehold.ha.machine import Identity, NodeMachine
from leasehold.index.changes import Changes
from leasehold.index.index import Index
from leasehold.index.replies import Reply, SpaceHandedOut, View
from leasehold.testing.sim.bugs import bend, bend_machine
from leasehold.testing.sim.calls import Call
from leasehold.testing.sim.event_bugs import bend_changes
from leasehold.testing.sim.plan import settings_of
from leasehold.testing.sim.storage import Stream
from leasehold.wire.answers import Waiting

if TYPE_CHECKING:
    from leasehold.testing.sim.world import World

OWNER_PAUSE_MS = 60  # between two checks whether a memory's owner has sent a ping


class Run:
    """One run of a node's process: from start to kill."""

    def __init__(self, node: SimNode, number: int) -> None:
        self.node, self.world = node, node.world
        self.name = node.name
        self.alive = True
        plan = self.world.plan
        chance = self.world.clock.random
        identity = Identity(self.name, f"{self.name}-{number}", self.world.cluster, rpc=self.name)
        ha, index = settings_of(plan, chance, random.Random(f"settings-{self.world.seed}-{self.name}-{number}"))
        self.events = EventStream(Encoder(Style("sim")), plan.event_messages_max, 1 << 30)
        bugs, changes_max = self.world.bugs, plan.event_changes_max
        self.machine = NodeMachine(
            identity,
            ha,
            lambda: bend(bugs, Index(index, chance.randrange, bend_changes(bugs, Changes(changes_max)))),
        )
        self.machine.ctx.state.limit_steps(plan.step_objects)
        bend_machine(self.world.bugs, self.machine)
        self.inbox: deque[Callable[[], None]] = deque()
        self.streams: dict[int, Stream] = {}
        self.kept: set[int] = set()
        self.parts: dict[int, list[bytes]] = {}
        self._wake_us = -1
        self.deliver(Started())
        self.world.clock.after_ms(self.world.plan.work_ms, self._work)

    # --- events ---

    def deliver(self, event: NodeEvent) -> None:
        """Deliver an event; while the process is stopped, events wait."""
        if not self.alive:
            return
        if self.node.paused:
            self.inbox.append(lambda: self.deliver(event))
            return
        self._handle(event)

    def drain_inbox(self) -> None:
        """The process continues: deliver what arrived while it was stopped."""
        inbox, self.inbox = self.inbox, deque()
        for one in inbox:
            one()

    def _handle(self, event: NodeEvent) -> None:
        for effect in self.machine.handle(self.node.now_ms(), event):
            self._do(effect)
        self._publish(self.events.publish(0, self.machine.durable_n, self.changes))
        self._arm()
        self.world.check_node(self)
        self.world.targeted_faults.worked(self)

    def _arm(self) -> None:
        wake_us = self.node.true_us(self.machine.wake_at_ms)
        if self._wake_us < 0 or wake_us < self._wake_us:
            self._wake_us = max(wake_us, self.world.clock.now_us)
            self.world.clock.after_us(self._wake_us - self.world.clock.now_us + 1, self._tick, self._wake_us)

    def _tick(self, wake_us: int) -> None:
        if wake_us == self._wake_us and self.alive:
            self._wake_us = -1
            if self.node.paused:
                self.inbox.append(lambda: self.deliver(Ticked()))
            elif self.node.now_ms() >= self.machine.wake_at_ms:
                self._handle(Ticked())
            else:
                self._arm()

    def _work(self) -> None:
        if not self.alive:
            return
        self.world.clock.after_ms(self.world.plan.work_ms, self._work)
        if self.node.paused:
            return
        now_ms = self.node.now_ms()
        self.machine.outbox.overdue(now_ms)  # their connections are closed: the callers learn nothing
        if self.may_serve():
            for _ in range(8):
                if not self.machine.index.work(self.machine.leader_ms(now_ms)):
                    break
            self._handle(Decided())

    # --- clients ---

    def may_serve(self) -> bool:
        if "no-lease" in self.world.bugs:
            return self.machine.role is Role.PRIMARY
        return self.machine.may_serve(self.node.now_ms())

    def serve(self, call: Call) -> None:
        """A client's request has arrived."""
        if not self.alive:
            return
        if self.node.paused:
            self.inbox.append(lambda: self.serve(call))
            return
        if not self.may_serve():
            self.world.network.send(self.name, "clients", call.refused)
            return
        now_ms = self.node.now_ms()
        answer = call.execute(self.machine.index, self.machine.leader_ms(now_ms))
        if answer is None:
            if call.open:
                self.world.clock.after_ms(OWNER_PAUSE_MS, self.serve, call)
            return
        reply: Reply = View(None, answer.after)
        if answer.hands_out_space:
            reply = SpaceHandedOut(Code.OK, None, answer.after)
        self.machine.outbox.may_serve(now_ms)
        self.machine.outbox.enqueue(reply, (call, answer, self.machine.epoch))
        self._handle(Decided())

    def _send_answers(self, answers: list[Waiting]) -> None:
        for one in answers:
            call, answer, epoch = one.payload
            buffered_n = 0 if answer.hands_out_space else self.world.buffer.holds_to(epoch)
            self.world.oracle.leaves(answer, epoch, call.what, buffered_n)
            call.leaving(answer)
            self.world.network.send(self.name, "clients", call.finish, answer.value)

    # --- events for routers ---

    @property
    def changes(self) -> Changes:
        changes = self.machine.index.changes
        ensure(changes is not None, "a simulated index lists its changes")
        return cast(Changes, changes)

    def _publish(self, messages: list[Message]) -> None:
        for message in messages:
            self.world.subscriber.sent(message)

    # --- effects ---

    def _do(self, effect: NodeEffect) -> None:
        world = self.world
        match effect:
            case StoreRequest() | GrantLease():
                world.store.request(self, effect)
            case OpenWatch():
                self.streams[effect.watch] = world.store.watch(self, effect)
            case CloseWatch(watch):
                stream = self.streams.pop(watch, None)
                if stream is not None:
                    world.store.unwatch(stream)
            case KeepLease(lease, ttl_s, _):
                self.kept.add(lease)
                world.clock.after_ms(ttl_s * 1000 / 3, self._keep, lease, ttl_s)
            case DropLease(lease, revoke):
                self.kept.discard(lease)
                if revoke:
                    world.store.revoke(self, lease)
            case Say(sentence, serious):
                world.clock.log(self.name, ("!! " if serious else "") + sentence)
            case ChangeRole(role, sentence):
                world.clock.log(self.name, f"[{role.value}] {sentence}")
                world.role_changed(self, role)
                if role is Role.PRIMARY:
                    self._publish([self.events.begin(0, self.machine.epoch, self.changes)])
                elif self.events.epoch:
                    self.events.end(self.changes)
                if role is not Role.PRIMARY:
                    self.machine.outbox.drop_all()
            case SendAnswers(answers):
                self._send_answers(answers)
            case PushBuffer() | ForgetBuffer() | DrainBuffer():
                world.buffer.take(self, effect)
            case ReadSnapshot(peer):
                self._read_snapshot(peer)
            case WriteSnapshot():
                self._write_snapshot(effect)

    def _keep(self, lease: int, ttl_s: int) -> None:
        if not self.alive or lease not in self.kept:
            return
        self.world.clock.after_ms(ttl_s * 1000 / 3, self._keep, lease, ttl_s)
        if not self.node.paused:
            self.world.store.keep_alive(self, lease, lambda: self._lease_lost(lease))

    def _lease_lost(self, lease: int) -> None:
        if lease in self.kept:
            self.kept.discard(lease)
            self.deliver(LeaseLost(lease))

    # --- the disk ---

    def _write_snapshot(self, effect: WriteSnapshot) -> None:
        if effect.first:
            self.parts[effect.snapshot] = []
        self.parts[effect.snapshot].append(effect.part)
        if effect.last:
            raw = b"".join(self.parts.pop(effect.snapshot))
            takes_ms = self.world.clock.random.uniform(1, 50)
            if self.world.targeted_faults.dies_with_its_snapshot(self.node):
                self.node.disk = [*self.node.disk, raw][-2:]
            else:
                self.world.clock.after_ms(takes_ms, self._stored, effect.snapshot, raw)

    def _stored(self, snapshot: int, raw: bytes) -> None:
        if self.alive:
            self.node.disk = [*self.node.disk, raw][-2:]
            self.deliver(SnapshotStored(snapshot))
            self.world.targeted_faults.snapshot_stored(self.node)

    def _read_snapshot(self, peer: str) -> None:
        clock = self.world.clock
        if not peer:
            raw = self.node.disk[-1] if self.node.disk else None
            clock.after_ms(1, self.deliver, SnapshotRead(raw))
            return
        other = self.world.nodes_by_name[peer]
        raw = other.disk[-1] if other.up and other.disk and self.world.network.connected(peer, self.name) else None
        clock.after_ms(clock.random.uniform(5, 200), self.deliver, SnapshotRead(raw, peer))


class SimNode:
    """A host with a clock of its own, a disk, and at most one process."""

    def __init__(self, world: World, name: str, offset_ms: int, rate: float) -> None:
        self.world, self.name = world, name
        self._offset_ms, self._rate = offset_ms, rate
        self.paused = False
        self.disk: list[bytes] = []
        self.runs = 0
        self.run: Run | None = None

    @property
    def up(self) -> bool:
        return self.run is not None

    def now_ms(self) -> int:
        """The time of this host's clock."""
        return self._offset_ms + int(self.world.clock.now_us * self._rate) // 1000

    def true_us(self, local_ms: int) -> int:
        """The true time at which this host's clock shows `local_ms`."""
        return int((local_ms - self._offset_ms) * 1000 / self._rate) + 2  # never too early because of rounding

    def start(self) -> None:
        if self.run is None:
            self.runs += 1
            self.world.clock.log(self.name, "starts")
            self.paused = False
            self.run = Run(self, self.runs)

    def kill(self, *, with_guardian: bool) -> None:
        """Kill the worker, and its guardian reaps it; or kill both: the host is dead."""
        run = self.run
        if run is None:
            return
        self.world.clock.log(self.name, "dies with its host" if with_guardian else "is killed; its guardian survives")
        run.alive = False
        for stream in run.streams.values():
            self.world.store.unwatch(stream)
        self.run = None
        self.paused = False
        if not any(node.up for node in self.world.nodes):
            self.world.oracle.all_nodes_down()
        if not with_guardian:
            self.world.clock.after_ms(5, self._reap, run, 5)

    def _reap(self, run: Run, attempts: int) -> None:
        """After waitpid a guardian releases the leader key of exactly that run."""
        leader = self.world.leader()
        if leader is None or leader.value.run != run.machine.identity.run:
            return
        marker = EndMarker(self.name, leader.value.run, "reaped")
        txn = end_epoch(self.world.keys, leader.epoch, marker)
        request = StoreRequest(0, txn, 1_000)
        self.world.store.request(_Guardian(self.name), request)
        if attempts > 1:
            self.world.clock.after_ms(300, self._reap, run, attempts - 1)

    def pause(self) -> None:
        """SIGSTOP."""
        if self.run is not None and not self.paused:
            self.world.clock.log(self.name, "is stopped (SIGSTOP)")
            self.paused = True

    def resume(self) -> None:
        """SIGCONT: all events that arrived meanwhile are delivered now."""
        if not self.paused:
            return
        self.world.clock.log(self.name, "continues (SIGCONT)")
        self.paused = False
        run = self.run
        if run is not None:
            run.drain_inbox()


class _Guardian:
    """Sends requests to the store for a host, and ignores the answers."""

    def __init__(self, name: str) -> None:
        self.name = name

    def deliver(self, event: NodeEvent) -> None:
        return
