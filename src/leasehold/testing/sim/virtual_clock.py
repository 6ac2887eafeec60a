"""Virtual time: a heap of scheduled calls. Everything in a simulated world happens here, in one order."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any

LOG_LINES = 400


class Violation(Exception):
    """A promise was broken. `promise` names it (`P1` ... `P7`, or `convergence`)."""

    def __init__(self, promise: str, sentence: str) -> None:
        super().__init__(f"{promise}: {sentence}")
        self.promise = promise
        self.sentence = sentence


class VirtualClock:
    """Time in microseconds, randomness from the seed, and a log of the last few hundred notable events."""

    __slots__ = ("_heap", "_order", "events", "lines", "now_us", "random")

    def __init__(self, seed: int) -> None:
        self.now_us = 0
        self.random = random.Random(seed)
        self.events = 0
        self.lines: deque[str] = deque(maxlen=LOG_LINES)
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0

    @property
    def now_ms(self) -> int:
        """True time in milliseconds."""
        return self.now_us // 1000

    def after_us(self, delay_us: int, do: Callable[..., None], *args: Any) -> None:
        """Call `do(*args)` after this delay. Calls due at the same time run in the order of scheduling."""
        self._order += 1
        heapq.heappush(self._heap, (self.now_us + delay_us, self._order, do, args))

    def after_ms(self, delay_ms: float, do: Callable[..., None], *args: Any) -> None:
        self.after_us(int(delay_ms * 1000), do, *args)

    def step(self) -> bool:
        """Run the next call. Returns False if there is none."""
        if not self._heap:
            return False
        self.now_us, _, do, args = heapq.heappop(self._heap)
        self.events += 1
        do(*args)
        return True

    def log(self, who: str, sentence: str) -> None:
        """Add one line to the log."""
        self.lines.append(f"{self.now_us / 1_000_000:10.4f}s  {who:<9} {sentence}")
