"""A small simulated register with a primary and a standby, for histories of known quality.

A write is decided by the primary, replicated, and then acknowledged. Now and then the primary dies (calls in flight get
no answer, and the standby leads with what was replicated), or is deposed while it still runs. Each planted bug is one
broken rule of this protocol.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

from leasehold.testing.checkers import Operation

BUGS = (
    "early-acknowledgement",  # a write is acknowledged before it is replicated
    "early-read",  # a read shows a write that is not replicated yet
    "deposed-reads",  # a deposed primary keeps answering reads
    "applied-twice",  # a repeated write is applied again, over a newer one
    "old-write-wins",  # the standby applies writes in the wrong order now and then
)
CLIENTS = 4
CALLS = 30


class Register:
    """One run. `history` has every call of every client."""

    def __init__(self, seed: int, bug: str = "") -> None:
        self.chance = random.Random(f"{seed} {bug}")
        self.bug = bug
        self.now = 0
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.count = 0
        self.epoch = 0
        self.decided: Any = None  # at the primary
        self.durable: Any = None  # at both
        self.frozen: Any = None  # at a deposed primary that still answers
        self.history: list[Operation] = []
        for client in range(CLIENTS):
            self.after(self.chance.randint(1, 20), self.next_call(f"c{client}", CALLS))
        self.after(self.chance.randint(30, 200), self.fail_over)
        while self.events:
            self.now, _, act = heapq.heappop(self.events)
            act()

    def after(self, delay: int, act: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + delay, self.count, act))

    def fail_over(self) -> None:
        """The standby leads with what was replicated."""
        self.epoch += 1
        self.frozen = self.decided
        self.decided = self.durable
        if self.now < 1500:
            self.after(self.chance.randint(30, 200), self.fail_over)

    def next_call(self, client: str, left: int) -> Callable[[], None]:
        def call() -> None:
            if left:
                kind = self.chance.random()
                if kind < 0.5:
                    self.read(client, left)
                else:
                    self.write(client, left, None if kind < 0.6 else f"{client}.{left}")

        return call

    def done(self, client: str, left: int, operation: Operation) -> None:
        self.history.append(operation)
        self.after(self.chance.randint(1, 20), self.next_call(client, left - 1))

    def read(self, client: str, left: int) -> None:
        called, epoch = self.now, self.epoch

        def answer() -> None:
            if self.bug == "deposed-reads" and self.epoch and self.chance.random() < 0.3:
                value = self.frozen
            elif self.bug == "early-read":
                value = self.decided
            else:
                value = self.durable
            if epoch != self.epoch and self.bug != "deposed-reads":
                self.done(client, left, Operation(called, None, "read", None, None, client))
            else:
                self.done(client, left, Operation(called, self.now, "read", None, value, client))

        self.after(self.chance.randint(1, 8), answer)

    def write(self, client: str, left: int, value: Any) -> None:
        called = self.now

        def decide() -> None:
            epoch, before = self.epoch, self.decided
            self.decided = value
            if self.bug == "early-acknowledgement":
                self.done(client, left, Operation(called, self.now, "write", value, None, client))

            def replicate() -> None:
                lost = epoch != self.epoch
                if not lost:
                    self.durable = value
                    if self.bug == "old-write-wins" and self.chance.random() < 0.2:
                        self.decided = self.durable = before
                if self.bug == "early-acknowledgement":
                    return
                if self.bug == "applied-twice" and not lost and self.chance.random() < 0.3:
                    self.after(self.chance.randint(10, 40), lambda: self.repeat(value))
                returned = None if lost else self.now
                self.done(client, left, Operation(called, returned, "write", value, None, client))

            self.after(self.chance.randint(1, 6), replicate)

        self.after(self.chance.randint(1, 6), decide)

    def repeat(self, value: Any) -> None:
        self.decided = self.durable = value
