"""How long a session may be believed: pure arithmetic on the end of what is certain.

The store counts a lease from when it *receives* a renewal, which is never before the client *sent* it. So the lease
lives at least until send time + TTL on the client's clock, as long as both clocks tick alike; the margin pays for the
difference in tick and for the time that the holder needs to stop.
"""

from __future__ import annotations

from enum import Enum

MARGIN_PART = 20
MARGIN_MS_MIN = 50
MARGIN_MS_MAX = 3_000


class SessionState(Enum):
    HEALTHY = "healthy"
    SUSPENDED = "suspended"  # renewals are not answered; what is held is still held
    LOST = "lost"  # final: nothing held under this session is certain any longer


def margin_for(ttl_ms: int) -> int:
    """A twentieth of the TTL, within bounds: clock drift of 1 % and the rest to stop in."""
    return min(max(ttl_ms // MARGIN_PART, MARGIN_MS_MIN), MARGIN_MS_MAX, ttl_ms // 2)


class Tenure:
    """What one session knows about its lease. `LOST` is final: a proof that comes too late does not revive it.

    Renewals that arrive after the end of what was certain do not count, although the lease may have survived: in
    between, somebody may have asked and been told "lost".
    """

    __slots__ = ("certain_until_ms", "lost_because", "margin_ms", "ttl_ms")

    def __init__(self, deadline_ms: int, ttl_ms: int, margin_ms: int) -> None:
        self.ttl_ms = ttl_ms
        self.margin_ms = margin_ms
        self.certain_until_ms = deadline_ms - margin_ms
        self.lost_because = ""

    def renewed(self, now_ms: int, deadline_ms: int) -> None:
        """A renewal was acknowledged; `deadline_ms` is its send time plus the TTL answered."""
        if self.state(now_ms) is not SessionState.LOST:
            self.certain_until_ms = max(self.certain_until_ms, deadline_ms - self.margin_ms)

    def end(self, reason: str) -> None:
        """The session is over; the first reason stays."""
        self.lost_because = self.lost_because or reason

    def state(self, now_ms: int) -> SessionState:
        if not self.lost_because and now_ms >= self.certain_until_ms:
            late_ms = now_ms - self.certain_until_ms
            self.end(f"no renewal was acknowledged in time (certain until {late_ms} ms ago, TTL {self.ttl_ms} ms)")
        if self.lost_because:
            return SessionState.LOST
        # A renewal is sent when a third of the TTL has passed: with less than half of it left, one has failed.
        if now_ms >= self._suspected_ms():
            return SessionState.SUSPENDED
        return SessionState.HEALTHY

    def next_change_ms(self, now_ms: int) -> int:
        """When the state changes by itself if nothing is heard."""
        suspected_ms = self._suspected_ms()
        return suspected_ms if now_ms < suspected_ms else self.certain_until_ms

    def _suspected_ms(self) -> int:
        return self.certain_until_ms + self.margin_ms - self.ttl_ms // 2
