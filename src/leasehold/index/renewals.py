"""The contents of the next unlogged batch: renewed leases and evictions."""

from __future__ import annotations

from collections import deque

from leasehold.base.invariants import ensure
from leasehold.base.limits import index_hints_max
from leasehold.index.model import Object


class Renewals:
    """Objects whose lease was renewed, and objects that were evicted, since they were last sent to the standbys.

    Invariants: `dirty` holds exactly the objects whose `dirty` flag is set; `hinted_bytes` is at least the size of the
    objects in `hints`.
    """

    __slots__ = ("dirty", "hinted_bytes", "hints", "slow_dirty", "urgent")

    def __init__(self) -> None:
        self.dirty: list[Object] = []
        self.slow_dirty: dict[Object, None] = {}  # objects whose every renewal needs more than the hot path does
        self.urgent = False  # the next batch should be sent soon
        self.hints: deque[Object] = deque(maxlen=index_hints_max)  # evicted objects; the oldest are dropped
        self.hinted_bytes = 0

    def renewed(self, entry: Object, slow: bool) -> None:
        """The lease of an object was renewed. `slow`: each renewal of it must call this again."""
        if slow:
            self.slow_dirty[entry] = None
        else:
            entry.dirty = True
            self.dirty.append(entry)

    def hurry(self) -> None:
        """Send the next batch soon."""
        self.urgent = True

    def take_renewed(self, limit: int) -> list[Object]:
        """Up to `limit` objects with renewed leases."""
        batch = self.dirty[:limit]
        del self.dirty[:limit]
        while self.slow_dirty and len(batch) < limit:
            entry = next(iter(self.slow_dirty))
            del self.slow_dirty[entry]
            batch.append(entry)
        for entry in batch:
            entry.dirty = False
        return batch

    def finish_batch(self) -> bool:
        """A batch was filled; returns whether every renewal is in it. Then nothing is urgent any more."""
        complete = not self.dirty and not self.slow_dirty
        if complete:
            self.urgent = False
        return complete

    def hint(self, entry: Object, free_bytes: int) -> None:
        """An object was evicted. `free_bytes`: free space after it."""
        self.hints.append(entry)
        self.hinted_bytes += entry.size
        if self.hinted_bytes * 2 > free_bytes:
            # A successor without these hints would treat half of the free space as used: send them soon.
            self.urgent = True

    def take_hints(self, limit: int) -> list[Object]:
        """Up to `limit` evicted objects, the oldest first."""
        hints = self.hints
        taken = [hints.popleft() for _ in range(min(limit, len(hints)))]
        # Hints that were dropped from the bounded queue are counted until the queue is empty.
        self.hinted_bytes = self.hinted_bytes - sum(entry.size for entry in taken) if hints else 0
        return taken

    def clear(self) -> None:
        """An epoch begins. Another leader may have leased what was evicted in an older epoch: no hints of that."""
        for entry in self.dirty:
            entry.dirty = False
        self.dirty.clear()
        self.slow_dirty.clear()
        self.hints.clear()
        self.hinted_bytes = 0
        self.urgent = False

    def check(self) -> None:
        """Raise `InvariantBroken` unless the invariants hold."""
        ensure(all(entry.dirty for entry in self.dirty), "renewed objects have their flag set")
        ensure(sum(entry.size for entry in self.hints) <= self.hinted_bytes, "hinted bytes are counted")
