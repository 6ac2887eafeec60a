"""The guardian process of `leasehold node`: it executes the decisions of `ha.guardian.GuardianMachine`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import structlog

from leasehold.base.errors import ResourceUnavailable
from leasehold.base.text import without_password
from leasehold.coord.api import Coord
from leasehold.coord.connect import connect
from leasehold.ha.connection_verdict import ConnectionVerdict
from leasehold.ha.guardian import (
    AcceptConnections,
    Effect,
    Event,
    Exit,
    GuardianMachine,
    Kill,
    Reaped,
    Release,
    Released,
    RequestStop,
    Say,
    Spawn,
    Spawned,
    SpawnFailed,
    Start,
    StopRequested,
    Tick,
    WorkerServes,
)
from leasehold.ha.keys import Keys, LeaderValue
from leasehold.node import preflight, timing_rules
from leasehold.node.access import PeerAccess, signer
from leasehold.node.boot import Boot, GuardianCounts, HandoffBoot, Listener
from leasehold.node.buffer.disk import DiskBuffer
from leasehold.node.guardian import forwarder
from leasehold.node.guardian.handoff import HeldConnections, slots_for
from leasehold.node.guardian.leader_key import drain_left_behind, follow_leader, release
from leasehold.node.guardian.name_check import find_duplicate
from leasehold.node.guardian.worker_process import WorkerProcess, spawn
from leasehold.node.settings import NodeConfig, parse_compat, published_address, split_address
from leasehold.runtime import log as logs
from leasehold.runtime.accepting import Acceptor
from leasehold.runtime.clock import BootClock
from leasehold.runtime.tasks import TaskSet
from leasehold.runtime.tcp import kernel_counts, reset
from leasehold.runtime.tls import Tls, TlsRelay

log = structlog.get_logger("leasehold.guardian")

TICK_S = 0.1
PARTING_S = 5.0  # longest time for requests that are open on forwarded connections when this node stops
BACKLOG = 1024
INHERITED_PER_TURN = 64
RELEASE_HURRY_S = 1.0
LEFT_ON_DISK = "the buffer on disk still contains acknowledged records"


class Guardian:
    """One guardian: listening sockets, worker, connection forwarder, and the machine that decides."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._clock = BootClock()
        self._machine = GuardianMachine(config.guardian)
        self._keys = Keys(config.node.cluster, config.node.prefix)
        self._sockets: list[socket.socket] = []
        node = config.node
        self._rpc = [self._listen(node.rpc, "rpc", cluster=node.cluster)]
        self._rpc += [
            self._listen(port.address, "rpc_compat", table=port.release, cluster=port.cluster)
            for port in parse_compat(node.rpc_compat, node.cluster)
        ]
        self._forward_listener = self._listen(node.forward, "forward")
        self._refusing = Acceptor(self._sockets[-1], lambda sock, _: sock.close())
        self._admin = self._listen(node.admin, "admin")
        self._rpc_tls = self._listen(node.rpc_tls, "rpc_tls") if node.rpc_tls else None
        self._metadata = self._listen(node.metadata_server, "metadata_server") if node.metadata_server else None
        ports = [(sock, listener.table) for sock, listener in zip(self._sockets, self._rpc, strict=False)]
        guarding = config.guardian
        self._forwarder = forwarder.ConnectionForwarder(
            ports, guarding.held_connections_max, guarding.hold_timeout_ms, config.wire.idle_ms,
            TlsRelay(tls) if (tls := Tls.of(config.tls)) is not None else None,
        )  # fmt: skip
        self._slots = slots_for(config.guardian.held_connections_max) if kernel_counts() else 0
        if not self._slots:
            log.warning(
                "client connections will be closed when a worker dies",
                why="the limit of open files is too low, or the kernel does not count bytes per connection",
            )
        self._worker: WorkerProcess | None = None
        self._spawned = 0  # workers started
        self._tasks = TaskSet()
        self._ended = asyncio.Event()
        self._duplicate = ""  # address of another live node of this name: this one stops
        # A store inside the worker (memory://, embedded://) is unreachable for the guardian: the next worker receives
        # the list of dead runs and deletes their leader key.
        self._remote = node.coord.startswith(("etcd://", "etcds://"))
        self._coord: Coord | None = None

    def _listen(self, address: str, setting: str, *, table: str = "", cluster: str = "") -> Listener:
        host, port = split_address(address, setting)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            raise ResourceUnavailable(
                f"{setting} = '{address}': cannot listen: {error.strerror}; choose another address"
            ) from None
        sock.listen(BACKLOG)
        sock.setblocking(False)
        self._sockets.append(sock)
        bound = sock.getsockname()
        return Listener(sock.fileno(), f"{bound[0]}:{bound[1]}", table, cluster)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._tell, StopRequested())
        log.info(
            "the node is starting",
            clients=[listener.address for listener in self._rpc],
            admin=self._admin.address,
            coord=without_password(self._config.node.coord),
            cluster=self._config.node.cluster,
        )
        if self._remote:
            self._coord = await connect(self._config.node.coord)
            self._tasks.start(self._check_name(self._coord))  # reads the node's key before a worker writes it
            self._tasks.start(
                follow_leader(self._coord, self._config.node.coord, self._keys, signer(self._config), self._on_leader)
            )
            if (buffer := self._buffer()) is not None:
                self._tasks.start(drain_left_behind(self._coord, self._keys, buffer))
        self._refuse_forwarded(True)
        self._tell(Start())
        try:
            while not self._ended.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):  # not wait_for, which can lose a cancellation (Python 3.11)
                        await self._ended.wait()
                beats, patient = 0, False
                if self._worker is not None:
                    beats, patient = self._worker.heartbeats.read()
                    self._worker.heartbeats.publish(self._counts())
                self._tell(Tick(beats, patient))
        finally:
            await self._close()
        if self._duplicate:
            raise ResourceUnavailable(
                f"name = '{self._config.node.name}': another node with this name runs at {self._duplicate}: "
                "give each node its own --name"
            )

    async def _check_name(self, coord: Coord) -> None:
        node = self._config.node
        admin = published_address(self._admin.address, node.advertise)
        peers = PeerAccess(self._config)
        if where := await find_duplicate(coord, self._keys, node.name, node.cluster, admin, peers):
            self._duplicate = where
            self._tell(StopRequested())

    async def _close(self) -> None:
        if self._worker is not None:  # only after a bug in the guardian: a worker must not outlive it
            self._worker.kill()
        self._refuse_forwarded(False)
        await self._tasks.close()
        if (buffer := self._buffer()) is not None and (left := buffer.bytes_left(None)):
            log.warning(LEFT_ON_DISK, bytes=left, then="start this node again to write or quarantine them")
        await self._forwarder.part(PARTING_S)
        await self._forwarder.close()
        if self._coord is not None:
            await self._coord.close()
        for sock in self._sockets:
            sock.close()

    def _tell(self, event: Event) -> None:
        for effect in self._machine.handle(self._clock.now_ms(), event):
            self._do(effect)

    def _do(self, effect: Effect) -> None:
        match effect:
            case Spawn(reaped):
                self._spawn(reaped)
            case Kill():
                if self._worker is not None:
                    self._worker.kill()
            case RequestStop():
                if self._worker is not None:
                    self._worker.send("stop")
            case Release(run, how, hurry):
                self._tasks.start(self._release(run, how, hurry))
            case AcceptConnections(enabled=enabled):
                self._forwarder.set_open(enabled)
            case Say(sentence, level):
                getattr(log, level)(sentence)
            case Exit():
                self._ended.set()

    def _spawn(self, reaped: tuple[str, ...]) -> None:
        run = secrets.token_hex(8)

        def boot(heartbeat_fd: int, life_fd: int, control_fd: int, handoff: HandoffBoot | None) -> Boot:
            return Boot(
                run=run,
                guardian_pid=os.getpid(),
                settings=msgspec.json.encode(self._config),
                rpc=tuple(self._rpc),
                forward=self._forward_listener,
                admin=self._admin,
                heartbeat_fd=heartbeat_fd,
                life_fd=life_fd,
                control_fd=control_fd,
                reaped=reaped,
                rpc_tls=self._rpc_tls,
                metadata=self._metadata,
                handoff=handoff,
            )

        try:
            worker = spawn(boot, self._slots)
        except (OSError, MemoryError) as error:
            self._tell(SpawnFailed(str(error)))
            return
        self._worker = worker
        self._spawned += 1
        worker.watch(
            lambda how: self._on_reaped(run, how),
            lambda line: self._on_line(run, line),
            self._forwarder.inherit,
        )
        log.info("started a worker", pid=worker.pid, run=run)
        self._tell(Spawned(run))

    def _counts(self) -> GuardianCounts:
        counts = self._forwarder.counts
        return GuardianCounts(
            worker_restarts=max(0, self._spawned - 1),
            held=counts["held"],
            forwarded=counts["forwarded"],
            refused=counts["reset_full"] + counts["reset_timeout"],
            waiting=self._forwarder.waiting,
        )

    def _refuse_forwarded(self, refuse: bool) -> None:
        """Close connections from other guardians while no worker accepts them: else they would wait in the queue."""
        self._refusing.set_on(refuse)

    def _on_reaped(self, run: str, how: str) -> None:
        held, self._worker = self._worker.held if self._worker is not None else None, None
        self._refuse_forwarded(True)
        self._tell(Reaped(run, how))
        if held is not None:
            self._tasks.start(self._inherit(held))  # after the leader key: standbys wait for that

    async def _inherit(self, held: HeldConnections) -> None:
        """Take over the dead worker's connections without an open request, as if nothing had been read from them."""
        fates: Counter[ConnectionVerdict] = Counter()
        for sock, port, fate in held.inherit():
            fates[fate] += 1
            if fate is ConnectionVerdict.FORWARD:
                self._forwarder.inherit(sock, port)
            else:
                reset(sock)
            if fates.total() % INHERITED_PER_TURN == 0:
                await asyncio.sleep(0)
        if fates:
            log.info(
                "took over the dead worker's connections; those with an open request were reset",
                held=fates[ConnectionVerdict.FORWARD],
                reset=fates[ConnectionVerdict.RESET],
                closed=fates[ConnectionVerdict.DROP],
            )

    def _on_line(self, run: str, line: str) -> None:
        if line in ("serving", "not serving"):
            self._refuse_forwarded(False)
            if not self._remote:
                self._forwarder.point(self._forward_listener.address if line == "serving" else "")
            self._tell(WorkerServes(run, line == "serving"))

    def _on_leader(self, leader: LeaderValue | None) -> None:
        self._forwarder.point(leader.door if leader is not None else "")
        if leader is None:
            log.info("no node leads: connections are held")
        elif leader.name != self._config.node.name:
            log.info("connections are forwarded to the primary", primary=leader.name)

    async def _release(self, run: str, how: str, hurry: bool) -> None:
        """Delete the leader key of a dead run, and write its buffer first.

        Without this the key would expire with its lease, but the buffer would not be written. So as long as the
        buffer is not empty, this retries, even while the next worker runs.
        """
        was_leader = False
        if self._coord is not None:
            buffer = self._buffer()
            hurry = hurry and (buffer is None or not buffer.epochs())
            timeout_s = RELEASE_HURRY_S if hurry else 3 * self._config.ha.leader_ttl_ms / 1000
            releasing = asyncio.ensure_future(release(self._coord, self._keys, run, how, buffer))
            try:
                await asyncio.wait({releasing}, timeout=timeout_s)
                if releasing.done():
                    was_leader = releasing.result()
                elif buffer is None or not buffer.epochs():
                    log.warning("the store did not answer: the leader key of the dead worker expires with its lease")
                else:
                    log.warning(LEFT_ON_DISK, bytes=buffer.bytes_left(None), then="retrying in the background")
                    self._tell(Released(run, was_leader=False))
                    if await releasing:
                        log.info("the dead worker's buffer is in the journal, and its leader key is deleted")
                    return
            finally:
                releasing.cancel()
        self._tell(Released(run, was_leader))

    def _buffer(self) -> DiskBuffer | None:
        """The buffer on this host's disk, if this node uses one."""
        buffered = self._config.ha.durability == "buffered" and self._config.node.buffer == "disk"
        return DiskBuffer(Path(self._config.node.data_dir) / "buffer") if buffered else None


def run_guardian(config: NodeConfig) -> None:
    """Run one node until it is stopped."""
    if not config.node.name:
        config = replace(config, node=replace(config.node, name=socket.gethostname()))
    timing_rules.check(config)
    logs.configure(format=config.node.log, level=config.node.log_level, node=config.node.name)
    log.info("longest outage for each kind of failure", **timing_rules.worst_cases(config))
    for sentence in timing_rules.waivers(config):
        log.warning(sentence)
    for law in timing_rules.leadership(config).risky:
        log.warning("these lease times are risky", rule=law.name, why=law.why)
    with preflight.check(config):
        asyncio.run(_run(config))


async def _run(config: NodeConfig) -> None:
    await Guardian(config).run()
