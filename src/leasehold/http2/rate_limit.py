"""A limit on requests that cost us more than they cost the peer."""

from __future__ import annotations


class Allowance:
    """A token bucket: `burst` tokens, refilled at a constant rate per second."""

    __slots__ = ("_left", "_max", "_per_s", "_taken_s")

    def __init__(self, immediately: int, per_s: int) -> None:
        self._max = self._left = float(immediately)
        self._per_s = per_s
        self._taken_s = 0.0

    def take(self, now_s: float) -> bool:
        """Take one token. Returns False if there is none left."""
        self._left = min(self._max, self._left + (now_s - self._taken_s) * self._per_s) - 1
        self._taken_s = now_s
        return self._left >= 0
