"""When callbacks leave: in *rounds*, so that writes that are under way together call each holder back once. Pure.

It is the waking of a holder that costs, not the key in the message. With eight writers at work a write that calls
everybody back by itself wakes seven holders, takes seven frames of acknowledgements, and its refills meet readers half
way; eight in one round share all of that. So

- while a round is out, the callbacks of further writes wait until everybody in it has acknowledged;
- after it they wait for as many writes as had a part in it or waited for it, for as long as it took: those writers
  have just been answered, and are about to write again;
- but nothing waits longer than `hold_ms`, and a write that comes alone does not wait at all;
- who does not acknowledge in that time is slow or gone, and holds up no round until it is heard of again.

Nothing depends on when a callback arrives (`Send`), so this is about cost and never about truth.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Holder = TypeVar("Holder")


class Rounds(Generic[Holder]):
    """`hold` for every callback, `acknowledged` and `gone` as they happen; `begin` at the time that `due_ms` names."""

    def __init__(self, hold_ms: int) -> None:
        self._hold_ms = hold_ms
        self.waiting: dict[Holder, None] = {}  # in the order of their first callback
        self._waiting_since_ms: int | None = None
        self._writes_waiting = 0
        self._last_write: object = None
        self._out: set[Holder] = set()  # who has been told and has not answered
        self._silent: set[Holder] = set()  # who has not for too long
        self._begun_ms = 0
        self._writes_out = 0
        self._writes_expected = 0
        self._company_until_ms = 0

    def hold(self, holder: Holder, write: object) -> None:
        """`holder` is to be called back for `write`; the callbacks of one write come one after the other."""
        self.waiting[holder] = None
        if write is not self._last_write:
            self._last_write = write
            self._writes_waiting += 1

    def acknowledged(self, now_ms: int, holder: Holder) -> None:
        """`holder` has answered; or it is gone, and will not."""
        self._silent.discard(holder)
        if holder not in self._out:
            return
        self._out.remove(holder)
        if not self._out:
            self._writes_expected = self._writes_out + self._writes_waiting
            self._company_until_ms = now_ms + max(1, now_ms - self._begun_ms)

    def gone(self, now_ms: int, holder: Holder) -> None:
        self.waiting.pop(holder, None)
        self.acknowledged(now_ms, holder)

    def due_ms(self, now_ms: int) -> int | None:
        """When those who wait are to be told, as far as is known now; None while nobody waits. Ask after `hold`."""
        if not self.waiting:
            return None
        if self._waiting_since_ms is None:
            self._waiting_since_ms = now_ms
        latest_ms = self._waiting_since_ms + self._hold_ms
        if self._out:
            return latest_ms
        complete = self._writes_waiting >= self._writes_expected
        return now_ms if complete else min(latest_ms, self._company_until_ms)

    def begin(self, now_ms: int) -> list[Holder]:
        """A round: who is told now."""
        holders, self.waiting = list(self.waiting), {}
        self._silent |= self._out
        self._out = set(holders) - self._silent
        self._begun_ms = now_ms
        self._writes_out, self._writes_waiting = self._writes_waiting, 0
        self._waiting_since_ms, self._last_write = None, None
        return holders
