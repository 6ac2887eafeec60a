"""Internal time: one axis for the lease ends of all epochs."""

from __future__ import annotations

from leasehold.base.invariants import ensure
from leasehold.index.records import Begin


class LeaderClock:
    """Leader time of the current epoch, placed on one axis with the epochs before it.

    Lease ends of several epochs must be comparable, and an epoch must begin without a walk over a million objects. So
    all times inside the index are on one axis: internal time = leader time + `offset`. No caller sees this axis.

    - After a hand-over the new epoch continues where the old one stopped.
    - After a death the new epoch begins *beyond every lease end that can have been granted before* (`older_than`).
      Every older end counts as `grace_end`.

    Invariants: `older_than <= grace_end`, `epoch_start <= latest`.
    """

    __slots__ = ("begin_n", "epoch_start", "grace_end", "latest", "max_term_ms", "offset", "older_than")

    def __init__(self, max_term_ms: int) -> None:
        self.offset = 0
        self.latest = 0  # the latest internal time seen
        self.max_term_ms = max_term_ms  # the longest lease that may be granted; a record raises or lowers it
        self.older_than = 0  # lease ends before this are of an older epoch, or from before a gap
        self.grace_end = 0  # ... and count as this
        self.begin_n = 0  # the record that began this epoch
        self.epoch_start = 0  # pings and unfinished puts count from here at the earliest

    def see(self, now: int) -> None:
        """The leader's clock has reached this internal time."""
        if now > self.latest:
            self.latest = now

    def grace_left(self, now: int) -> int:
        """How long the grace still lasts, in milliseconds."""
        return max(0, self.grace_end - now)

    # --- epochs ---

    def begin_after_death(self, record: Begin) -> int:
        """Start the new axis beyond all older ends.

        Returns by how many milliseconds this node had to start later than the leader decided: it may have seen more of
        the old epoch than the leader has. Times that are not lifted to the grace must move by the same amount.
        """
        beyond = self.latest + self.max_term_ms + 1
        self.offset += record.shift_ms
        moved_ms = max(0, beyond - self.offset - record.at_ms)
        self.offset += moved_ms
        self.older_than = self.offset + record.at_ms
        self.grace_end = self.older_than + record.grace_ms
        return moved_ms

    def begin_after_handover(self, record: Begin) -> None:
        """Continue the old axis: older ends keep their distance, plus drift."""
        self.offset += record.handover_ms - record.drift_ms

    def start_epoch(self, n: int, record: Begin) -> int:
        """Record `n` began an epoch; returns its internal time."""
        now = self.offset + record.at_ms
        self.see(now)
        self.begin_n = n
        self.epoch_start = now
        self.max_term_ms = record.max_term_ms
        return now

    def set_max_term(self, max_term_ms: int) -> None:
        """Change the longest lease that may be granted."""
        self.max_term_ms = max_term_ms

    def gap_closed(self, leader_ms: int) -> None:
        """Renewals were missed until here: no lease counts as expired before `leader_ms` + the maximum term (H3)."""
        self.grace_end = max(self.grace_end, leader_ms + self.offset + self.max_term_ms)
        self.older_than = max(self.older_than, self.grace_end)

    def load(self, latest: int, max_term_ms: int, older_than: int, grace_end: int, epoch_start: int) -> None:
        """Continue from a snapshot, whose times are leader time (`offset` is 0)."""
        self.latest, self.max_term_ms = latest, max_term_ms
        self.older_than, self.grace_end, self.epoch_start = older_than, grace_end, epoch_start

    def check(self) -> None:
        """Raise `InvariantBroken` unless the invariants hold."""
        ensure(self.older_than <= self.grace_end, "older ends count as the grace", self.older_than, self.grace_end)
        ensure(self.epoch_start <= self.latest, "the epoch has begun", self.epoch_start, self.latest)
