"""Virtual time: a heap of things to come. Everything that happens in a simulated world happens here, in one order."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any

STORY_LINES = 400


class Violation(Exception):
    """A promise was broken. `promise` names it (`P1` ... `P7`, or `convergence`)."""

    def __init__(self, promise: str, sentence: str) -> None:
        super().__init__(f"{promise}: {sentence}")
        self.promise = promise
        self.sentence = sentence


class Clockwork:
    """Time in microseconds, chance from the seed, and the story of the last few hundred notable events."""

    __slots__ = ("_heap", "_order", "events", "lines", "now_us", "random")

    def __init__(self, seed: int) -> None:
        self.now_us = 0
        self.random = random.Random(seed)
        self.events = 0
        self.lines: deque[str] = deque(maxlen=STORY_LINES)
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0

    @property
    def now_ms(self) -> int:
        """Milliseconds of true time."""
        return self.now_us // 1000

    def after_us(self, delay_us: int, do: Callable[..., None], *args: Any) -> None:
        """Call `do(*args)` that much later. Things due at one moment happen in the order in which they were asked."""
        self._order += 1
        heapq.heappush(self._heap, (self.now_us + delay_us, self._order, do, args))

    def after_ms(self, delay_ms: float, do: Callable[..., None], *args: Any) -> None:
        self.after_us(int(delay_ms * 1000), do, *args)

    def step(self) -> bool:
        """Let the next thing happen; False if there is none."""
        if not self._heap:
            return False
        self.now_us, _, do, args = heapq.heappop(self._heap)
        self.events += 1
        do(*args)
        return True

    def tell(self, who: str, sentence: str) -> None:
        """One line of the story."""
        self.lines.append(f"{self.now_us / 1_000_000:10.4f}s  {who:<9} {sentence}")
