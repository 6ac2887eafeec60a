"""Who holds what until when, as the grantor knows it. Pure.

Holders of one key are tracked up to a bound. Beyond it a lease is still given, but only the latest end of such
leases is remembered, and it is *sticky*: until it has passed nobody can say "all have answered".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_BUCKET_MS: Final = 1_000


class Hold:
    """One holder's lease on one key: until when (0: dropped), and which of the holder's requests asked for it."""

    __slots__ = ("asked", "end_ms")

    def __init__(self, end_ms: int, asked: int) -> None:
        self.end_ms = end_ms
        self.asked = asked


class LeaseTable:
    """Shared read leases on keys. Ends are on the grantor's clock; a lease is over once `now_ms >= end_ms`."""

    def __init__(self, holders_per_key_max: int) -> None:
        self._holders_per_key_max = holders_per_key_max
        self._holds: dict[bytes, dict[str, Hold]] = {}
        self._untracked_end_ms: dict[bytes, int] = {}
        self._keys_of: dict[str, set[bytes]] = {}
        # By the second in which a lease ends: what to look at when that second has passed.
        self._due: dict[int, set[bytes]] = {}

    def grant(self, key: bytes, holder: str, end_ms: int, asked: int) -> None:
        """Note a lease until `end_ms`. A holder's leases on one key add up: the latest end and request count."""
        self.grant_all(key, {holder: asked}, end_ms)

    def grant_all(self, key: bytes, asked: dict[str, int], end_ms: int) -> None:
        """The same to several holders, each with the request by which it asked."""
        holds = self._holds.get(key)
        if holds is None:
            holds = self._holds[key] = {}
        due = self._due.get(end_ms // _BUCKET_MS)
        if due is None:
            due = self._due[end_ms // _BUCKET_MS] = set()
        due.add(key)
        for holder, by in asked.items():
            hold = holds.get(holder)
            if hold is None:
                self._add(key, holds, holder, Hold(end_ms, by))
                continue
            if hold.end_ms < end_ms:
                hold.end_ms = end_ms
            if hold.asked < by:
                hold.asked = by

    def _add(self, key: bytes, holds: dict[str, Hold], holder: str, hold: Hold) -> None:
        if len(holds) >= self._holders_per_key_max:
            for name in [name for name, other in holds.items() if other.end_ms == 0]:
                self._remove(key, holds, name)
        if len(holds) < self._holders_per_key_max:
            holds[holder] = hold
            self._keys_of.setdefault(holder, set()).add(key)
        else:
            self._untracked_end_ms[key] = max(self._untracked_end_ms.get(key, 0), hold.end_ms)

    def latest_end_ms(self, key: bytes) -> int:
        """The latest end ever given out on `key` and not released; 0 if none."""
        latest_ms = self._untracked_end_ms.get(key, 0)
        for hold in self._holds.get(key, {}).values():
            if hold.end_ms > latest_ms:
                latest_ms = hold.end_ms
        return latest_ms

    def live_holders(self, key: bytes, now_ms: int) -> list[str]:
        """The tracked holders of `key` whose leases may be valid."""
        return [name for name, hold in self._holds.get(key, {}).items() if now_ms < hold.end_ms]

    def has_untracked(self, key: bytes, now_ms: int) -> bool:
        return now_ms < self._untracked_end_ms.get(key, 0)

    def release(self, key: bytes, holder: str) -> None:
        """The holder has said that it dropped `key`. Its place is kept: it often asks for the new value at once."""
        holds = self._holds.get(key)
        hold = holds.get(holder) if holds is not None else None
        if hold is not None:
            hold.end_ms = hold.asked = 0

    def release_requested_before(self, key: bytes, holder: str, asked: int) -> None:
        """The holder keeps nothing of `key` that it asked for before its request number `asked`."""
        hold = self._holds.get(key, {}).get(holder)
        if hold is not None and hold.asked < asked:
            self.release(key, holder)

    def release_holder(self, holder: str) -> None:
        """The holder has dropped everything."""
        for key in list(self._keys_of.get(holder, ())):
            holds = self._holds[key]
            self._remove(key, holds, holder)
            if not holds:
                del self._holds[key]

    def sweep(self, now_ms: int) -> None:
        """Forget what is over; costs only what has become due since the last sweep."""
        for second in [second for second in self._due if (second + 1) * _BUCKET_MS <= now_ms]:
            for key in self._due.pop(second):
                self._prune(key, now_ms)

    def live_until_ms(self) -> int:
        """The latest end of all: after it no lease can be valid."""
        return max((self.latest_end_ms(key) for key in self.keys()), default=0)

    def keys(self) -> Iterator[bytes]:
        yield from self._holds.keys() | self._untracked_end_ms.keys()

    def holders(self) -> list[str]:
        return list(self._keys_of)

    def __len__(self) -> int:
        return sum(map(len, self._keys_of.values()))

    def _prune(self, key: bytes, now_ms: int) -> None:
        holds = self._holds.get(key, {})
        for holder in [holder for holder, hold in holds.items() if hold.end_ms <= now_ms]:
            self._remove(key, holds, holder)
        if self._untracked_end_ms.get(key, now_ms + 1) <= now_ms:
            del self._untracked_end_ms[key]
        if key in self._holds and not self._holds[key]:
            del self._holds[key]

    def _remove(self, key: bytes, holds: dict[str, Hold], holder: str) -> None:
        del holds[holder]
        keys = self._keys_of[holder]
        keys.discard(key)
        if not keys:
            del self._keys_of[holder]
