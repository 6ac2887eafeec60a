"""The network of a simulated world: it delays, loses and repeats messages, and can be cut in one direction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leasehold.testing.sim.virtual_clock import VirtualClock


class Network:
    """Messages are calls that run later, or not at all, or twice."""

    __slots__ = ("_clock", "cut", "delay_ms_max", "loss", "repeat", "slow")

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.cut: set[tuple[str, str]] = set()  # (from, to): every message is lost
        self.slow: set[str] = set()  # messages from and to these take long
        self.loss = 0.0
        self.repeat = 0.0
        self.delay_ms_max = 2.0

    def calm(self) -> None:
        """Remove all faults."""
        self.cut.clear()
        self.slow.clear()
        self.disturb()

    def disturb(self, loss: float = 0.0, repeat: float = 0.0, delay_ms_max: float = 2.0) -> None:
        """Set the shares of lost and repeated messages and their longest delay; the defaults are a healthy network."""
        self.loss, self.repeat, self.delay_ms_max = loss, repeat, delay_ms_max

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
        """Call `do(*args)` at the target, if the message arrives."""
        chance = self._clock.random
        if (source, target) in self.cut or (self.loss and chance.random() < self.loss):
            return
        self._clock.after_ms(self.latency_ms(source, target), do, *args)
        if self.repeat and chance.random() < self.repeat:
            self._clock.after_ms(self.latency_ms(source, target) + chance.uniform(0, 3_000), do, *args)
