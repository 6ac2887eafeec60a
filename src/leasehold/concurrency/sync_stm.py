"""Transactions for synchronous code: `apply` runs in the caller's thread, all else on the portal's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from leasehold import concurrency as aio
from leasehold.base.errors import LeaseholdError
from leasehold.concurrency.transaction import ATTEMPTS_MAX, Isolation, StmResult
from leasehold.coord.api import Coord
from leasehold.runtime.portal import Portal

T = TypeVar("T")


class SyncStore(Protocol):
    """The result of `leasehold.sync.connect`: a client, and the portal to its loop."""

    @property
    def coord(self) -> Coord: ...

    @property
    def portal(self) -> Portal: ...


class Stm:
    """One attempt of a transaction, for `stm`."""

    def __init__(self, core: aio.Stm, portal: Portal) -> None:
        self._core = core
        self._portal = portal
        self.put = core.put
        self.delete = core.delete

    def get(self, *keys: str | bytes) -> bytes:
        return self._portal.call(self._core.get, *keys)

    def rev(self, key: str | bytes) -> int:
        return self._portal.call(self._core.rev, key)

    def get_prefix(self, prefix: str | bytes) -> dict[bytes, bytes]:
        return self._portal.call(self._core.get_prefix, prefix)


def stm(
    store: SyncStore,
    apply: Callable[[Stm], T],
    *,
    isolation: Isolation = Isolation.SERIALIZABLE_SNAPSHOT,
    prefetch: Iterable[str | bytes] = (),
    attempts_max: int = ATTEMPTS_MAX,
    timeout_s: float | None = None,
) -> StmResult[T]:
    """Run `apply`, in this thread, until its commit meets no conflict."""
    attempts: SimpleQueue[tuple[aio.Stm, asyncio.Future[T]] | None] = SimpleQueue()

    async def applying(tx: aio.Stm) -> T:
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        attempts.put((tx, outcome))
        return await outcome

    async def running() -> StmResult[T]:
        return await aio.stm(
            store.coord,
            applying,
            isolation=isolation,
            prefetch=prefetch,
            attempts_max=attempts_max,
            timeout_s=timeout_s,
        )

    result = store.portal.submit(running)
    result.add_done_callback(lambda _: attempts.put(None))
    try:
        while (attempt := attempts.get()) is not None:
            tx, outcome = attempt
            store.portal.call_soon(*_applied(outcome, apply, Stm(tx, store.portal)))
        return result.result()
    except BaseException:
        result.cancel()  # an error of `apply`, or Ctrl-C: nothing is written
        raise


def _applied(
    outcome: asyncio.Future[T], apply: Callable[[Stm], T], tx: Stm
) -> tuple[Callable[[Any], None], T | LeaseholdError]:
    """Run one attempt; returns what to pass to the loop. Errors of the store go there, too: some mean "retry"."""
    try:
        return _unless_done(outcome, outcome.set_result), apply(tx)
    except LeaseholdError as error:
        return _unless_done(outcome, outcome.set_exception), error


def _unless_done(outcome: asyncio.Future[T], set_outcome: Callable[[Any], None]) -> Callable[[Any], None]:
    return lambda result: None if outcome.done() else set_outcome(result)
