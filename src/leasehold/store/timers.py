"""Timers of a store's keeper: calls in order of their times, from one heap."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class Timer:
    """One scheduled call; None after `cancel`."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[int], None]) -> None:
        self.call: Callable[[int], None] | None = call

    def cancel(self) -> None:
        self.call = None  # the heap entry is skipped later; its references are dropped now


class Timers:
    """Not thread-safe: used under the engine's lock."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._order = count()

    def at(self, when_ms: int, call: Callable[[int], None]) -> Timer:
        timer = Timer(call)
        heappush(self._heap, (when_ms, next(self._order), timer))
        return timer

    def next_ms(self) -> int | None:
        while self._heap and self._heap[0][2].call is None:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run(self, now_ms: int) -> None:
        """Make the calls that are due. Each gets the time, and may set timers again."""
        due: list[Timer] = []
        while self._heap and self._heap[0][0] <= now_ms:
            due.append(heappop(self._heap)[2])
        for timer in due:
            if timer.call is not None:
                timer.call(now_ms)
