"""A session: a lease that is kept alive, and a local answer to the question whether it certainly still is."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

from leasehold.base.errors import LeaseholdError, SessionLost, Unavailable, UnknownOutcome
from leasehold.concurrency.deadline import SessionDeadline, SessionState, margin_for
from leasehold.concurrency.local_queues import LocalQueues
from leasehold.concurrency.own_keys import OwnKeys
from leasehold.coord.api import Coord, KeepAlive
from leasehold.mvcc.errors import LeaseNotFound
from leasehold.mvcc.model import LeaseGrantResult
from leasehold.runtime.closing import AsyncClosing
from leasehold.runtime.log import get_logger

T = TypeVar("T")
log = get_logger(__name__)

DEFAULT_TTL_S = 60
CLEANUP_S_MAX = 5.0
# The loop's timers stop while the host is suspended, our clock does not. So never sleep longer than this.
ASSESS_INTERVAL_S_MAX = 1.0
_revoking: set[asyncio.Task[None]] = set()  # the loop keeps only weak references


class Opening:
    """`await Session.open(...)` returns the session; `async with Session.open(...) as session` also closes it."""

    def __init__(self, opening: Coroutine[Any, Any, Session]) -> None:
        self._opening = opening
        self._session: Session | None = None

    def __await__(self) -> Generator[Any, None, Session]:
        return self._opening.__await__()

    async def __aenter__(self) -> Session:
        self._session = await self._opening
        return self._session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()


class Session(AsyncClosing):
    """Locks of a session are held at most as long as its lease.

    `check()` and `state` are local and may be called from any thread. The local deadline counts from the *send* time
    of the last acknowledged renewal, minus a margin, on the client's clock. Once it has passed, the session is lost
    permanently, even if the store answers later.
    """

    def __init__(self, coord: Coord, lease_id: int, ttl_s: int, sent_ms: int, margin_ms: int | None) -> None:
        ttl_ms = ttl_s * 1000
        self.coord = coord
        self.lease_id = lease_id
        self.ttl_s = ttl_s
        self.local = LocalQueues()
        self.own_keys = OwnKeys(self)
        self._deadline = SessionDeadline(
            sent_ms + ttl_ms, ttl_ms, margin_for(ttl_ms) if margin_ms is None else margin_ms
        )
        self._guard = threading.Lock()
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._suspected = False
        self._timer: asyncio.TimerHandle | None = None
        self._on_lost: dict[int, Callable[[SessionLost], None]] = {}
        self._subscription = 0
        self._unfinished: set[asyncio.Task[Any]] = set()
        self._closing: asyncio.Task[None] | None = None
        self._keep: KeepAlive = coord.keep_alive(lease_id, ttl_s, sent_ms)
        self._keep.on_change(self._renewal_changed)
        self._revoke_on_exit = True
        self._watcher = asyncio.create_task(self._watch_over(), name=f"session {lease_id:x}")

    @staticmethod
    def open(coord: Coord, *, ttl_s: int = DEFAULT_TTL_S, lease_id: int = 0, margin_ms: int | None = None) -> Opening:
        """Grant a lease of `ttl_s` and keep it alive; or adopt `lease_id` with the TTL that it has in the store.

        A TTL of 0 or less means the default of 60 s, as in Go. `margin_ms` is how long before the certain end of the
        lease the session counts as lost (default: a twentieth of the TTL, 50 ms to 3 s).
        """
        return Opening(_open(coord, ttl_s, lease_id, margin_ms))

    @property
    def state(self) -> SessionState:
        """Healthy, suspended (renewals are not answered) or lost: as of now, without a round trip."""
        if os.getpid() != self._pid:
            return SessionState.LOST
        with self._guard:
            return self._deadline.state(self.coord.now_ms())

    def check(self) -> None:
        """Raise `SessionLost` unless the lease is certainly alive. Local, cheap, callable from any thread."""
        if self.state is SessionState.LOST:
            raise self.loss()

    def loss(self) -> SessionLost:
        """The error that explains why this session is lost."""
        if os.getpid() != self._pid:
            return SessionLost("the session belongs to the parent process: open a new one after fork")
        reason = self._deadline.lost_because or "it was not renewed in time"
        return SessionLost(f"session {self.lease_id:x} is lost: {reason}; open a new one")

    @property
    def certain_for_ms(self) -> int:
        """How long the lease is certainly alive from now, minus the margin; 0 if lost."""
        if self.state is SessionState.LOST:
            return 0
        return max(0, self._deadline.certain_until_ms - self.coord.now_ms())

    async def wait_lost(self) -> SessionLost:
        """Wait until the session ends, for any reason including `close()`; returns the error that explains it."""
        await asyncio.shield(self._lost)
        return self.loss()

    def on_lost(self, callback: Callable[[SessionLost], None]) -> Callable[[], None]:
        """Call `callback` in the loop once the session is lost; returns a function that cancels this."""
        if self._lost.done():
            self._loop.call_soon(callback, self.loss())
            return lambda: None
        self._subscription += 1
        number = self._subscription
        self._on_lost[number] = callback
        return lambda: self._on_lost.pop(number, None) and None

    async def orphan(self) -> None:
        """Stop renewing and end the session in this process. The lease expires, or another process adopts it."""
        self._revoke_on_exit = False
        self._end("it was orphaned")
        self._keep.close()
        await self._stop_watcher()

    async def close(self, *, timeout_s: float | None = None) -> None:
        """Revoke the lease, which frees its locks immediately. Waiting calls of this session fail.

        If the store is unreachable, the lease expires after its TTL; that is not an error. In a forked child this does
        nothing: the lease belongs to the parent. It completes even if the caller is cancelled.
        """
        if os.getpid() != self._pid:
            return
        if self._closing is None:
            revoke, self._revoke_on_exit = self._revoke_on_exit, False
            self._end("it was closed")
            self._keep.close()
            self._closing = asyncio.create_task(self._close(revoke, timeout_s))
        await asyncio.shield(self._closing)

    # --- for the recipes -------------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` so that cancelling the task that waits for it does not interrupt it."""
        task = asyncio.create_task(work)
        self._unfinished.add(task)
        task.add_done_callback(self._finished)
        return task

    async def finish(self, work: Coroutine[Any, Any, object]) -> None:
        """Wait for clean-up, at most `CLEANUP_S_MAX`; then it continues in the background."""
        await asyncio.wait({self.spawn(work)}, timeout=CLEANUP_S_MAX)

    async def or_lost(self, *futures: asyncio.Future[Any], timeout_s: float | None = None) -> bool:
        """Wait for the first of `futures`; False after `timeout_s`, `SessionLost` as soon as the session ends."""
        done = any(future.done() for future in futures)
        if not done:
            await asyncio.wait({*futures, self._lost}, return_when=asyncio.FIRST_COMPLETED, timeout=timeout_s)
            done = any(future.done() for future in futures)
        self.check()
        return done

    async def settle(self, attempt: Callable[[], Awaitable[T]], *, on_unknown: Callable[[], None] | None = None) -> T:
        """Repeat an *idempotent* request until the store has answered it; ends with the session.

        `on_unknown` is called whenever a request was sent and not answered: it may still arrive.

        A lost answer is resolved by repeating the request: the transactions of the recipes compare the own key first,
        so the repetition reads the result of the lost one.
        """
        pause_s = 0.02
        while True:
            self.check()
            try:
                return await attempt()
            except LeaseNotFound:
                self._end("its lease does not exist in the store")
            except (Unavailable, UnknownOutcome) as error:
                if on_unknown is not None and isinstance(error, UnknownOutcome):
                    on_unknown()
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):  # not wait_for, which can lose a cancellation (Python 3.11)
                        await asyncio.shield(self._lost)
                pause_s = min(pause_s * 2, 0.5)

    # --- internals -------------------------------------------------------------------------------------------

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._unfinished.discard(task)
        if not task.cancelled() and task.exception() is not None and not isinstance(task.exception(), LeaseholdError):
            log.error("Background work of a session failed.", error=repr(task.exception()))

    async def _close(self, revoke: bool, timeout_s: float | None) -> None:
        await self._stop_watcher()
        if revoke:
            await self._revoke(timeout_s or min(float(self.ttl_s), CLEANUP_S_MAX))
        for task in tuple(self._unfinished):
            task.cancel()

    def _renewal_changed(self) -> None:
        """Called from the renewing thread: `deadline_ms` or `lost` has changed."""
        with self._guard:
            if self._keep.lost:
                self._deadline.end("its lease expired in the store, or was revoked")
            else:
                self._deadline.renewed(self.coord.now_ms(), self._keep.deadline_ms)
        try:
            self._loop.call_soon_threadsafe(self._assess)
        except RuntimeError:
            # The loop was closed without closing the session: nothing can be released, so let the lease expire.
            with self._guard:
                self._deadline.end("its event loop was closed")
            self._keep.close()

    def _end(self, reason: str) -> None:
        with self._guard:
            self._deadline.end(reason)
        self._announce()

    def _announce(self) -> None:
        if not self._lost.done():
            self._lost.set_result(None)
        callbacks, self._on_lost = self._on_lost, {}
        for callback in callbacks.values():
            try:
                callback(self.loss())
            except Exception:  # continue: the next callback may cancel a body whose lock is lost
                log.exception("A callback for a lost session failed.", lease=f"{self.lease_id:x}")

    def _assess(self) -> None:
        """Evaluate the state now, and again when it can change next."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        state = self.state
        if state is SessionState.LOST:
            self._announce()
            return
        if state is SessionState.SUSPENDED and not self._suspected:
            log.warning("Renewals of the session are not answered.", lease=f"{self.lease_id:x}")
        self._suspected = state is SessionState.SUSPENDED
        now_ms = self.coord.now_ms()
        sleep_s = (self._deadline.next_change_ms(now_ms) - now_ms) / 1000
        self._timer = self._loop.call_later(min(max(sleep_s, 0.001), ASSESS_INTERVAL_S_MAX), self._assess)

    async def _watch_over(self) -> None:
        self._assess()
        try:
            await asyncio.shield(self._lost)
            self._keep.close()
        except asyncio.CancelledError:
            # The loop is shutting down and the session was not closed: free its locks, if that is quick.
            if self._revoke_on_exit and not self._lost.done():
                self._end("its event loop ended")
                self._keep.close()
                await self._revoke(1.0)
            raise

    async def _stop_watcher(self) -> None:
        if self._watcher is not asyncio.current_task():
            await asyncio.wait({self._watcher})

    async def _revoke(self, timeout_s: float) -> None:
        self._revoke_on_exit = False
        try:
            await self.coord.lease_revoke(self.lease_id, timeout_s=timeout_s)
        except LeaseNotFound:
            pass
        except LeaseholdError as error:
            log.warning(
                "The lease could not be revoked and expires after its TTL.",
                lease=f"{self.lease_id:x}",
                error=str(error),
            )


async def _open(coord: Coord, ttl_s: int, lease_id: int, margin_ms: int | None) -> Session:
    if lease_id:  # negative ones, too: etcd grants any id that a client chooses
        sent_ms = coord.now_ms()
        renewed = await coord.lease_keep_alive_once(lease_id)
        if renewed.ttl_s <= 0:
            raise LeaseNotFound
        return Session(coord, lease_id, renewed.ttl_s, sent_ms, margin_ms)
    if ttl_s <= 0:
        log.warning("A session's TTL must be positive; the default is used.", given_s=ttl_s, used_s=DEFAULT_TTL_S)
        ttl_s = DEFAULT_TTL_S
    sent_ms = coord.now_ms()
    granted = await _grant(coord, ttl_s)
    return Session(coord, granted.id, granted.ttl_s, sent_ms, margin_ms)


async def _grant(coord: Coord, ttl_s: int) -> LeaseGrantResult:
    """Grant a lease. If the caller is cancelled meanwhile, the lease is revoked."""
    granting = asyncio.ensure_future(coord.lease_grant(ttl_s))
    try:
        return await asyncio.shield(granting)
    except asyncio.CancelledError:
        revoking = asyncio.create_task(_take_back(coord, granting))
        _revoking.add(revoking)
        revoking.add_done_callback(_revoking.discard)
        await asyncio.wait({revoking}, timeout=CLEANUP_S_MAX)
        raise


async def _take_back(coord: Coord, granting: asyncio.Future[LeaseGrantResult]) -> None:
    with suppress(LeaseholdError):  # not granted, or the store is unreachable: then the lease expires
        await coord.lease_revoke((await granting).id)
