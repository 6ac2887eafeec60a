"""When the authority must look at a key again: a write may begin, or its time has run out. Pure.

Invariants:
- a key has at most one valid alarm, recorded in its state; an alarm in the heap that differs from it is stale;
- the valid alarm rings no later than the key is due. An early alarm sets the next one when it rings.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from leasehold.base.invariants import ensure
from leasehold.cache.key_state import FOREVER_MS, KeyState


class Alarms:
    def __init__(self) -> None:
        self._heap: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, at_ms: int, state: KeyState) -> None:
        """Look at `state` then, unless its alarm rings earlier anyway."""
        if at_ms < state.alarm_ms:
            state.set_alarm(at_ms)
            heappush(self._heap, (at_ms, state.key))

    def next_ms(self) -> int:
        """When the next alarm may ring."""
        return self._heap[0][0] if self._heap else FOREVER_MS

    def pop_due(self, now_ms: int) -> tuple[int, bytes] | None:
        """The time and key of one alarm that is due, perhaps a stale one; None if none is due."""
        return heappop(self._heap) if self._heap and self._heap[0][0] <= now_ms else None

    def check(self, now_ms: int, states: Iterable[KeyState]) -> None:
        """Raise `InvariantBroken` unless the invariants hold."""
        heap = set(self._heap)
        for state in states:
            due_ms = state.due_ms()
            ensure(due_ms == FOREVER_MS or state.alarm_ms <= max(due_ms, now_ms + 1), "an alarm is late", state.key)
            ensure(state.alarm_ms == FOREVER_MS or (state.alarm_ms, state.key) in heap, "an alarm is lost", state.key)
