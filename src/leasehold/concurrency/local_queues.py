"""Queues inside one process: tasks of one session that want the same lock, in the order of their calls.

Go's package lets two goroutines of one session hold the same lock, since they share the key. Here the first task in the
queue uses the key, and the others wait before they send anything to the store.
"""

from __future__ import annotations

import asyncio
from collections import deque


class LocalQueues:
    """One queue per name; its first place has the turn. A queue exists only while it has a place."""

    def __init__(self) -> None:
        self._queues: dict[bytes, deque[asyncio.Future[None]]] = {}

    def join(self, name: bytes) -> asyncio.Future[None]:
        """Add a place at the end; the future is done when it has the turn."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._queues.setdefault(name, deque())
        queue.append(place)
        if queue[0] is place:
            place.set_result(None)
        return place

    def occupied(self, name: bytes) -> bool:
        return name in self._queues

    def leave(self, name: bytes, place: asyncio.Future[None]) -> None:
        """Remove a place. If it had the turn, the next place gets it."""
        queue = self._queues[name]
        was_first = queue[0] is place
        queue.remove(place)
        if not queue:
            del self._queues[name]
        elif was_first:
            queue[0].set_result(None)
