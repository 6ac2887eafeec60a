"""When a lease is over, for each of its two sides. The one place where the drift margin is computed.

The grantor counts from when it *grants*, the holder from when it *sent* the request that was answered, which is
earlier. No clock is compared with another; all that is assumed is that two clocks *tick* alike to within
`drift_ppm`. The holder gives up early by the margin, so the grantor need not add anything.
"""

from __future__ import annotations

PPM = 1_000_000
DRIFT_PPM_DEFAULT = 1_000  # one in a thousand: ten times worse than a crystal that is out of specification


def margin_ms(term_ms: int, drift_ppm: int) -> int:
    """How much earlier than the term a holder must stop: the drift over the term, plus the clock's own resolution."""
    return -(-term_ms * drift_ppm // PPM) + 1


def holder_deadline_ms(sent_ms: int, term_ms: int, drift_ppm: int) -> int:
    """Until when (exclusive, on the holder's clock) a lease may be used that answered a request sent at `sent_ms`."""
    return sent_ms + term_ms - margin_ms(term_ms, drift_ppm)


def outlasts_ms(term_ms: int, drift_ppm: int) -> int:
    """How long one must wait to be sure that a term granted by *another* clock has passed."""
    return term_ms + margin_ms(term_ms, drift_ppm)
