"""A coordination store that loses answers, and tasks that are cancelled at any point where they wait.

    faulty = FaultyCoord(coord, lambda call: Fault.LOSE_ANSWER if call.number == 2 else None)

Both are deterministic: increase the number until nothing is hit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from enum import Enum
from typing import Any, TypeVar

from msgspec import Struct

from leasehold.base.errors import Unavailable, UnknownOutcome
from leasehold.coord.api import Coord, KeepAlive, WatchStream
from leasehold.mvcc.model import (
    CompactResult,
    LeaseGrantResult,
    LeaseKeepAliveResult,
    LeaseListResult,
    LeaseRevokeResult,
    LeaseTimeToLiveResult,
    Op,
    Put,
    Range,
    Status,
    Txn,
    Watch,
)

T = TypeVar("T")


class Fault(Enum):
    LOSE_REQUEST = "never arrives; the caller cannot tell"
    LOSE_ANSWER = "is done, and the answer is lost"
    ARRIVE_LATE = "is done only when `arrive()` is called; the caller cannot tell"
    UNAVAILABLE = "is not sent, and the caller knows"
    DELAY = "is done after a moment"


class Call(Struct, frozen=True):
    """The `number`-th request through this client, counted from 1."""

    number: int
    name: str


class FaultyCoord(Coord):
    """Passes everything on to `coord`, except where `plan` names a fault. Watches and renewals are left alone."""

    def __init__(self, coord: Coord, plan: Callable[[Call], Fault | None], *, delay_s: float = 0.05) -> None:
        self.coord = coord
        self.plan = plan
        self.calls: list[Call] = []
        self.hit: list[Call] = []
        self._delay_s = delay_s
        self._late: list[Callable[[], Awaitable[object]]] = []

    async def arrive(self) -> None:
        """Deliver the requests that were held back."""
        late, self._late = self._late, []
        for work in late:
            await work()

    async def _through(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        call = Call(len(self.calls) + 1, name)
        self.calls.append(call)
        fault = self.plan(call)
        if fault is None:
            return await work()
        self.hit.append(call)
        if fault is Fault.UNAVAILABLE:
            raise Unavailable(f"injected: {name} was not sent")
        if fault is Fault.ARRIVE_LATE:
            self._late.append(work)
        if fault in (Fault.LOSE_REQUEST, Fault.ARRIVE_LATE):
            raise UnknownOutcome(f"injected: {name} was lost on its way")
        if fault is Fault.DELAY:
            await asyncio.sleep(self._delay_s)
            return await work()
        await work()
        raise UnknownOutcome(f"injected: the answer to {name} was lost")

    async def do(self, op: Op, timeout_s: float | None = None) -> Any:
        if isinstance(op, Range):
            return await self.coord.do(op, timeout_s)
        name = "txn" if isinstance(op, Txn) else "put" if isinstance(op, Put) else "delete"
        return await self._through(name, lambda: self.coord.do(op, timeout_s))

    def open_watch(self, request: Watch) -> WatchStream:
        return self.coord.open_watch(request)

    async def compact(self, revision: int, *, physical: bool = False, timeout_s: float | None = None) -> CompactResult:
        return await self.coord.compact(revision, physical=physical, timeout_s=timeout_s)

    async def lease_grant(self, ttl_s: int, lease_id: int = 0, *, timeout_s: float | None = None) -> LeaseGrantResult:
        return await self._through("lease_grant", lambda: self.coord.lease_grant(ttl_s, lease_id, timeout_s=timeout_s))

    async def lease_revoke(self, lease_id: int, *, timeout_s: float | None = None) -> LeaseRevokeResult:
        return await self._through("lease_revoke", lambda: self.coord.lease_revoke(lease_id, timeout_s=timeout_s))

    async def lease_keep_alive_once(self, lease_id: int, *, timeout_s: float | None = None) -> LeaseKeepAliveResult:
        return await self.coord.lease_keep_alive_once(lease_id, timeout_s=timeout_s)

    async def lease_time_to_live(
        self, lease_id: int, *, keys: bool = False, timeout_s: float | None = None
    ) -> LeaseTimeToLiveResult:
        return await self.coord.lease_time_to_live(lease_id, keys=keys, timeout_s=timeout_s)

    async def leases(self, *, timeout_s: float | None = None) -> LeaseListResult:
        return await self.coord.leases(timeout_s=timeout_s)

    def keep_alive(self, lease_id: int, ttl_s: int, granted_sent_ms: int) -> KeepAlive:
        return self.coord.keep_alive(lease_id, ttl_s, granted_sent_ms)

    async def status(self, *, timeout_s: float | None = None) -> Status:
        return await self.coord.status(timeout_s=timeout_s)

    def now_ms(self) -> int:
        return self.coord.now_ms()

    async def close(self) -> None:
        """Does not close the wrapped client."""


class CancelledAt(Awaitable[T]):
    """Await it: runs `work`, and cancels the task the `point`-th time that it waits for anything.

    `reached` is False if `work` finished before that point.
    """

    def __init__(self, point: int, work: Coroutine[Any, Any, T]) -> None:
        self._point = point
        self._work = work
        self.reached = False

    def __await__(self) -> Generator[Any, Any, T]:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("await CancelledAt inside a task")
        steps = 0
        thrown: BaseException | None = None
        while True:
            try:
                waited_for = self._work.send(None) if thrown is None else self._work.throw(thrown)
            except StopIteration as end:
                value: T = end.value
                return value
            steps += 1
            if steps == self._point:
                self.reached = True
                task.cancel()
            try:
                thrown = None
                yield waited_for
            except BaseException as error:
                thrown = error
