"""Candidates for eviction, nearly in the order of lease ends, without scanning.

An object is in one bucket, that of its lease end when it was put there. Reads do not touch the wheel: when a bucket is
due, objects whose lease was renewed meanwhile move to the bucket of their new end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Final

from leasehold.index.model import Object

_BUCKET_BITS = 8  # 256 ms
_LOOK_AGAIN_MS = 10


class Wheel:
    """Buckets of objects by lease end. Objects from buckets that are due are `ripe`.

    `take_ripe()` removes and returns the first ripe object. It is the deque's own method: a Python call for each object
    would cost 2 % of an eviction. So `ripe` keeps its identity.
    """

    __slots__ = ("_buckets", "_looked_at", "_order", "_ripening", "ripe", "take_ripe")

    def __init__(self) -> None:
        self._buckets: dict[int, deque[Object]] = {}
        self._order: list[int] = []
        self.ripe: deque[Object] = deque()
        self.take_ripe: Final[Callable[[], Object]] = self.ripe.popleft
        self._looked_at = -1
        self._ripening = 0  # the latest bucket that ripe objects came from

    def add(self, entry: Object, end: int) -> None:
        number = end >> _BUCKET_BITS
        bucket = self._buckets.get(number)
        if bucket is None:
            self._buckets[number] = deque((entry,))
            heappush(self._order, number)
        else:
            bucket.append(entry)

    def add_later(self, entry: Object, end: int, now: int) -> None:
        """As `add`, but not into the current bucket, where it would be found again immediately."""
        self.add(entry, max(end, ((now >> _BUCKET_BITS) + 1) << _BUCKET_BITS))

    def ripen(self, now: int, limit: int) -> bool:
        """Make up to about `limit` more objects ripe whose bucket has passed. Returns False if there are none."""
        order = self._order
        if not order:
            return False
        number = self._ripening = order[0]
        if (number + 1) << _BUCKET_BITS <= now:
            bucket = self._buckets[number]
            if len(bucket) > limit:
                self.ripe.extend(bucket.popleft() for _ in range(limit))
            else:
                self.ripe.extend(bucket)
                del self._buckets[number]
                heappop(order)
            return True
        return number << _BUCKET_BITS <= now and self._ripen_part(number, now)

    def is_out_of_turn(self, entry: Object) -> bool:
        """Whether a ripe object was renewed since it was put into its bucket, and now belongs into a later one."""
        return entry.lease_end >> _BUCKET_BITS > self._ripening

    def ripen_all(self, now: int) -> None:
        """Make everything ripe whose bucket has begun."""
        order = self._order
        while order and order[0] << _BUCKET_BITS <= now:
            self.ripe.extend(self._buckets.pop(heappop(order)))

    def discarding(self, every: int) -> Iterator[None]:
        """Forget all objects. Pauses after `every` objects."""
        forgotten = 0
        for bucket in (self.ripe, *self._buckets.values()):
            while bucket:
                bucket.popleft()
                forgotten += 1
                if forgotten % every == 0:
                    yield

    def _ripen_part(self, number: int, now: int) -> bool:
        """The current bucket: only expired objects. It may be large, so it is not looked at too often."""
        if 0 <= now - self._looked_at < _LOOK_AGAIN_MS:
            return False
        bucket = self._buckets[number]
        ended = [entry for entry in bucket if entry.lease_end <= now]
        if not ended:
            self._looked_at = now
            return False
        self.ripe.extend(ended)
        left = deque(entry for entry in bucket if entry.lease_end > now)
        if left:
            self._buckets[number] = left
        else:
            del self._buckets[number]
            heappop(self._order)
        return True
