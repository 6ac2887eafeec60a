"""The engine that renews leases: one per client, with its own thread, event loop and connection.

Neither a slow reader nor a blocked event loop of the application delays it. It leaves an endpoint that does not answer
in time.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from leasehold.base.clock import Clock
from leasehold.coord.url import ConnectOptions
from leasehold.etcd.keepalive_machine import PATIENCE_MS_MAX, KeepAliveMachine, LeaseState
from leasehold.etcd.renewal_calls import RenewalCalls
from leasehold.etcd.transport.failures import RpcFailed
from leasehold.mvcc.errors import Code
from leasehold.runtime.log import get_logger

PAUSE_S = 0.1
# Renewals per round: they share one stream and one deadline.
ROUND_LEASES_MAX = 250
# Timers stop while the host is suspended, the clock does not. Checking it this often finds renewals that became due.
CLOCK_CHECK_S_MAX = 1.0
log = get_logger("leasehold.etcd.keepalive")


class EtcdKeepAlive:
    """The handle of one lease that is being renewed. May be read and closed from any thread."""

    def __init__(self, engine: KeepAliveEngine, state: LeaseState) -> None:
        self._engine = engine
        self.state = state  # for the engine; shared by all handles of this lease
        self.stopped = False  # for the engine
        self._callbacks: list[Callable[[], None]] = []

    @property
    def lease_id(self) -> int:
        return self.state.lease_id

    @property
    def ttl_s(self) -> int:
        return self.state.ttl_s

    @property
    def deadline_ms(self) -> int:
        return self.state.deadline_ms

    @property
    def lost(self) -> bool:
        return self.state.lost

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback`, from the engine's thread, whenever `deadline_ms` or `lost` has changed."""
        self._callbacks.append(callback)

    def close(self) -> None:
        """Stop renewing. Does not revoke, does not block."""
        self._engine.remove(self)

    def changed(self) -> None:
        """For the engine: run the callbacks."""
        for callback in list(self._callbacks):
            try:
                callback()
            except Exception:
                log.exception("a callback of a lease failed", lease=f"{self.lease_id:x}")


class KeepAliveEngine:
    """Renews all leases of one client. Its thread starts with the first of them.

    The machine belongs to the thread. Other threads send it requests through the inbox.
    """

    def __init__(
        self, addresses: Sequence[str], options: ConnectOptions, clock: Clock, tls: ssl.SSLContext | None = None
    ) -> None:
        self._addresses, self._options, self._tls = addresses, options, tls
        self._clock = clock
        self._machine = KeepAliveMachine()
        self._handles: dict[LeaseState, list[EtcdKeepAlive]] = {}
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = asyncio.Event()  # there is something in the inbox
        self._pid = os.getpid()
        self._guard = threading.Lock()  # over the four below
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, lease_id: int, ttl_s: int, granted_sent_ms: int) -> EtcdKeepAlive:
        """Start renewing; from any thread."""
        handle = EtcdKeepAlive(self, LeaseState(lease_id, ttl_s, granted_sent_ms))
        self._post(lambda: self._add(handle))
        with self._guard:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="leasehold-keepalive", daemon=True)
                self._thread.start()
        return handle

    def remove(self, handle: EtcdKeepAlive) -> None:
        """Stop renewing; from any thread."""
        handle.stopped = True
        self._post(lambda: self._remove(handle))

    def close(self) -> None:
        """Stop the thread. Blocks for as long as one callback may take."""
        if self._pid != os.getpid():
            return  # the thread runs in the parent
        with self._guard:
            self._closed = True
            thread, self._thread = self._thread, None
            if self._loop is not None and self._task is not None:
                with suppress(RuntimeError):  # the thread has closed its loop already
                    self._loop.call_soon_threadsafe(self._task.cancel)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _post(self, request: Callable[[], None]) -> None:
        """Have the engine's thread run `request`; from any thread."""
        self._inbox.append(request)
        if self._loop is not None and self._pid == os.getpid():
            with suppress(RuntimeError):  # the loop was closed: nothing is renewed any more
                self._loop.call_soon_threadsafe(self._wake.set)

    # ---- on the engine's thread ----

    def _add(self, handle: EtcdKeepAlive) -> None:
        if handle.stopped:
            return
        # Several handles may keep one lease: it is renewed once for all of them, until the last one is closed.
        handle.state = self._machine.add(handle.state)
        self._handles.setdefault(handle.state, []).append(handle)

    def _remove(self, handle: EtcdKeepAlive) -> None:
        others = self._handles.get(handle.state, [])
        if handle in others:
            others.remove(handle)
        if not others:
            self._handles.pop(handle.state, None)
            self._machine.remove(handle.state)

    def _run(self) -> None:
        loop = self._new_loop()
        if loop is None:
            return
        with self._guard:
            if self._closed:
                loop.close()
                return
            self._loop, self._task = loop, loop.create_task(self._renew_all())
        try:
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(self._task)
        finally:
            loop.close()

    def _new_loop(self) -> asyncio.AbstractEventLoop | None:
        while not self._closed:
            try:
                return asyncio.SelectorEventLoop()
            except OSError as error:  # out of file descriptors, perhaps not for long
                log.warning("leases cannot be renewed yet: no event loop", error=str(error))
                time.sleep(PAUSE_S)
        return None

    async def _renew_all(self) -> None:
        calls = RenewalCalls(self._addresses, self._options, self._tls)
        failures = 0
        try:
            while True:
                due = await self._due()
                failure = await self._renew(calls, due)
                if failure is None:
                    failures = 0
                    continue
                reason = failure.message or failure.code.name
                log.info("leases are renewed at the next endpoint", left=calls.address, reason=reason)
                self._machine.connection_lost(self._clock.now_ms())
                calls.leave()
                failures += 1
                if failures % len(calls) == 0:
                    await asyncio.sleep(PAUSE_S)
        finally:
            await calls.close()

    async def _due(self) -> list[int]:
        """Wait until renewals are due, and handle the inbox meanwhile."""
        while True:
            self._wake.clear()
            while self._inbox:
                self._inbox.popleft()()
            now_ms = self._clock.now_ms()
            if due := self._machine.take_due(now_ms, ROUND_LEASES_MAX):
                return due
            send_ms = self._machine.next_send_ms()
            wait_s = None if send_ms is None else min(max(0.0, (send_ms - now_ms) / 1_000), CLOCK_CHECK_S_MAX)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):  # not wait_for, which can lose a cancellation (Python 3.11)
                    await self._wake.wait()

    async def _renew(self, calls: RenewalCalls, lease_ids: list[int]) -> RpcFailed | None:
        """Renew at the endpoint in use. Returns the failure for which the endpoint must be left, if any."""
        suspect_ms = self._machine.suspect_at_ms()
        wait_ms = PATIENCE_MS_MAX if suspect_ms is None else max(1, suspect_ms - self._clock.now_ms())
        failure = RpcFailed(Code.UNAVAILABLE, "the stream ended without an answer")
        try:
            await calls.renew(lease_ids, wait_ms / 1_000, self._answered)
        except RpcFailed as error:
            failure = error
        except Exception as error:  # a bug must not cost the leases while the store can be reached
            log.exception("renewing failed unexpectedly: this is a bug; it is retried")
            return RpcFailed(Code.INTERNAL, repr(error))
        # After a stall the loop finds the answers and the timeout together: then the answers count.
        return None if self._machine.suspect_at_ms() is None else failure

    def _answered(self, lease_id: int, ttl_s: int) -> None:
        """Record the store's answer, and notify the handles of the lease."""
        state = self._machine.answered(lease_id, ttl_s)
        if state is None:
            return
        for handle in list(self._handles.get(state, ())):
            handle.changed()
        if state.lost:
            self._handles.pop(state, None)
            log.warning("the store reports that a lease does not exist", lease=f"{lease_id:x}")
