"""When callbacks are sent: in *rounds*, so that concurrent writes call each holder back once. Pure.

Waking a holder is expensive; one more key in the message is cheap. With eight concurrent writers, a write that calls
back alone wakes seven holders, takes seven frames of acknowledgements, and its refills meet readers half way. Eight
writes in one round share all of that. So:

- while a round is out, the callbacks of further writes wait until every holder in it has acknowledged;
- after it they wait for as many writes as took part in it or waited for it, for as long as the round took: those
  writers have just been answered, and are about to write again;
- no callback waits longer than `delay_max_ms`, and the callbacks of a single write do not wait at all;
- a holder that does not acknowledge in that time is *silent*, and delays no further round until it acknowledges.

No promise depends on when a callback arrives (see `Send`), so this affects cost, never correctness.

Invariants: a holder in a round is not silent; if holders are queued, at least one write is.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from leasehold.base.invariants import ensure

Holder = TypeVar("Holder")


class CallbackRounds(Generic[Holder]):
    """Call `add` for every callback, `acknowledged` and `remove` as they happen, and `begin` at `due_ms`."""

    def __init__(self, delay_max_ms: int) -> None:
        self._delay_max_ms = delay_max_ms
        self.queued: dict[Holder, None] = {}  # in the order of their first callback
        self._queued_since_ms: int | None = None
        self._writes_queued = 0
        self._last_write: object = None
        self._unacked: set[Holder] = set()
        self._silent: set[Holder] = set()
        self._begun_ms = 0
        self._writes_in_round = 0
        self._writes_expected = 0
        self._expected_until_ms = 0

    def add(self, holder: Holder, write: object) -> None:
        """Queue a callback of `write` to `holder`. The callbacks of one write are added one after the other."""
        self.queued[holder] = None
        if write is not self._last_write:
            self._last_write = write
            self._writes_queued += 1

    def acknowledged(self, now_ms: int, holder: Holder) -> None:
        self._silent.discard(holder)
        if holder not in self._unacked:
            return
        self._unacked.remove(holder)
        if not self._unacked:
            self._writes_expected = self._writes_in_round + self._writes_queued
            self._expected_until_ms = now_ms + max(1, now_ms - self._begun_ms)

    def remove(self, now_ms: int, holder: Holder) -> None:
        """The holder has disconnected: it is neither called back nor waited for."""
        self.queued.pop(holder, None)
        self.acknowledged(now_ms, holder)

    def due_ms(self, now_ms: int) -> int | None:
        """When the next round is due, as far as is known now; None if no callback is queued. Call it after `add`."""
        if not self.queued:
            return None
        if self._queued_since_ms is None:
            self._queued_since_ms = now_ms
        latest_ms = self._queued_since_ms + self._delay_max_ms
        if self._unacked:
            return latest_ms
        complete = self._writes_queued >= self._writes_expected
        return now_ms if complete else min(latest_ms, self._expected_until_ms)

    def begin(self, now_ms: int) -> list[Holder]:
        """Begin a round; returns the holders to call back now."""
        holders, self.queued = list(self.queued), {}
        self._silent |= self._unacked
        self._unacked = set(holders) - self._silent
        self._begun_ms = now_ms
        self._writes_in_round, self._writes_queued = self._writes_queued, 0
        self._queued_since_ms, self._last_write = None, None
        return holders

    def check(self) -> None:
        ensure(not self._unacked & self._silent, "a silent holder delays a round")
        ensure(not self.queued or self._writes_queued > 0, "a callback is queued for no write")
