"""The leases that a grantor has given out: on which key, to which holder, until when. Pure.

Holders of one key are tracked up to a bound. Beyond it a lease is still granted, but only the latest end of such
leases is recorded. Until that end has passed, acknowledgements alone never prove that all leases are released.

Invariants:
- `_keys_of` is the inverse of `_leases`;
- a key has at most `holders_per_key_max` tracked holders;
- the end of every lease is covered by `_due`, so `sweep` removes it after it has expired.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from leasehold.base.invariants import ensure

_BUCKET_MS: Final = 1_000


class Lease:
    """One holder's lease on one key: its end (0: released), and the last request of the holder that it answered."""

    __slots__ = ("end_ms", "seq")

    def __init__(self, end_ms: int, seq: int) -> None:
        self.end_ms = end_ms
        self.seq = seq

    def extend(self, end_ms: int, seq: int) -> None:
        if self.end_ms < end_ms:
            self.end_ms = end_ms
        if self.seq < seq:
            self.seq = seq

    def release(self) -> None:
        self.end_ms = self.seq = 0


class LeaseTable:
    """Shared read leases on keys. Ends are on the grantor's clock; a lease is valid while `now_ms < end_ms`."""

    def __init__(self, holders_per_key_max: int) -> None:
        self._holders_per_key_max = holders_per_key_max
        self._leases: dict[bytes, dict[str, Lease]] = {}
        self._untracked_end_ms: dict[bytes, int] = {}
        self._keys_of: dict[str, set[bytes]] = {}
        # By the second in which a lease ends: the keys to look at when that second has passed.
        self._due: dict[int, set[bytes]] = {}

    def grant(self, key: bytes, holder: str, end_ms: int, seq: int) -> None:
        """Record a lease until `end_ms`, granted to request `seq`. The latest end and request of a holder count."""
        self.grant_all(key, {holder: seq}, end_ms)

    def grant_all(self, key: bytes, requests: dict[str, int], end_ms: int) -> None:
        """Record the same for several holders, each with its request."""
        leases = self._leases.get(key)
        if leases is None:
            leases = self._leases[key] = {}
        due = self._due.get(end_ms // _BUCKET_MS)
        if due is None:
            due = self._due[end_ms // _BUCKET_MS] = set()
        due.add(key)
        for holder, seq in requests.items():
            lease = leases.get(holder)
            if lease is None:
                self._add(key, leases, holder, Lease(end_ms, seq))
            else:
                lease.extend(end_ms, seq)

    def _add(self, key: bytes, leases: dict[str, Lease], holder: str, lease: Lease) -> None:
        if len(leases) >= self._holders_per_key_max:
            for name in [name for name, other in leases.items() if other.end_ms == 0]:
                self._remove(key, leases, name)
        if len(leases) < self._holders_per_key_max:
            leases[holder] = lease
            self._keys_of.setdefault(holder, set()).add(key)
        else:
            self._untracked_end_ms[key] = max(self._untracked_end_ms.get(key, 0), lease.end_ms)

    def latest_end_ms(self, key: bytes) -> int:
        """The latest end of any lease on `key` that was not released; 0 if there is none."""
        latest_ms = self._untracked_end_ms.get(key, 0)
        for lease in self._leases.get(key, {}).values():
            if lease.end_ms > latest_ms:
                latest_ms = lease.end_ms
        return latest_ms

    def live_holders(self, key: bytes, now_ms: int) -> list[str]:
        """The tracked holders of `key` whose leases may be valid."""
        return [name for name, lease in self._leases.get(key, {}).items() if now_ms < lease.end_ms]

    def has_untracked(self, key: bytes, now_ms: int) -> bool:
        return now_ms < self._untracked_end_ms.get(key, 0)

    def release(self, key: bytes, holder: str) -> None:
        """The holder has dropped `key`. Its row is kept: it often requests the new value right away."""
        leases = self._leases.get(key)
        lease = leases.get(holder) if leases is not None else None
        if lease is not None:
            lease.release()

    def release_requested_before(self, key: bytes, holder: str, seq: int) -> None:
        """The holder keeps nothing of `key` that it requested before its request `seq`."""
        lease = self._leases.get(key, {}).get(holder)
        if lease is not None and lease.seq < seq:
            lease.release()

    def release_holder(self, holder: str) -> None:
        """The holder has dropped everything."""
        for key in list(self._keys_of.get(holder, ())):
            leases = self._leases[key]
            self._remove(key, leases, holder)
            if not leases:
                del self._leases[key]

    def sweep(self, now_ms: int) -> None:
        """Remove expired leases. The cost depends only on the leases that expired since the last sweep."""
        for second in [second for second in self._due if (second + 1) * _BUCKET_MS <= now_ms]:
            for key in self._due.pop(second):
                self._prune(key, now_ms)

    def live_until_ms(self) -> int:
        """The latest end of all leases: after it none can be valid."""
        return max((self.latest_end_ms(key) for key in self.keys()), default=0)

    def keys(self) -> Iterator[bytes]:
        yield from self._leases.keys() | self._untracked_end_ms.keys()

    def holders(self) -> list[str]:
        return list(self._keys_of)

    def __len__(self) -> int:
        return sum(map(len, self._keys_of.values()))

    def _prune(self, key: bytes, now_ms: int) -> None:
        leases = self._leases.get(key, {})
        for holder in [holder for holder, lease in leases.items() if lease.end_ms <= now_ms]:
            self._remove(key, leases, holder)
        if self._untracked_end_ms.get(key, now_ms + 1) <= now_ms:
            del self._untracked_end_ms[key]
        if key in self._leases and not self._leases[key]:
            del self._leases[key]

    def _remove(self, key: bytes, leases: dict[str, Lease], holder: str) -> None:
        del leases[holder]
        keys = self._keys_of[holder]
        keys.discard(key)
        if not keys:
            del self._keys_of[holder]

    def check(self) -> None:
        pairs = {(holder, key) for key, leases in self._leases.items() for holder in leases}
        inverse = {(holder, key) for holder, keys in self._keys_of.items() for key in keys}
        ensure(pairs == inverse, "holders and keys disagree", pairs ^ inverse)
        for key, leases in self._leases.items():
            ensure(len(leases) <= self._holders_per_key_max, "too many holders are tracked", key, len(leases))
            for lease in leases.values():
                due = self._due.get(lease.end_ms // _BUCKET_MS, set())
                ensure(lease.end_ms == 0 or key in due, "a lease is never swept", key, lease.end_ms)
