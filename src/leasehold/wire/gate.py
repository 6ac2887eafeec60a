"""The two questions before anything leaves: may this node answer, and is what the answer shows durable?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Gate(Protocol):
    """What a server asks of the node. Cheap: it is asked for every burst."""

    @property
    def durable_n(self) -> int:
        """Every record up to this number is durable."""
        ...

    def may_serve(self) -> bool:
        """Whether this node has, at this moment, the right to answer. If not, connections are closed unanswered."""
        ...

    def when_durable(self, n: int, then: Callable[[], None]) -> None:
        """Call `then` once record `n` is durable; never, if it cannot become so (connections are closed then)."""
        ...


class OpenGate:
    """Always open, everything durable at once: for one process without a journal, and for tests."""

    durable_n = 2**63

    def may_serve(self) -> bool:
        return True

    def when_durable(self, n: int, then: Callable[[], None]) -> None:
        then()
