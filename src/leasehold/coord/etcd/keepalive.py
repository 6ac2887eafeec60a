"""The engine that renews leases: one a client, on a loop and a thread of its own, with connections of its own.

Neither a slow reader nor a busy main thread delays it. It leaves an endpoint that does not answer in time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import grpc.aio
import structlog

from leasehold.base.clock import Clock
from leasehold.coord.etcd.auth import REQUIRE_LEADER, Authenticator, Metadata
from leasehold.coord.etcd.endpoints import Endpoint, Endpoints
from leasehold.coord.etcd.errors import Verdict, classify
from leasehold.coord.etcd.keepalive_machine import PATIENCE_MS_MAX, KeepAliveMachine, LeaseState
from leasehold.coord.etcd.pb import rpc_pb2
from leasehold.coord.url import ConnectOptions
from leasehold.runtime.portal import Portal

PAUSE_S = 0.1
log = structlog.get_logger("leasehold.coord.etcd.keepalive")


class EtcdKeepAlive:
    """The handle of one lease that is being renewed. May be read and closed from any thread."""

    def __init__(self, engine: KeepAliveEngine, state: LeaseState) -> None:
        self._engine = engine
        self._state = state
        self._callbacks: list[Callable[[], None]] = []

    @property
    def lease_id(self) -> int:
        return self._state.lease_id

    @property
    def ttl_s(self) -> int:
        return self._state.ttl_s

    @property
    def deadline_ms(self) -> int:
        return self._state.deadline_ms

    @property
    def lost(self) -> bool:
        return self._state.lost

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback`, from the engine's thread, whenever `deadline_ms` or `lost` has changed."""
        self._callbacks.append(callback)

    def close(self) -> None:
        """Stop renewing. Does not revoke, does not block."""
        self._engine.remove(self)

    def changed(self) -> None:
        """For the engine: tell those who asked."""
        for callback in list(self._callbacks):
            try:
                callback()
            except Exception:
                log.exception("a callback of a lease failed", lease=f"{self.lease_id:x}")


class KeepAliveEngine:
    """Renews all leases of one client over one stream. Its thread exists while there are leases to renew."""

    def __init__(self, addresses: Sequence[str], options: ConnectOptions, clock: Clock, *, secure: bool) -> None:
        self._addresses = addresses
        self._options = options
        self._secure = secure
        self._clock = clock
        self._machine = KeepAliveMachine()
        self._handles: dict[LeaseState, EtcdKeepAlive] = {}
        self._guard = threading.Lock()
        self._portal: Portal | None = None
        self._running: Runner | None = None
        self._closed = False

    def add(self, lease_id: int, ttl_s: int, granted_sent_ms: int) -> EtcdKeepAlive:
        """Start renewing; from any thread."""
        handle = EtcdKeepAlive(self, LeaseState(lease_id, ttl_s, granted_sent_ms))
        with self._guard:
            if self._portal is None:
                self._portal = Portal("leasehold-keepalive")
        self._portal.call_soon(self._add, handle)
        return handle

    def remove(self, handle: EtcdKeepAlive) -> None:
        """Stop renewing; from any thread."""
        handle._state.stopped = True
        if self._portal is not None:
            self._portal.call_soon(self._remove, handle)

    def close(self) -> None:
        """End the thread. Blocks for as long as one callback may take."""
        with self._guard:
            portal, self._portal = self._portal, None
        if portal is None:
            return
        if self._running is not None:
            portal.call(self._running.close)
        portal.close()

    # ---- on the engine's loop ----

    def _add(self, handle: EtcdKeepAlive) -> None:
        if handle._state.stopped:
            return
        self._handles[handle._state] = handle
        self._machine.add(handle._state)
        if self._running is None:
            self._running = Runner(self, self._addresses, self._options, secure=self._secure)
        self._running.wake()

    def _remove(self, handle: EtcdKeepAlive) -> None:
        self._handles.pop(handle._state, None)
        self._machine.remove(handle._state)

    @property
    def machine(self) -> KeepAliveMachine:
        return self._machine

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def answered(self, lease_id: int, ttl_s: int) -> None:
        """Take the store's answer in, and tell the lease's owner."""
        state = self._machine.answered(lease_id, ttl_s)
        if state is None:
            return
        handle = self._handles.get(state)
        if handle is not None:
            handle.changed()
        if state.lost:
            self._handles.pop(state, None)
            log.warning("the store says that a lease is gone", lease=f"{lease_id:x}")


class Runner:
    """The engine's connections and its task, on the engine's loop."""

    def __init__(
        self, engine: KeepAliveEngine, addresses: Sequence[str], options: ConnectOptions, *, secure: bool
    ) -> None:
        self._engine = engine
        self._endpoints = Endpoints(addresses, options, secure=secure)
        self._authenticator = Authenticator(options)
        self._woken = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        self._woken.set()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._endpoints.close()

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._wait_for_leases()
            endpoint = self._endpoints.current
            metadata: Metadata = ()
            try:
                if not await endpoint.ready(PATIENCE_MS_MAX / 1_000, insist=len(self._endpoints) == 1):
                    reason = "no connection"
                else:
                    metadata = await self._authenticator.metadata(endpoint, PATIENCE_MS_MAX / 1_000)
                    reason = await self._renew_at(endpoint, metadata)
                    failures = 0
            except grpc.aio.AioRpcError as error:
                failure = classify(error.code(), error.details())
                if failure.verdict is Verdict.TOKEN:
                    self._authenticator.forget(metadata)
                reason = failure.message
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                reason = "the connection was closed"
            log.info("leases are renewed at the next endpoint", left=endpoint.address, reason=reason)
            self._engine.machine.connection_lost(self._engine.now_ms())
            endpoint.renew()
            self._endpoints.leave(endpoint)
            failures += 1
            if failures % len(self._endpoints) == 0:
                await asyncio.sleep(PAUSE_S)

    async def _wait_for_leases(self) -> None:
        while not len(self._engine.machine):
            self._woken.clear()
            await self._woken.wait()

    async def _renew_at(self, endpoint: Endpoint, metadata: Metadata) -> str:
        """Renew at `endpoint` until it fails; the reason why it was left."""
        stream = endpoint.streams["LeaseKeepAlive"](metadata=metadata + REQUIRE_LEADER)
        reader = asyncio.get_running_loop().create_task(self._read(stream))
        machine, now_ms = self._engine.machine, self._engine.now_ms
        try:
            while not reader.done():
                for lease_id in machine.take_due(now_ms()):
                    await stream.write(rpc_pb2.LeaseKeepAliveRequest(ID=lease_id))
                suspect_ms = machine.suspect_at_ms()
                if suspect_ms is not None and now_ms() >= suspect_ms:
                    return "a renewal was not answered in time"
                await self._sleep_until(machine.next_send_ms(), suspect_ms, reader)
            return reader.result()
        finally:
            reader.cancel()
            stream.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _sleep_until(self, send_ms: int | None, suspect_ms: int | None, reader: asyncio.Task[str]) -> None:
        """Until something is due, a lease is added, or the stream has ended."""
        self._woken.clear()
        wanted = [when_ms for when_ms in (send_ms, suspect_ms) if when_ms is not None]
        timeout_s = max(0.0, (min(wanted) - self._engine.now_ms()) / 1_000) if wanted else None
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait({reader, woken}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()

    async def _read(self, stream: grpc.aio.StreamStreamCall[object, object]) -> str:
        while True:
            answer = await stream.read()
            if not isinstance(answer, rpc_pb2.LeaseKeepAliveResponse):
                return "the stream was ended"
            self._engine.answered(answer.ID, answer.TTL)
            # The machine may now have nothing unanswered, and the next renewal at another time.
            self._woken.set()
