"""What several test files need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from leasehold.concurrency import DoubleBarrier, Election, Mutex, RWLock, Semaphore, Session
from leasehold.coord.api import Coord
from leasehold.mvcc.model import prefix_end
from leasehold.testing.waiting import until

T = TypeVar("T")
Take = Callable[[Session, str], Coroutine[Any, Any, object]]


async def lock(session: Session, name: str) -> object:
    return await Mutex(session, name).lock()


async def campaign(session: Session, name: str) -> object:
    return await Election(session, name).campaign("value")


async def read_lock(session: Session, name: str) -> object:
    return await RWLock(session, name).rlock()


async def write_lock(session: Session, name: str) -> object:
    return await RWLock(session, name).lock()


async def acquire(session: Session, name: str) -> object:
    return await Semaphore(session, name, 1).acquire()


async def enter(session: Session, name: str) -> object:
    await DoubleBarrier(session, name, 2).enter()
    return None


async def keys_under(coord: Coord, name: str) -> list[bytes]:
    prefix = name.encode() + b"/"
    return [kv.key for kv in (await coord.get(prefix, prefix_end(prefix))).kvs]


async def waiters(coord: Coord, name: str, count: int) -> None:
    """Wait until `count` keys stand under `name`: so many hold or queue."""

    async def enough() -> bool:
        return len(await keys_under(coord, name)) >= count

    await until(enough)


async def still_waiting(task: asyncio.Task[T], *, for_s: float = 0.1) -> bool:
    """Whether `task` has not ended after a moment."""
    await asyncio.wait({task}, timeout=for_s)
    return not task.done()
