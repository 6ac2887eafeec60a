"""A bound on the bytes in flight: further requests wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Budget:
    """At most `size` bytes at a time, first come, first served. A larger request gets the whole budget alone."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.used = 0

    @asynccontextmanager
    async def take(self, count: int) -> AsyncIterator[None]:
        count = min(count, self._size)
        await self._acquire(count)
        try:
            yield
        finally:
            self._release(count)

    async def _acquire(self, count: int) -> None:
        if not self._queue and self.used + count <= self._size:
            self.used += count
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (count, turn)
        self._queue.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(count)  # the turn came at the same moment as the cancellation
            else:
                self._queue.remove(entry)
                self._admit()
            raise

    def _release(self, count: int) -> None:
        self.used -= count
        self._admit()

    def _admit(self) -> None:
        while self._queue and self.used + self._queue[0][0] <= self._size:
            count, turn = self._queue.popleft()
            self.used += count
            turn.set_result(None)
