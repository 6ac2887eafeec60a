"""Background load that remembers the answers it got."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from leasehold.testing.waiting import until
from leasehold.testing.workload import Putter


class Burst:
    """Writers that run inside the `async with`, each on its own connection; afterwards it has their results."""

    def __init__(self, master: str, writers: int = 4, batch: int = 50, prefix: str = "w") -> None:
        self.putters = [Putter(master, f"{prefix}{number}") for number in range(writers)]
        self._batch = batch
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(putter.run(self._stop, self._batch)) for putter in self.putters]
        await until(lambda: all(putter.results.acknowledged for putter in self.putters), "every writer has written")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)
        for putter in self.putters:
            putter.close()

    @property
    def acknowledged(self) -> list[str]:
        return sorted(set[str]().union(*(putter.results.acknowledged for putter in self.putters)))

    @property
    def failures(self) -> list[list[str]]:
        return [putter.results.failures for putter in self.putters]

    @property
    def gap_ms_max(self) -> int:
        """The longest time of any writer without success."""
        return max(putter.gap_ms_max for putter in self.putters)
