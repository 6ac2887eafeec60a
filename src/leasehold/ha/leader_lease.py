"""The right to serve: how long a leader may answer after its last committed write. Pure."""

from __future__ import annotations

NEVER_MS = -(1 << 62)


class Right:
    """One epoch's right to serve.

    It is extended only by committed writes of this epoch under the fence, counted from when they were *sent*:
    a successor counts from when it *saw* them, which is later, so the two never overlap. It ends for good with a
    resignation or a hand-over that was sent, whatever became of the answer.
    """

    __slots__ = ("gone", "term_ms", "until_ms")

    def __init__(self, leader_ttl_ms: int, margin_ms: int) -> None:
        self.term_ms = leader_ttl_ms - margin_ms
        self.until_ms = NEVER_MS
        self.gone = False

    def committed(self, sent_ms: int) -> None:
        """A write of this epoch that was sent at `sent_ms` has been committed under the fence."""
        if not self.gone:
            self.until_ms = max(self.until_ms, sent_ms + self.term_ms)

    def give_up(self) -> None:
        """Never again in this epoch: called *before* a resignation or a hand-over is sent, or when deposed."""
        self.gone = True
        self.until_ms = NEVER_MS

    def holds(self, now_ms: int) -> bool:
        return now_ms < self.until_ms
