"""When a lease expires, for the grantor and for the holder. The only place where the drift margin is computed.

The grantor counts from when it *grants*, the holder from when it *sent* the request that was answered, which is
earlier. No clock is compared with another. The only assumption is that the *rates* of two clocks differ by at most
`drift_ppm`. The holder stops earlier by the margin, so the grantor need not add one.
"""

from __future__ import annotations

PPM = 1_000_000
DRIFT_PPM_DEFAULT = 1_000  # 0.1 %: ten times worse than a crystal that is out of specification


def margin_ms(term_ms: int, drift_ppm: int) -> int:
    """How much earlier than the term a holder must stop: the drift over the term, plus the clock's own resolution."""
    return -(-term_ms * drift_ppm // PPM) + 1


def holder_deadline_ms(sent_ms: int, term_ms: int, drift_ppm: int) -> int:
    """Until when (exclusive, on the holder's clock) the lease granted to a request sent at `sent_ms` may be used."""
    return sent_ms + term_ms - margin_ms(term_ms, drift_ppm)


def outlasts_ms(term_ms: int, drift_ppm: int) -> int:
    """How long to wait until a lease that was counted on *another* clock has certainly expired."""
    return term_ms + margin_ms(term_ms, drift_ppm)
