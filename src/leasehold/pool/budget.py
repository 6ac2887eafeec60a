"""A bound on the bytes that are under way: who comes later waits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Budget:
    """So many bytes at a time, first come first served. One request may be larger: it then has all of it alone."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.used = 0

    @asynccontextmanager
    async def take(self, count: int) -> AsyncIterator[None]:
        count = min(count, self._size)
        await self._acquire(count)
        try:
            yield
        finally:
            self._give(count)

    async def _acquire(self, count: int) -> None:
        if not self._waiting and self.used + count <= self._size:
            self.used += count
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (count, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give(count)  # it was our turn in the very moment in which we gave up
            else:
                self._waiting.remove(entry)
                self._let_go()
            raise

    def _give(self, count: int) -> None:
        self.used -= count
        self._let_go()

    def _let_go(self) -> None:
        while self._waiting and self.used + self._waiting[0][0] <= self._size:
            count, turn = self._waiting.popleft()
            self.used += count
            turn.set_result(None)
