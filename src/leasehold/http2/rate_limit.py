"""How often a peer may do what costs us more than it costs the peer."""

from __future__ import annotations


class Allowance:
    """So many at once, and so many a second from then on."""

    __slots__ = ("_left", "_max", "_per_s", "_taken_s")

    def __init__(self, immediately: int, per_s: int) -> None:
        self._max = self._left = float(immediately)
        self._per_s = per_s
        self._taken_s = 0.0

    def take(self, now_s: float) -> bool:
        """Take one; False if there is none left."""
        self._left = min(self._max, self._left + (now_s - self._taken_s) * self._per_s) - 1
        self._taken_s = now_s
        return self._left >= 0
