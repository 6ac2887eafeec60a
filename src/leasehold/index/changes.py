"""Which objects readers can see: a fingerprint of all of them, and the changes since the last look."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from msgspec import Struct

from leasehold.base.invariants import ensure
from leasehold.index.model import Object

_MASK = (1 << 64) - 1


class Change(Struct, frozen=True, gc=False):
    """A version of a key became readable, or is no longer. To be published when record `after` is durable."""

    after: int
    stored: bool
    tenant: bytes
    key: bytes
    put_seq: int
    group: bytes


def fingerprint_of(put_seq: int) -> int:
    """What one version adds to a fingerprint. Put numbers are unique in a cluster, so they stand for tenant and key."""
    mixed = put_seq * 0x9E3779B97F4A7C15 & _MASK
    mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9 & _MASK
    return mixed ^ mixed >> 32


def with_version(fingerprint: int, put_seq: int) -> int:
    """The fingerprint after this version was added."""
    return fingerprint + fingerprint_of(put_seq) & _MASK


def without_version(fingerprint: int, put_seq: int) -> int:
    """The fingerprint after this version was taken away."""
    return fingerprint - fingerprint_of(put_seq) & _MASK


class Changes:
    """The readable versions of this node, as a fingerprint, and on a primary the list of changes to publish.

    Evictions have no records, so two nodes at the same record may have different objects. Equal fingerprints prove
    that they have the same ones; a subscriber compares its own picture with it too.

    Changes stand in the order of their decisions. Each names the record that it waits for; an eviction has no record
    of its own and waits for the end of the put that it ends.

    Invariant: `fingerprint` and `count` are those of the readable objects.
    """

    __slots__ = ("_limit", "_queue", "_recording", "count", "dropped_count", "dropped_n", "fingerprint")

    def __init__(self, limit: int) -> None:
        """`limit`: changes kept at most. If there are more, all are dropped."""
        self._limit = limit
        self._queue: deque[Change] = deque()
        self._recording = False
        self.dropped_count = 0  # changes dropped since recording began
        self.dropped_n = 0  # changes up to this record were dropped; 0: none
        self.fingerprint = 0
        self.count = 0

    def stored(self, entry: Object, n: int) -> None:
        """Record `n` made an object readable."""
        self.fingerprint = with_version(self.fingerprint, entry.put_seq)
        self.count += 1
        if self._recording:
            self._add(Change(n, True, entry.tenant, entry.key, entry.put_seq, entry.group))

    def removed(self, entry: Object, n: int) -> None:
        """An object is no longer readable: because of record `n`, or evicted after it."""
        self.fingerprint = without_version(self.fingerprint, entry.put_seq)
        self.count -= 1
        if self._recording:
            self._add(Change(n, False, entry.tenant, entry.key, entry.put_seq, entry.group))

    def _add(self, change: Change) -> None:
        if len(self._queue) >= self._limit:
            self.dropped_n = max(self.dropped_n, *(each.after for each in self._queue))
            self.dropped_count += len(self._queue)
            self._queue.clear()
        self._queue.append(change)

    def record(self, on: bool) -> None:
        """Start to list changes (this node leads), or stop. Earlier ones are dropped."""
        self._queue.clear()
        self._recording, self.dropped_n, self.dropped_count = on, 0, 0

    def take(self, durable_n: int, limit: int) -> list[Change]:
        """Up to `limit` changes, the oldest first, whose records and all earlier ones are durable."""
        queue = self._queue
        taken: list[Change] = []
        while queue and len(taken) < limit and queue[0].after <= durable_n:
            taken.append(queue.popleft())
        return taken

    def forget_dropped(self) -> None:
        """Subscribers were sent a reload: what was dropped is of no interest any more."""
        self.dropped_n = 0

    def unpublished(self) -> dict[int, Change]:
        """By put number, the first change that waits to be published: what subscribers know is the state before it.

        A version on disk may leave and return, so there may be several.
        """
        first: dict[int, Change] = {}
        for change in self._queue:
            first.setdefault(change.put_seq, change)
        return first

    def published(self) -> tuple[int, int]:
        """Fingerprint and number of the readable objects without the changes that wait to be published."""
        fingerprint, count = self.fingerprint, self.count
        for change in self._queue:
            update = without_version if change.stored else with_version
            fingerprint = update(fingerprint, change.put_seq)
            count += -1 if change.stored else 1
        return fingerprint, count

    def check(self, objects: Iterable[Object]) -> None:
        """Raise `InvariantBroken` unless the invariant holds."""
        fingerprint, count = 0, 0
        for entry in objects:
            if entry.visible:
                fingerprint, count = with_version(fingerprint, entry.put_seq), count + 1
        ensure((fingerprint, count) == (self.fingerprint, self.count), "readable objects are known", self.count, count)
