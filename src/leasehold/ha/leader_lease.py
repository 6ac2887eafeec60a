"""The leader lease: how long a leader may answer after its last committed write. Pure."""

from __future__ import annotations

NEVER_MS = -(1 << 62)


class LeaderLease:
    """The leader lease of one epoch.

    Only committed writes of this epoch under the fence extend it, counted from when they were *sent*. A successor
    counts from when it *saw* them, which is later, so the two never overlap. Sending a resignation or a hand-over ends
    it permanently, whether or not the store answers.
    """

    __slots__ = ("given_up", "term_ms", "until_ms")

    def __init__(self, leader_ttl_ms: int, margin_ms: int) -> None:
        self.term_ms = leader_ttl_ms - margin_ms
        self.until_ms = NEVER_MS
        self.given_up = False

    def committed(self, sent_ms: int) -> None:
        """A write of this epoch that was sent at `sent_ms` has been committed under the fence."""
        if not self.given_up:
            self.until_ms = max(self.until_ms, sent_ms + self.term_ms)

    def give_up(self) -> None:
        """Never again in this epoch: called *before* a resignation or a hand-over is sent, or when deposed."""
        self.given_up = True
        self.until_ms = NEVER_MS

    def holds(self, now_ms: int) -> bool:
        return now_ms < self.until_ms
