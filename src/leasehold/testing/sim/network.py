"""Links between the parties of a world: late, lossy, repeating, cut in one direction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leasehold.testing.sim.clockwork import Clockwork


class Network:
    """Messages are calls that happen later, or not, or twice. Faults are set from outside."""

    __slots__ = ("_clock", "cut", "delay_ms_max", "loss", "repeat", "slow")

    def __init__(self, clock: Clockwork) -> None:
        self._clock = clock
        self.cut: set[tuple[str, str]] = set()  # (from, to): nothing gets through
        self.slow: set[str] = set()  # everything from or to these takes long
        self.loss = 0.0
        self.repeat = 0.0
        self.delay_ms_max = 2.0

    def calm(self) -> None:
        """No faults from here on."""
        self.cut.clear()
        self.slow.clear()
        self.loss = self.repeat = 0.0
        self.delay_ms_max = 2.0

    def connected(self, source: str, target: str) -> bool:
        return (source, target) not in self.cut

    def latency_ms(self, source: str, target: str) -> float:
        chance = self._clock.random
        if source in self.slow or target in self.slow:
            return chance.uniform(50, 1_500)
        if self.delay_ms_max > 2 and chance.random() < 0.1:
            return chance.uniform(0.1, self.delay_ms_max)
        return chance.uniform(0.1, 2.0)

    def send(self, source: str, target: str, do: Callable[..., None], *args: Any) -> None:
        """Let `do(*args)` happen at the target's side, if the message gets there."""
        chance = self._clock.random
        if (source, target) in self.cut or (self.loss and chance.random() < self.loss):
            return
        self._clock.after_ms(self.latency_ms(source, target), do, *args)
        if self.repeat and chance.random() < self.repeat:
            self._clock.after_ms(self.latency_ms(source, target) + chance.uniform(0, 3_000), do, *args)
