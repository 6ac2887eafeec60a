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


class WorkBudget:
    """A token bucket for work of different sizes. A peer without tokens waits; it may be in debt by one item."""

    __slots__ = ("_left", "_max", "_paid_s", "_per_s")

    def __init__(self, burst: int, per_s: int) -> None:
        self._max = self._left = float(burst)
        self._per_s = per_s
        self._paid_s = 0.0

    def pay(self, now_s: float, work: int) -> float:
        """Pay for `work` that was done. Returns the seconds until more may be done; 0 if there are tokens left."""
        self._left = min(self._max, self._left + (now_s - self._paid_s) * self._per_s) - work
        self._paid_s = now_s
        return max(0.0, -self._left / self._per_s)
