"""Counters and histograms without a clock or a format: the parts that measure keep them, the metrics port renders them.

Everything is a plain number in a list, so that counting costs about as much as an assignment.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct

SLOW_NS: Final = 100_000_000  # a call that took longer is listed among the slow ones
SLOW_CALLS_KEPT: Final = 64
_UNIT_SHIFT: Final = 10  # the first bucket ends at 1,024 ns; each further one is twice as long
BUCKETS: Final = 26  # up to 34 s; the last one takes everything longer
_SUM: Final = BUCKETS  # the place of the sum in a row

Labels: TypeAlias = tuple[str, ...]


class Histogram:
    """How often a quantity lay between two powers of two. `unit` is the upper bound of the first bucket."""

    __slots__ = ("_row", "_shift")

    def __init__(self, shift: int = _UNIT_SHIFT) -> None:
        self._shift = shift
        self._row = [0] * (BUCKETS + 1)

    @classmethod
    def of_row(cls, row: list[int]) -> Histogram:
        """A view of durations in nanoseconds that are counted elsewhere, without a call for each."""
        made = cls()
        made._row = row
        return made

    def add(self, value: int) -> None:
        self._row[min((value >> self._shift).bit_length(), BUCKETS - 1)] += 1
        self._row[_SUM] += value

    @property
    def count(self) -> int:
        return sum(self._row[:BUCKETS])

    @property
    def total(self) -> int:
        """The sum of all values."""
        return self._row[_SUM]

    def buckets(self) -> list[tuple[int, int]]:
        """(upper bound, number of values below it), ascending; the last bucket has no bound and is left out."""
        below, found = 0, []
        for at in range(BUCKETS - 1):
            below += self._row[at]
            found.append((1 << (at + self._shift), below))
        return found

    def quantile(self, share: float) -> float:
        """An estimate: the bound below which `share` of the values lie, interpolated. 0.0 without values."""
        left = share * self.count
        if not left:
            return 0.0
        for at, inside in enumerate(self._row[:BUCKETS]):
            if inside and left <= inside:
                high = 1 << (at + self._shift)
                low = high / 2 if at else 0
                return low + (high - low) * left / inside
            left -= inside
        return float(1 << (BUCKETS + self._shift))

    def since(self, earlier: Histogram) -> Histogram:
        """The values that were added after `earlier` was copied from this one."""
        made = Histogram(self._shift)
        made._row = [now - then for now, then in zip(self._row, earlier._row, strict=True)]
        return made

    def merge(self, other: Histogram) -> None:
        """Add the values of another histogram with the same buckets."""
        self._row = [mine + theirs for mine, theirs in zip(self._row, other._row, strict=True)]

    def copy(self) -> Histogram:
        return self.since(Histogram(self._shift))


class SlowCall(Struct, frozen=True):
    """One call that took longer than `SLOW_NS`."""

    wall_us: int
    function: str
    peer: str
    duration_ms: int


class _Rows(dict[int, list[int]]):
    """The counters of each function, made at its first call."""

    def __missing__(self, function: int) -> list[int]:
        row = self[function] = [0] * (BUCKETS + 1)
        return row


class Calls:
    """The calls of a server: how many of each function, how long they took, and which results were errors.

    `answered` is on the path of every request: the clock is read once for a burst, and a burst of one function costs
    two additions.
    """

    __slots__ = ("_failures", "_name_of", "_rows", "_slow", "_wall_us")

    def __init__(self, name_of: Callable[[int], str] = hex, wall_us: Callable[[], int] = lambda: 0) -> None:
        self._name_of = name_of
        self._wall_us = wall_us
        self._rows = _Rows()
        self._failures: Counter[tuple[int, str]] = Counter()
        self._slow: deque[SlowCall] = deque(maxlen=SLOW_CALLS_KEPT)

    def answered(self, functions: Sequence[int], duration_ns: int, peer: str) -> None:
        """Calls that were answered together, `duration_ns` after they arrived. Only functions that exist."""
        bucket = (duration_ns >> _UNIT_SHIFT).bit_length()
        if duration_ns > SLOW_NS:
            bucket = min(bucket, BUCKETS - 1)
            slow = duration_ns // 1_000_000
            self._slow.extend(SlowCall(self._wall_us(), self._name_of(each), peer, slow) for each in functions)
        first, count = functions[0], len(functions)
        if count == 1 or functions.count(first) == count:
            row = self._rows[first]
            row[bucket] += count
            row[_SUM] += duration_ns * count
            return
        for function in functions:
            row = self._rows[function]
            row[bucket] += 1
            row[_SUM] += duration_ns

    def failed(self, function: int, reason: str, count: int = 1) -> None:
        """A result of this function was an error. Each key of a batch has a result of its own."""
        self._failures[function, reason] += count

    def durations(self) -> dict[str, Histogram]:
        """By function, in nanoseconds."""
        return {self._name_of(function): Histogram.of_row(row) for function, row in self._rows.items()}

    def failures(self) -> dict[Labels, int]:
        """By function and reason."""
        return {(self._name_of(function), reason): count for (function, reason), count in self._failures.items()}

    def slow(self) -> list[SlowCall]:
        """The last slow calls, the newest first."""
        return list(reversed(self._slow))


class Measure(Struct, frozen=True):
    """One metric with its values, by the values of its labels. Durations of histograms are in nanoseconds."""

    name: str
    help: str
    kind: Literal["gauge", "counter", "seconds", "bytes"]  # the last two are histograms
    values: Mapping[Labels, float | Histogram]
    labels: Labels = ()

    @classmethod
    def gauge(cls, name: str, help: str, value: float) -> Measure:
        return cls(name, help, "gauge", {(): value})

    @classmethod
    def counter(cls, name: str, help: str, value: float) -> Measure:
        return cls(name, help, "counter", {(): value})


def call_measures(calls: Calls, prefix: str) -> list[Measure]:
    """Requests, their durations and their failures, by function."""
    return [
        Measure(
            f"{prefix}_request_seconds",
            "time from the arrival of a request to its answer, by function",
            "seconds",
            {(name,): histogram for name, histogram in calls.durations().items()},
            ("function",),
        ),
        Measure(
            f"{prefix}_failed_results",
            "results that are errors, by function and error; each key of a batch counts",
            "counter",
            calls.failures(),
            ("function", "error"),
        ),
    ]
