"""How long a lease should be: Gray and Cheriton's lease benefit factor, 2R / (S * W).

R and W are the rates of reads and writes, S is how many caches share the key. At a factor of one or less a lease
costs more messages (callbacks) than it saves, so none is granted. Above one, a lease saves messages if it is longer
than 1 / (R * (factor - 1)); we grant ten times that, within bounds.
"""

from __future__ import annotations

from typing import Final

_HALF_LIFE_MS: Final = 10_000
_TIMES_BREAK_EVEN: Final = 10


class Rates:
    """Decaying counts of one key's reads and writes: halved every ten seconds."""

    __slots__ = ("reads", "since_ms", "writes")

    def __init__(self, now_ms: int) -> None:
        self.reads = 0.0
        self.writes = 0.0
        self.since_ms = now_ms

    def count(self, now_ms: int, reads: int = 0, writes: int = 0) -> None:
        while now_ms - self.since_ms >= _HALF_LIFE_MS:
            self.reads /= 2
            self.writes /= 2
            self.since_ms += _HALF_LIFE_MS
            if self.reads + self.writes < 0.01:
                self.since_ms = now_ms
        self.reads += reads
        self.writes += writes


def benefit_factor(rates: Rates, sharers: int) -> float:
    """2R / (S * W); infinite without writes."""
    if rates.writes < 0.01:
        return float("inf")
    return 2 * rates.reads / (max(1, sharers) * rates.writes)


def adaptive_term_ms(rates: Rates, sharers: int, term_ms_min: int, term_ms_max: int) -> int:
    """The term for the next lease on this key; 0 if a lease would cost more than it saves."""
    factor = benefit_factor(rates, sharers)
    if factor <= 1:
        return 0
    if factor == float("inf") or rates.reads <= 0:
        return term_ms_max
    reads_per_ms = rates.reads / max(1, sharers) / (2 * _HALF_LIFE_MS)
    break_even_ms = 1 / (reads_per_ms * (factor - 1))
    return round(min(term_ms_max, max(term_ms_min, _TIMES_BREAK_EVEN * break_even_ms)))
