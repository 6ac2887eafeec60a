"""What several test files need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from leasehold.concurrency import DoubleBarrier, Election, Mutex, RWLock, Semaphore, Session
from leasehold.coord.api import Coord
from leasehold.mvcc.model import prefix_end
from leasehold.testing.waiting import until

T = TypeVar("T")
# Ends a hang, and measures nothing. Shorter than the first renewal of a session's lease, after 20 s: a wait that must
# end immediately must not end only with that.
PATIENCE_S = 15.0
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
    """Wait until `count` keys exist under `name`: holders and waiters."""

    async def enough() -> bool:
        return len(await keys_under(coord, name)) >= count

    await until(enough)


def runs(pid: int) -> bool:
    """Whether this process runs. A zombie, whose exit code was not read, does not."""
    try:
        return state_of(pid) != "Z"
    except FileNotFoundError:
        return False


def state_of(pid: int) -> str:
    """The kernel's state: R, S, T for stopped, Z for a zombie."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def still_waiting(task: asyncio.Task[T], *, for_s: float = 0.1) -> bool:
    """Whether `task` has not ended after a moment."""
    await asyncio.wait({task}, timeout=for_s)
    return not task.done()
