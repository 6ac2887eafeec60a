"""The two questions before anything leaves: may this node answer, and is what the answer shows durable?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from leasehold.base.clock import Clock
from leasehold.runtime.clock import BootClock


class Gate(Protocol):
    """What a server asks of the node. Cheap: it is asked for every burst."""

    @property
    def durable_n(self) -> int:
        """Every record up to this number is durable: space that it hands out may be told."""
        ...

    @property
    def acked_n(self) -> int:
        """Everything else up to this number may be told (above `durable_n` only under `buffered` and `async`)."""
        ...

    @property
    def now_ms(self) -> int:
        """Leader time, as of the last `may_serve`."""
        ...

    def may_serve(self) -> bool:
        """Read the clock; whether this node has, at this moment, the right to answer. If not, nothing is answered."""
        ...

    def when_durable(
        self, n: int, then: Callable[[], None], otherwise: Callable[[], None] | None = None, *, space: bool = False
    ) -> None:
        """Call `then` once record `n` may be told, or `otherwise` if that was not known in time.

        `space`: the answer hands out space, so only what is durable counts.
        """
        ...


class OpenGate:
    """Always open, everything durable at once: for one process without a journal, and for tests."""

    durable_n = acked_n = 2**63

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = BootClock() if clock is None else clock
        self.now_ms = self._clock.now_ms()

    def may_serve(self) -> bool:
        self.now_ms = self._clock.now_ms()
        return True

    def when_durable(
        self, n: int, then: Callable[[], None], otherwise: Callable[[], None] | None = None, *, space: bool = False
    ) -> None:
        then()
