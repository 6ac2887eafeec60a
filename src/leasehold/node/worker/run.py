"""One running node: the machine, the store, the wire and the admin port put together on one loop."""

from __future__ import annotations

import asyncio
import gc
import random
import socket
from collections.abc import Mapping
from typing import Final

import structlog

import leasehold
from leasehold.coord.api import Coord
from leasehold.ha.effects import ChangeRole, Role
from leasehold.ha.events import NodeEvent, Started, SwitchoverRequested
from leasehold.ha.machine import Identity, NodeMachine
from leasehold.ha.node_values import MemberValue
from leasehold.index.index import Index
from leasehold.node.access import signer
from leasehold.node.boot import Boot
from leasehold.node.service.call_counts import CallCounts
from leasehold.node.service.functions import MasterService
from leasehold.node.service.metadata_owners import OwnerPings
from leasehold.node.service.storage_hosts import StorageHosts
from leasehold.node.settings import NodeConfig, published_address
from leasehold.node.worker.driver import Driver
from leasehold.node.worker.event_publisher import EventPublisher
from leasehold.node.worker.guardian_link import GuardianLink
from leasehold.node.worker.listeners import Listeners
from leasehold.node.worker.persistence import Persistence
from leasehold.runtime.clock import BootClock, wall_us
from leasehold.runtime.tls import Tls
from leasehold.wire.answers import Waiting
from leasehold.wire.server import Handler, measured_calls
from leasehold.wire.tables import Release

log = structlog.get_logger("leasehold.node")

WORK_BUDGET_OBJECTS: Final = 256
WORK_PAUSE_S: Final = 0.02
OVERDUE_CHECK_S: Final = 1.0
FINISH_REQUESTS_S: Final = 0.5  # before a switchover
# No client is served yet, and large states take long steps. A promotion that hangs ends with its lease.
_PATIENT: Final = (Role.FOLLOWER, Role.CATCHING_UP, Role.PROMOTING)


class RunningNode:
    """`start` runs it; `stopped` is set when it ends: by `stop`, or fatally (`failed` has the error)."""

    def __init__(
        self,
        boot: Boot,
        config: NodeConfig,
        coord: Coord,
        lifeline: GuardianLink,
    ) -> None:
        self.lifeline = lifeline
        self.boot = boot
        self.config = config
        self.coord = coord
        self.clock = BootClock()
        self.started_ms = self.clock.now_ms()
        self.stopped = asyncio.Event()
        self.failed: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._stopping = False
        self._stop_task: asyncio.Task[None] | None = None
        self._prepared: dict[str, Mapping[int, Handler]] = {}  # by release
        self._timers: dict[str, asyncio.TimerHandle | asyncio.Handle] = {}
        self.owner_pings = OwnerPings()
        cluster_signer = signer(config)
        self.storage_hosts = StorageHosts(cluster_signer.secrets, lambda: self.machine.epoch)
        self.call_counts = CallCounts()
        self.events = EventPublisher(config.events) if config.events.events_bind else None
        self.machine = NodeMachine(_identity(boot, config), config.ha, self._make_index, signer=cluster_signer)
        self.keeping = Persistence(config, coord, self._tell, self._admin_of)
        self.driver = Driver(
            self.machine,
            coord,
            self.clock,
            keeper=self.keeping,
            on_role=self._on_role,
            on_answers=self._on_answers,
            on_fatal=self._on_fatal,
            after_turn=self._after_turn,
        )
        self.calls = measured_calls()
        self.entrance = Listeners(
            boot,
            self.machine.outbox,
            self._make_handlers,
            config.wire,
            self._on_fatal,
            self.calls,
            Tls.of(config.tls),
        )

    def start(self) -> None:
        """Begin: the machine decides from now on."""
        self.lifeline.say_serving(False)  # the guardian leaves the door to this worker
        if self.events is not None:
            self.events.start(self.machine)
        self.driver.tell(Started())
        self._every_second()

    def stop(self) -> None:
        """Hand over if this node leads, then stop."""
        if self._stopping:
            return
        self._stopping = True
        self._stop_task = self._loop.create_task(self._stop())

    async def _stop(self) -> None:
        if self.machine.role is Role.PRIMARY:
            await self.hand_over("")
        if self.machine.role is not Role.STEPPING_DOWN:
            # A standby, or a primary without a successor: the guardian gives up the key.
            self.stopped.set()

    async def hand_over(self, target: str) -> None:
        """Hand the leadership to `target`, or to any ready node; requests that were read are answered first."""
        await self.entrance.finish_requests(FINISH_REQUESTS_S)
        self.driver.tell(SwitchoverRequested(target))
        self.entrance.go_on()  # if there was nothing to hand over

    async def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self.entrance.close()
        await self.driver.close()
        if self.events is not None:
            await self.events.close()
        await self.keeping.close()

    def member(self) -> MemberValue:
        """How this node is listed, also when it is dead."""
        identity = self.machine.identity
        return MemberValue(identity.name, identity.rpc, identity.admin, leasehold.__version__, wall_us())

    # --- called by the machine and the wire ---

    def _make_index(self) -> Index:
        changes = self.events.new_changes() if self.events is not None else None
        return Index(self.config.index, random.Random().randrange, changes)

    def _admin_of(self, name: str) -> str:
        """The address of a peer's admin port, as registered; "" if the peer is not registered."""
        node = self.machine.ctx.view.nodes.get(name)
        return node.admin if node is not None else ""

    def _make_handlers(self, release: Release) -> Mapping[int, Handler]:
        """The handlers of a port. They refer to no index: `serving` has the present one."""
        made = self._prepared.get(release.name)
        if made is None:
            service = MasterService(
                self.machine.serving,
                release,
                view_version=lambda: self.machine.epoch,
                owner_pings=self.owner_pings,
                calls=self.calls,
                counts=self.call_counts,
                hosts=self.storage_hosts,
            )
            made = self._prepared[release.name] = service.handlers()
        return made

    def _prepare(self) -> None:
        """As a standby: prepare the handlers, which takes a tenth of a second, so that a promotion need not wait."""
        self.lifeline.be_patient(True)  # with millions of objects a collection takes long
        self.entrance.prepare()
        # Loaded and replayed objects live long: later collections need not visit them.
        gc.collect()
        gc.freeze()
        self.lifeline.be_patient(self.machine.role in _PATIENT)

    def _tell(self, event: NodeEvent) -> None:
        self.driver.tell(event)

    def _after_turn(self) -> None:
        if self.events is not None:
            self.events.flush()
        if (self.machine.loading is not None) is gc.isenabled():
            self._pause_collector(self.machine.loading is not None)

    def _pause_collector(self, loading: bool) -> None:
        """No collections while a snapshot is loaded: each would visit what was loaded so far, and find no garbage."""
        if loading:
            gc.collect()
            gc.disable()
        else:
            gc.freeze()
            gc.enable()

    def _on_role(self, change: ChangeRole) -> None:
        """Law: when the new role is not primary, connections are closed before any other effect."""
        self.lifeline.be_patient(change.role in _PATIENT)
        if self.events is not None:
            self.events.on_role(change.role)
        if change.role is Role.PRIMARY:
            self.entrance.open()
            self.lifeline.say_serving(True)
            self._timers["work"] = self._loop.call_soon(self._work)
            return
        self.entrance.shut(change.sentence, leave=True)
        self.owner_pings.forget_all()
        self.storage_hosts.forget_all()
        self.lifeline.say_serving(False)
        if change.role is Role.STANDBY:
            self._timers["prepare"] = self._loop.call_soon(self._prepare)
        self.entrance.server.give_up(self.machine.outbox.drop_all())
        if (timer := self._timers.pop("work", None)) is not None:
            timer.cancel()
        if self._stopping and change.role is not Role.STEPPING_DOWN:
            self._loop.call_soon(self.stopped.set)

    def _on_answers(self, answers: list[Waiting]) -> None:
        self.entrance.server.release(answers)

    def _on_fatal(self, error: BaseException) -> None:
        """An invariant is broken or the machine raised: this process must not go on with its state."""
        log.critical("this worker cannot go on: it stops, and its guardian starts another", exc_info=error)
        self.failed = error
        self.entrance.shut("the worker cannot go on")
        self.stopped.set()

    # --- time ---

    def _work(self) -> None:
        """Eviction, time-outs and quarantine: a bounded step between requests, then again when it is due."""
        serving = self.machine.serving
        if not serving.may_serve(self.clock.now_ms()):
            self._timers["work"] = self._loop.call_later(0.05, self._work)
            return
        if serving.work(WORK_BUDGET_OBJECTS):
            self._timers["work"] = self._loop.call_soon(self._work)
        else:
            self._timers["work"] = self._loop.call_later(WORK_PAUSE_S, self._work)

    def _every_second(self) -> None:
        self.entrance.server.give_up(self.machine.outbox.overdue(self.clock.now_ms()))
        self.owner_pings.forget_others(self.machine.index)
        if self.machine.ready:
            self.keeping.settle(self.machine.epoch, leads=self.machine.role is Role.PRIMARY)
        self._timers["second"] = self._loop.call_later(OVERDUE_CHECK_S, self._every_second)


def _identity(boot: Boot, config: NodeConfig) -> Identity:
    node = config.node
    advertised = node.advertise or boot.rpc[0].address
    return Identity(
        name=node.name or socket.gethostname(),
        run=boot.run,
        cluster=node.cluster,
        prefix=node.prefix,
        rpc=advertised,
        door=published_address(boot.forward.address, node.advertise),
        admin=published_address(boot.admin.address, node.advertise),
        views=tuple(
            (listener.cluster, published_address(listener.address, node.advertise) if listener.table else advertised)
            for listener in boot.rpc
        ),
    )
