"""The values that a client keeps under leases, bounded by number and bytes. The least recently used goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from leasehold.base.invariants import ensure
from leasehold.cache.model import Version

_NS_PER_MS: Final = 1_000_000
_TOUCH_NS: Final = 1_000_000_000  # in a cache less than half full, an entry moves at most once per second
_UNUSED_MAX: Final = 2  # unused refills in a row: one costs a tenth of the miss that it may save
_OVERHEAD_BYTES: Final = 200  # approximate memory of an entry besides its key and value


class Entry:
    """A value (None: known to be absent) and until when it may be used, on the client's own clock.

    The deadline is in nanoseconds, like the clock that it is compared with at every hit. Value and version never
    change: other threads may be reading them. An entry that was called back stays in its place, past its deadline,
    until its refill replaces it: `refill_seq` is the request for the refill, `refill_sent_ms` when it was sent.
    """

    __slots__ = (
        "cost_bytes",
        "deadline_ns",
        "hits",
        "refill_sent_ms",
        "refill_seq",
        "touch_ns",
        "unused",
        "value",
        "version",
    )

    def __init__(self, value: bytes | None, version: Version, deadline_ms: int, cost_bytes: int, unused: int) -> None:
        self.value = value
        self.version = version
        self.deadline_ns = deadline_ms * _NS_PER_MS
        self.cost_bytes = cost_bytes
        self.hits = 0
        self.touch_ns = 0  # the next use after this moves the entry
        self.unused = unused  # how many copies before this one were replaced and never used
        self.refill_seq = 0
        self.refill_sent_ms = 0

    def wanted_back(self) -> bool:
        """Whether the new value is worth requesting when this one is called back."""
        return self.hits > 0 or self.unused < _UNUSED_MAX

    def unused_with_this(self) -> int:
        return 0 if self.hits else self.unused + 1

    def count_hit(self) -> None:
        """Count a hit that does not move the entry, or moves it always."""
        self.hits += 1

    def use(self, now_ns: int, touch_every_ns: int) -> bool:
        """Count a hit; returns whether the entry must move to the end of the order of use."""
        self.hits += 1
        if now_ns < self.touch_ns:
            return False
        self.touch_ns = now_ns + touch_every_ns
        return True

    def call_back(self, seq: int, now_ms: int) -> int:
        """Expire now, and wait for the refill requested by `seq`. Returns how often the value was used."""
        hits = self.hits
        self.deadline_ns = 0
        self.unused = 0 if hits else self.unused + 1
        self.hits = 0
        self.refill_seq, self.refill_sent_ms = seq, now_ms
        return hits


class Entries:
    """`find(key)` and `touch(key)` are the dict's own methods, for the client's hit path: a Python call costs too much.

    `by_key` is in the order of use: `touch` moves an entry to the end. That is a large part of the cost of a hit, so
    each moves at most once per `touch_every_ns`: every time when the cache is at least half full, rarely while the
    order does not matter.

    Invariants: `bytes` is the sum of the costs; number and bytes are within their bounds.
    """

    def __init__(self, entries_max: int, bytes_max: int) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self.by_key: OrderedDict[bytes, Entry] = OrderedDict()
        self.find: Final[Callable[[bytes], Entry | None]] = self.by_key.get
        self.touch: Final[Callable[[bytes], None]] = self.by_key.move_to_end
        self.bytes = 0
        self.touch_every_ns = 0
        self.past_hits = 0  # of entries that were dropped or called back
        self.dropped_for_space = 0

    def valid(self, now_ms: int, key: bytes) -> Entry | None:
        """The entry of `key` if its lease is valid now."""
        entry = self.by_key.get(key)
        return entry if entry is not None and now_ms * _NS_PER_MS < entry.deadline_ns else None

    def use(self, now_ms: int, key: bytes, entry: Entry) -> None:
        """Count a hit."""
        if entry.use(now_ms * _NS_PER_MS, self.touch_every_ns):
            self.touch(key)

    def keep(
        self, key: bytes, value: bytes | None, version: Version, deadline_ms: int, unused: int = _UNUSED_MAX - 1
    ) -> None:
        """Keep a value that was read. By default it gets one refill before it must be used: most are read once."""
        self.drop(key)
        self._place(key, Entry(value, version, deadline_ms, _cost_bytes(key, value), unused))

    def call_back(self, entry: Entry, seq: int, now_ms: int) -> None:
        """The entry must not be used any more; request `seq` is for its new value."""
        self.past_hits += entry.call_back(seq, now_ms)

    def refill(self, key: bytes, before: Entry, value: bytes | None, version: Version, deadline_ms: int) -> None:
        """Replace `before`, which was called back. A refill is not a use, so the order stays the same."""
        self.bytes -= before.cost_bytes
        self._place(key, Entry(value, version, deadline_ms, _cost_bytes(key, value), before.unused))

    def _place(self, key: bytes, entry: Entry) -> None:
        if entry.cost_bytes > self._bytes_max:
            self.by_key.pop(key, None)
            return
        self.by_key[key] = entry
        self.bytes += entry.cost_bytes
        half_full = 2 * len(self.by_key) >= self._entries_max or 2 * self.bytes >= self._bytes_max
        self.touch_every_ns = 0 if half_full else _TOUCH_NS
        while len(self.by_key) > self._entries_max or self.bytes > self._bytes_max:
            self._forget(self.by_key.popitem(last=False)[1])  # atomic: other threads may be moving entries
            self.dropped_for_space += 1

    def drop(self, key: bytes) -> Entry | None:
        """Remove `key` and return its entry."""
        entry = self.by_key.pop(key, None)
        if entry is not None:
            self._forget(entry)
        return entry

    def _forget(self, entry: Entry) -> None:
        self.bytes -= entry.cost_bytes
        self.past_hits += entry.hits

    def clear(self) -> None:
        for key in list(self.by_key):
            self.drop(key)

    def hits(self) -> int:
        return self.past_hits + sum(entry.hits for entry in list(self.by_key.values()))

    def __len__(self) -> int:
        return len(self.by_key)

    def check(self) -> None:
        total = sum(entry.cost_bytes for entry in self.by_key.values())
        ensure(self.bytes == total, "the bytes of the cache are miscounted", self.bytes, total)
        ensure(len(self.by_key) <= self._entries_max, "too many entries", len(self.by_key))
        ensure(total <= self._bytes_max, "too many bytes", total)


def _cost_bytes(key: bytes, value: bytes | None) -> int:
    return len(key) + len(value or b"") + _OVERHEAD_BYTES
