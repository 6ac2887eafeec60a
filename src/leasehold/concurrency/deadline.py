"""How long a session is certainly alive, as known on the client. Pure.

The store counts a lease from when it *receives* a renewal, which is never before the client *sent* it. So the lease
lives at least until send time + TTL on the client's clock, if both clocks run at the same rate. The margin covers the
difference in rate, and the time that the holder needs to stop.
"""

from __future__ import annotations

from enum import Enum

MARGIN_PART = 20
MARGIN_MS_MIN = 50
MARGIN_MS_MAX = 3_000


class SessionState(Enum):
    HEALTHY = "healthy"
    SUSPENDED = "suspended"  # renewals are not answered; locks are still held
    LOST = "lost"  # final: the session's locks may have expired


def margin_for(ttl_ms: int) -> int:
    """A twentieth of the TTL, within bounds: 1 % for clock drift, the rest for stopping."""
    return min(max(ttl_ms // MARGIN_PART, MARGIN_MS_MIN), MARGIN_MS_MAX, ttl_ms // 2)


class SessionDeadline:
    """Until when one session's lease is certainly alive. `LOST` is final.

    A renewal that is answered after the deadline does not count, although the lease may have survived: meanwhile a
    caller may have seen `LOST`.
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
        """The session ends. The first reason is kept."""
        self.lost_because = self.lost_because or reason

    def state(self, now_ms: int) -> SessionState:
        if not self.lost_because and now_ms >= self.certain_until_ms:
            late_ms = now_ms - self.certain_until_ms
            self.end(f"no renewal was acknowledged in time (certain until {late_ms} ms ago, TTL {self.ttl_ms} ms)")
        if self.lost_because:
            return SessionState.LOST
        # Renewals are sent after a third of the TTL. With less than half of it left, one has failed.
        if now_ms >= self._suspected_ms():
            return SessionState.SUSPENDED
        return SessionState.HEALTHY

    def next_change_ms(self, now_ms: int) -> int:
        """When the state changes next if no renewal is answered."""
        suspected_ms = self._suspected_ms()
        return suspected_ms if now_ms < suspected_ms else self.certain_until_ms

    def _suspected_ms(self) -> int:
        return self.certain_until_ms + self.margin_ms - self.ttl_ms // 2
