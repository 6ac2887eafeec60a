"""Counters that Mooncake's metrics have beyond the calls of each function: batches, reads and sizes of puts.

The C++ master counts a batch in which every item failed as a failure, and one in which some failed as a partial
success. Counts are since this worker started.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from leasehold.wire.schema import Failed

VALUE_SIZE_BOUNDS: Final = tuple(4096 * factor for factor in (1, 16, 64, 256, 1024, 4096, 16384))
_NEW_SIZES_MAX: Final = 1_000

# Their first argument lists the items that are requested, and their result those that were found.
_FOUND_OF_REQUESTED: Final = ("BatchQueryIp", "BatchReplicaClear")


class Batches:
    """The batches of one function."""

    __slots__ = ("failed_items", "failures", "items", "partial_successes", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.failures = 0
        self.partial_successes = 0
        self.items = 0
        self.failed_items = 0

    def add(self, items: int, failed: int) -> None:
        """One request with this many items, of which `failed` were refused."""
        self.requests += 1
        self.items += items
        self.failed_items += failed
        if failed == items:
            self.failures += 1
        elif failed:
            self.partial_successes += 1


class CallCounts:
    """All counters. A handler fetches those of its function once."""

    def __init__(self) -> None:
        self._batches: dict[str, Batches] = {}
        self._size_counts = [0] * (len(VALUE_SIZE_BOUNDS) + 1)
        self._new_sizes: Counter[int] = Counter()
        self.size_sum = 0
        self.gets = 0
        self.hits = 0
        self.hit_bytes = 0

    @property
    def batches(self) -> Mapping[str, Batches]:
        """By function."""
        return self._batches

    def batches_of(self, function: str) -> Batches:
        """The batches of one function."""
        return self._batches.setdefault(function, Batches())

    def result(self, function: str, arguments: Sequence[Any], value: Any) -> None:
        """Count a call by its result, if it is a batch. Hot functions count their own."""
        if function in _FOUND_OF_REQUESTED:
            items = len(arguments[0])
            self.batches_of(function).add(items, items if isinstance(value, Failed) else items - len(value))
        elif function.startswith("Batch"):
            self.batches_of(function).add(len(value), sum(isinstance(each, Failed) for each in value))

    def got(self, gets: int, hits: int, hit_bytes: int) -> None:
        """Reads: how many keys were looked up, found, and how large the found objects are."""
        self.gets += gets
        self.hits += hits
        self.hit_bytes += hit_bytes

    def started(self, sizes: Iterable[int]) -> None:
        """Puts were started, of these sizes."""
        self._new_sizes.update(sizes)
        if len(self._new_sizes) > _NEW_SIZES_MAX:
            self._sort_sizes()

    def sizes(self) -> list[int]:
        """The number of started puts by size: one for each bound, not cumulated, and the rest."""
        self._sort_sizes()
        return list(self._size_counts)

    def _sort_sizes(self) -> None:
        for size, count in self._new_sizes.items():
            self._size_counts[bisect_left(VALUE_SIZE_BOUNDS, size)] += count
            self.size_sum += size * count
        self._new_sizes.clear()
