"""What a client keeps: values under a lease, bounded by number and bytes, least recently used dropped first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from leasehold.cache.model import Version

_NS_PER_MS: Final = 1_000_000
_TOUCH_NS: Final = 1_000_000_000  # with room to spare, what is used twice within so short a time is moved once
_UNUSED_MAX: Final = 2  # refills in a row that may go unused: one costs a tenth of the miss that it may save
_OVERHEAD_BYTES: Final = 200  # what CPython takes for an entry besides its key and value, about


class Entry:
    """A value (None: known to be absent) and until when it may be used, on the client's own clock.

    The deadline is in nanoseconds because it is compared at every hit, with what the clock gives. Value and version
    never change: other threads may be looking at them. What is called back and asked for anew stays in its place, past
    its deadline, until the new value replaces it: `asked` is the request, `asked_ms` when it was sent.
    """

    __slots__ = (
        "asked",
        "asked_ms",
        "cost_bytes",
        "deadline_ns",
        "hits",
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
        self.touch_ns = 0  # when a use counts for the order again
        self.unused = unused  # how many copies before this one were replaced and never used
        self.asked = 0
        self.asked_ms = 0

    def wanted_back(self) -> bool:
        """Whether the new value is worth asking for when this one is called back."""
        return self.hits > 0 or self.unused < _UNUSED_MAX

    def unused_with_this(self) -> int:
        return 0 if self.hits else self.unused + 1


class Entries:
    """`by_key` is open to the client's hit path, which is too hot for a call of a method.

    It is in the order of use. Moving an entry is a good part of what a hit costs, so each is moved once per
    `touch_every_ns`: every time when the cache is half full or more, seldom while the order does not matter.
    """

    def __init__(self, entries_max: int, bytes_max: int) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self.by_key: OrderedDict[bytes, Entry] = OrderedDict()
        self.bytes = 0
        self.touch_every_ns = 0
        self.hits_gone = 0  # hits of entries that are no longer there
        self.dropped_for_space = 0

    def valid(self, now_ms: int, key: bytes) -> Entry | None:
        """The entry of `key` if its lease is valid now."""
        entry = self.by_key.get(key)
        return entry if entry is not None and now_ms * _NS_PER_MS < entry.deadline_ns else None

    def use(self, now_ms: int, key: bytes, entry: Entry) -> None:
        """It was answered from memory."""
        entry.hits += 1
        now_ns = now_ms * _NS_PER_MS
        if now_ns >= entry.touch_ns:
            entry.touch_ns = now_ns + self.touch_every_ns
            self.by_key.move_to_end(key)

    def keep(
        self, key: bytes, value: bytes | None, version: Version, deadline_ms: int, unused: int = _UNUSED_MAX - 1
    ) -> None:
        """`unused` as for `Entry`. What was asked for is refilled once on credit: many read a key but once."""
        self.drop(key)
        self._place(key, Entry(value, version, deadline_ms, _cost_bytes(key, value), unused))

    def call_back(self, entry: Entry, seq: int, now_ms: int) -> None:
        """It may not be used any more, and request `seq` asks for what comes after it."""
        entry.deadline_ns = 0
        entry.unused = 0 if entry.hits else entry.unused + 1
        self.hits_gone += entry.hits
        entry.hits = 0
        entry.asked, entry.asked_ms = seq, now_ms

    def refill(self, key: bytes, before: Entry, value: bytes | None, version: Version, deadline_ms: int) -> None:
        """The new value in the place of `before`, which was called back. It is no use, so the order is as it was."""
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
            self._forget(self.by_key.popitem(last=False)[1])  # in one step: other threads may be moving theirs
            self.dropped_for_space += 1

    def drop(self, key: bytes) -> Entry | None:
        """Forget `key`; what it was."""
        entry = self.by_key.pop(key, None)
        if entry is not None:
            self._forget(entry)
        return entry

    def _forget(self, entry: Entry) -> None:
        self.bytes -= entry.cost_bytes
        self.hits_gone += entry.hits

    def clear(self) -> None:
        for key in list(self.by_key):
            self.drop(key)

    def hits(self) -> int:
        return self.hits_gone + sum(entry.hits for entry in list(self.by_key.values()))

    def __len__(self) -> int:
        return len(self.by_key)


def _cost_bytes(key: bytes, value: bytes | None) -> int:
    return len(key) + len(value or b"") + _OVERHEAD_BYTES
