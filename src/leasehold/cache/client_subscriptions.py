"""The prefixes that a client follows, over reconnections. Pure.

Each prefix is requested again on a new connection. Invariant: a request is either the first one for its prefix, for
which a caller waits, or a repeated one, for which no caller does.
"""

from __future__ import annotations

from typing import Final

from leasehold.base.invariants import ensure
from leasehold.cache.client_events import Follow
from leasehold.cache.model import Code, Outcome

_MOVE_PAUSE_MS: Final = 50  # before another address is tried, when this authority does not serve


class ClientSubscriptions:
    __slots__ = ("_prefixes", "_requested", "resubscribed_until_ms")

    def __init__(self) -> None:
        self._prefixes: set[bytes] = set()
        self._requested: dict[int, Follow] = {}
        self.resubscribed_until_ms: dict[int, int] = {}  # by request: when to try another address

    def add(self, seq: int, follow: Follow) -> None:
        self._requested[seq] = follow
        self._prefixes.add(follow.prefix)

    def remove(self, prefix: bytes) -> None:
        self._prefixes.discard(prefix)

    def answered(self, now_ms: int, outcome: Outcome) -> Follow | None:
        """The subscription that `outcome` answers, if a caller waits for it."""
        resubscribed = self.resubscribed_until_ms.pop(outcome.seq, None) is not None
        if resubscribed and outcome.code is Code.NOT_SERVING:
            self.resubscribed_until_ms[outcome.seq] = now_ms + _MOVE_PAUSE_MS
        follow = self._requested.pop(outcome.seq, None)
        if follow is not None and outcome.code is not Code.OK:
            self._prefixes.discard(follow.prefix)
        return follow

    def fail_requested(self) -> list[Follow]:
        """The connection was lost: every request that was not answered has failed."""
        failed = list(self._requested.values())
        self._prefixes -= {follow.prefix for follow in failed}
        self._requested.clear()
        self.resubscribed_until_ms.clear()
        return failed

    def prefixes(self) -> list[bytes]:
        return sorted(self._prefixes)

    def resubscribe(self, seq: int, until_ms: int) -> None:
        """Request `seq` repeats a subscription on a new connection, and should be answered by then."""
        self.resubscribed_until_ms[seq] = until_ms

    def overdue(self, now_ms: int) -> bool:
        """Whether a repeated subscription was not confirmed in time: this authority may not be serving."""
        return any(until_ms <= now_ms for until_ms in self.resubscribed_until_ms.values())

    def check(self) -> None:
        both = self._requested.keys() & self.resubscribed_until_ms.keys()
        ensure(not both, "a request is both a first and a repeated subscription", both)
