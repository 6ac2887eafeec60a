"""What several test files need."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from leasehold.coord.api import Coord
from leasehold.mvcc.model import prefix_end

T = TypeVar("T")


async def until(condition: Callable[[], Awaitable[bool]] | Callable[[], bool], *, timeout_s: float = 10) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(timeout_s):
        while True:
            holds = condition()
            if holds if isinstance(holds, bool) else await holds:
                return
            await asyncio.sleep(0.01)


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
