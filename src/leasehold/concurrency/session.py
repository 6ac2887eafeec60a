"""A session: a lease that is kept alive, and the honest answer to "is it still certain?"."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

from leasehold.base.errors import LeaseholdError, SessionLost, Unavailable, UnknownOutcome
from leasehold.concurrency.deadline import SessionState, Tenure, margin_for
from leasehold.concurrency.local import LocalQueues
from leasehold.concurrency.unknown_outcome import Doubts
from leasehold.coord.api import Coord, KeepAlive
from leasehold.mvcc.errors import LeaseNotFound
from leasehold.mvcc.model import LeaseGrantResult
from leasehold.runtime.closing import AsyncClosing
from leasehold.runtime.log import get_logger

T = TypeVar("T")
log = get_logger(__name__)

DEFAULT_TTL_S = 60
CLEANUP_S_MAX = 5.0
# Timers of the loop stand still while the host sleeps, our clock does not: so never sleep longer than this.
ASSESS_INTERVAL_S_MAX = 1.0
_revoking: set[asyncio.Task[None]] = set()  # the loop alone would let them be collected


class Opening:
    """`await Session.open(...)` gives the session; `async with Session.open(...) as session` also closes it."""

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
    """Everything taken under a session is held at most as long as its lease.

    `check()` and `state` are local and may be asked from any thread. The local deadline counts from the *send* time
    of the last acknowledged renewal, minus a margin, on the client's clock; once it has passed, the session is lost
    for good, whatever the store may say later.
    """

    def __init__(self, coord: Coord, lease_id: int, ttl_s: int, sent_ms: int, margin_ms: int | None) -> None:
        ttl_ms = ttl_s * 1000
        self.coord = coord
        self.lease_id = lease_id
        self.ttl_s = ttl_s
        self.local = LocalQueues()
        self.doubts = Doubts(self)
        self._tenure = Tenure(sent_ms + ttl_ms, ttl_ms, margin_for(ttl_ms) if margin_ms is None else margin_ms)
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
        self._keep.on_change(self._heard)
        self._revoke_on_exit = True
        self._watcher = asyncio.create_task(self._watch_over(), name=f"session {lease_id:x}")

    @staticmethod
    def open(coord: Coord, *, ttl_s: int = DEFAULT_TTL_S, lease_id: int = 0, margin_ms: int | None = None) -> Opening:
        """Grant a lease of `ttl_s` and keep it alive; or adopt `lease_id`, whose TTL the store tells.

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
            return self._tenure.state(self.coord.now_ms())

    def check(self) -> None:
        """Raise `SessionLost` unless the lease is certain to live. Local, cheap, from any thread."""
        if self.state is SessionState.LOST:
            raise self.loss()

    def loss(self) -> SessionLost:
        """The error that says why this session is lost."""
        if os.getpid() != self._pid:
            return SessionLost("the session belongs to the parent process: open a new one after fork")
        reason = self._tenure.lost_because or "it was not renewed in time"
        return SessionLost(f"session {self.lease_id:x} is over: {reason}; open a new one")

    @property
    def certain_for_ms(self) -> int:
        """How long the lease is certain to live on from now, margin taken off; 0 when lost."""
        if self.state is SessionState.LOST:
            return 0
        return max(0, self._tenure.certain_until_ms - self.coord.now_ms())

    async def wait_lost(self) -> SessionLost:
        """Wait until the session is over, for whatever reason (also `close()`); tells why."""
        await asyncio.shield(self._lost)
        return self.loss()

    def on_lost(self, callback: Callable[[SessionLost], None]) -> Callable[[], None]:
        """Call `callback` in the loop once the session is lost; gives the function that takes this back."""
        if self._lost.done():
            self._loop.call_soon(callback, self.loss())
            return lambda: None
        self._subscription += 1
        number = self._subscription
        self._on_lost[number] = callback
        return lambda: self._on_lost.pop(number, None) and None

    async def orphan(self) -> None:
        """Stop renewing and be lost to this process; the lease itself is left to expire, or to be adopted."""
        self._revoke_on_exit = False
        self._end("it was orphaned")
        self._keep.close()
        await self._stop_watcher()

    async def close(self, *, timeout_s: float | None = None) -> None:
        """Revoke the lease: all that was held under it is free at once. Waiters of this session end.

        If the store cannot be reached the lease ends by its TTL; that is not an error. In a forked child it does
        nothing: the lease is the parent's. Once begun it goes on to its end, also if whoever called is cancelled.
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
        """Run `work` so that the cancellation of whoever waits for it does not interrupt it."""
        task = asyncio.create_task(work)
        self._unfinished.add(task)
        task.add_done_callback(self._finished)
        return task

    async def finish(self, work: Coroutine[Any, Any, object]) -> None:
        """Wait for clean-up, but not for ever; it goes on in the background if time or patience runs out."""
        await asyncio.wait({self.spawn(work)}, timeout=CLEANUP_S_MAX)

    async def or_lost(self, *waiting: asyncio.Future[Any], timeout_s: float | None = None) -> bool:
        """Wait for the first of `waiting`; False after `timeout_s`, `SessionLost` at once if the session ends."""
        done = any(future.done() for future in waiting)
        if not done:
            await asyncio.wait({*waiting, self._lost}, return_when=asyncio.FIRST_COMPLETED, timeout=timeout_s)
            done = any(future.done() for future in waiting)
        self.check()
        return done

    async def settle(self, attempt: Callable[[], Awaitable[T]], *, in_doubt: Callable[[], None] | None = None) -> T:
        """Repeat an *idempotent* request until the store has answered it; ends with the session.

        `in_doubt` is called whenever one was sent and not answered: it may still arrive.

        A lost answer is resolved by asking again: the transactions of the recipes compare the own key first, so the
        repetition reads what the lost one did.
        """
        pause_s = 0.02
        while True:
            self.check()
            try:
                return await attempt()
            except LeaseNotFound:
                self._end("the store no longer knows its lease")
            except (Unavailable, UnknownOutcome) as error:
                if in_doubt is not None and isinstance(error, UnknownOutcome):
                    in_doubt()
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(self._lost), pause_s)
                pause_s = min(pause_s * 2, 0.5)

    # --- inside ----------------------------------------------------------------------------------------------

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

    def _heard(self) -> None:
        """From the thread that renews: `deadline_ms` or `lost` has changed."""
        with self._guard:
            if self._keep.lost:
                self._tenure.end("the store said that its lease is gone")
            else:
                self._tenure.renewed(self.coord.now_ms(), self._keep.deadline_ms)
        try:
            self._loop.call_soon_threadsafe(self._assess)
        except RuntimeError:
            # The loop was closed over our head: nobody is left who could release anything, so let the lease end.
            with self._guard:
                self._tenure.end("its event loop was closed")
            self._keep.close()

    def _end(self, reason: str) -> None:
        with self._guard:
            self._tenure.end(reason)
        self._announce()

    def _announce(self) -> None:
        if not self._lost.done():
            self._lost.set_result(None)
        callbacks, self._on_lost = self._on_lost, {}
        for callback in callbacks.values():
            try:
                callback(self.loss())
            except Exception:  # of one of them: the next may be what ends a body that holds no longer
                log.exception("A callback for a lost session failed.", lease=f"{self.lease_id:x}")

    def _assess(self) -> None:
        """Look at the state now, and again when it could change by itself."""
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
        sleep_s = (self._tenure.next_change_ms(now_ms) - now_ms) / 1000
        self._timer = self._loop.call_later(min(max(sleep_s, 0.001), ASSESS_INTERVAL_S_MAX), self._assess)

    async def _watch_over(self) -> None:
        self._assess()
        try:
            await asyncio.shield(self._lost)
            self._keep.close()
        except asyncio.CancelledError:
            # The loop is being shut down and nobody closed the session: free what it holds, if that is quick.
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
                "The lease could not be revoked and ends by its TTL.", lease=f"{self.lease_id:x}", error=str(error)
            )


async def _open(coord: Coord, ttl_s: int, lease_id: int, margin_ms: int | None) -> Session:
    if lease_id:  # negative ones too: etcd grants them to whoever chooses one
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
    """A lease for a caller that waits for it: one that is granted after the caller was cancelled is revoked."""
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
    with suppress(LeaseholdError):  # not granted, or nobody to ask: then it ends by its TTL
        await coord.lease_revoke((await granting).id)
