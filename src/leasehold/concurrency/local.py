"""Waiting lines inside one process: tasks of one session that want the same lock, in the order they came.

Go's package lets two goroutines of one session into the same lock, since they share the key. Here the first in line
has the key, the others wait before they ask the store at all.
"""

from __future__ import annotations

import asyncio
from collections import deque


class LocalQueues:
    """One line per name; its head is whose turn it is. A line exists only while somebody is in it."""

    def __init__(self) -> None:
        self._lines: dict[bytes, deque[asyncio.Future[None]]] = {}

    def join(self, name: bytes) -> asyncio.Future[None]:
        """Take a place at the end; the future is done when the turn has come."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._lines.setdefault(name, deque())
        line.append(place)
        if line[0] is place:
            place.set_result(None)
        return place

    def occupied(self, name: bytes) -> bool:
        return name in self._lines

    def leave(self, name: bytes, place: asyncio.Future[None]) -> None:
        """Give up a place, whether its turn had come or not; the next one's turn comes if it was at the head."""
        line = self._lines[name]
        was_head = line[0] is place
        line.remove(place)
        if not line:
            del self._lines[name]
        elif was_head:
            line[0].set_result(None)
