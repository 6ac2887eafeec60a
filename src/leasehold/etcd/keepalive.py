"""The engine that renews leases: one a client, on a thread of its own, with a connection of its own.

Neither a slow reader nor a busy main thread delays it. It leaves an endpoint that does not answer in time.

It blocks, with gRPC's synchronous calls: a loop of its own would cost the process a second selector and a second set
of timers for one call in a third of a TTL.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

import grpc
import structlog

from leasehold.base.clock import Clock
from leasehold.coord.url import ConnectOptions
from leasehold.etcd.errors import Failure, Verdict, classify
from leasehold.etcd.keepalive_machine import PATIENCE_MS_MAX, KeepAliveMachine, LeaseState
from leasehold.etcd.renewing import RenewingConnection
from leasehold.mvcc.errors import Code

PAUSE_S = 0.1
# So many renewals go out together: they share one deadline.
ROUND_LEASES_MAX = 250
# Whoever waits stands still while the host sleeps, the clock does not: a renewal that was due meanwhile is due at once.
LOOK_INTERVAL_S_MAX = 1.0
log = structlog.get_logger("leasehold.etcd.keepalive")


class EtcdKeepAlive:
    """The handle of one lease that is being renewed. May be read and closed from any thread."""

    def __init__(self, engine: KeepAliveEngine, state: LeaseState) -> None:
        self._engine = engine
        self.state = state  # for the engine; shared by all who keep this lease
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
        """For the engine: tell those who asked."""
        for callback in list(self._callbacks):
            try:
                callback()
            except Exception:
                log.exception("a callback of a lease failed", lease=f"{self.lease_id:x}")


class KeepAliveEngine:
    """Renews all leases of one client. Its thread starts with the first of them.

    The machine belongs to the thread; what others want of it comes through the inbox, without a lock.
    """

    def __init__(self, addresses: Sequence[str], options: ConnectOptions, clock: Clock, *, secure: bool) -> None:
        self._connection = RenewingConnection(addresses, options, secure=secure)
        self._clock = clock
        self._machine = KeepAliveMachine()
        self._handles: dict[LeaseState, list[EtcdKeepAlive]] = {}
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, lease_id: int, ttl_s: int, granted_sent_ms: int) -> EtcdKeepAlive:
        """Start renewing; from any thread."""
        handle = EtcdKeepAlive(self, LeaseState(lease_id, ttl_s, granted_sent_ms))
        self._inbox.put(lambda: self._add(handle))
        with self._guard:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="leasehold-keepalive", daemon=True)
                self._thread.start()
        return handle

    def remove(self, handle: EtcdKeepAlive) -> None:
        """Stop renewing; from any thread."""
        handle.stopped = True
        self._inbox.put(lambda: self._remove(handle))

    def close(self) -> None:
        """End the thread. Blocks for as long as one callback may take."""
        with self._guard:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is None:
            return
        self._inbox.put(lambda: None)
        self._connection.close()
        if thread is not threading.current_thread():
            thread.join()

    # ---- on the engine's thread ----

    def _add(self, handle: EtcdKeepAlive) -> None:
        if handle.stopped:
            return
        # Several may keep one lease: it is renewed once for all of them, until the last one stops.
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
        try:
            self._renew_all()
        finally:
            self._connection.close()

    def _renew_all(self) -> None:
        failures = 0
        while True:
            self._hear_until_due()
            if self._closed:
                return
            due = self._machine.take_due(self._clock.now_ms(), ROUND_LEASES_MAX)
            if not due:
                continue
            reason = self._renew(due)
            if not reason:
                failures = 0
                continue
            if self._closed:
                return
            log.info("leases are renewed at the next endpoint", left=self._connection.address, reason=reason)
            self._machine.connection_lost(self._clock.now_ms())
            self._connection.leave()
            failures += 1
            if failures % len(self._connection) == 0:
                self._hear(PAUSE_S)

    def _hear_until_due(self) -> None:
        """Take in what others want, until a renewal may be due."""
        while not self._closed:
            send_ms = self._machine.next_send_ms()
            timeout_s = None
            if send_ms is not None:
                timeout_s = min(max(0.0, (send_ms - self._clock.now_ms()) / 1_000), LOOK_INTERVAL_S_MAX)
            if not self._hear(timeout_s) and timeout_s is not None:
                return

    def _hear(self, timeout_s: float | None) -> bool:
        """Take in one request; False if none came in time."""
        with suppress(Empty):
            self._inbox.get(timeout=timeout_s)()
            return True
        return False

    def _renew(self, lease_ids: list[int]) -> str:
        """Renew them at the endpoint in use; the reason why it is to be left, if it is."""
        suspect_ms = self._machine.suspect_at_ms()
        wait_ms = PATIENCE_MS_MAX if suspect_ms is None else max(1, suspect_ms - self._clock.now_ms())
        try:
            for answer in self._connection.renew(lease_ids, wait_ms / 1_000):
                self._answered(answer.ID, answer.TTL)
        except grpc.RpcError as error:
            failure = _failure_of(error)
            if failure.verdict is Verdict.TOKEN:
                self._connection.forget_token()
            return failure.message or failure.code.name
        except ValueError:
            return "the connection was closed"
        except Exception as error:  # leases must not die of our mistakes, as long as there is a store to ask
            log.exception("renewing failed unexpectedly: this is a bug; it is tried again")
            return repr(error)
        return "" if self._machine.suspect_at_ms() is None else "it ended without an answer"

    def _answered(self, lease_id: int, ttl_s: int) -> None:
        """Take the store's answer in, and tell the lease's owner."""
        state = self._machine.answered(lease_id, ttl_s)
        if state is None:
            return
        for handle in list(self._handles.get(state, ())):
            handle.changed()
        if state.lost:
            self._handles.pop(state, None)
            log.warning("the store says that a lease is gone", lease=f"{lease_id:x}")


def _failure_of(error: grpc.RpcError) -> Failure:
    if isinstance(error, grpc.Call):  # a failed call raises itself
        return classify(Code(error.code().value[0]), error.details() or "")
    return classify(Code.UNKNOWN, str(error))
