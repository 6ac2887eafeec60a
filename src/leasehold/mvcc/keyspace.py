"""Keys, their versions, and the revisions that made them.

Every version of a key is one `KeyValue`; a deletion is one too, a *tombstone*, with `version` 0. A key's versions
stand in its history, oldest first; the same objects stand in the log by revision, which watches read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from heapq import merge
from operator import attrgetter

from sortedcontainers import SortedList

from leasehold.base.errors import InvalidArgument
from leasehold.base.invariants import ensure
from leasehold.mvcc.errors import Compacted, FutureRevision
from leasehold.mvcc.model import FROM_KEY, KeyValue

# What one version costs besides its key and value: the objects and places that hold it. Etcd counts 256 as well.
VERSION_OVERHEAD_BYTES = 256

_revision_of = attrgetter("mod_revision")


def version_bytes(kv: KeyValue) -> int:
    """What a version counts towards the store's size."""
    return len(kv.key) + len(kv.value) + VERSION_OVERHEAD_BYTES


class KeySpace:
    """All versions of all keys that have not been compacted away.

    Changes are made between `commit`s; they are seen by readers at once, and get their common revision,
    `revision + 1`, on commit. A caller checks everything before its first change: there is no way back.
    """

    __slots__ = (
        "_dead",
        "_history",
        "_live",
        "changes",
        "compact_revision",
        "live_bytes",
        "log",
        "revision",
        "total_bytes",
    )

    def __init__(self) -> None:
        self.revision = 1  # a new store has had one revision, like a new etcd
        self.compact_revision = -1
        self.changes: list[KeyValue] = []
        # Revision -> its versions, in order; a place whose version was compacted away holds None, so that a
        # version's place in its revision (etcd's sub revision) stays known.
        self.log: dict[int, tuple[KeyValue | None, ...]] = {}
        self._history: dict[bytes, list[KeyValue]] = {}
        self._live: SortedList = SortedList()  # keys that exist now
        self._dead: SortedList = SortedList()  # keys that do not, but did at a revision that can still be read
        self.total_bytes = 0
        self.live_bytes = 0

    # --- reading ---

    def current(self, key: bytes) -> KeyValue | None:
        """The key as it is now, changes in progress included."""
        history = self._history.get(key)
        if history is None:
            return None
        last = history[-1]
        return last if last.version else None

    def at(self, key: bytes, revision: int) -> KeyValue | None:
        """The key as it was at `revision`."""
        history = self._history.get(key)
        if history is None:
            return None
        place = bisect_right(history, revision, key=_revision_of)
        if place == 0:
            return None
        found = history[place - 1]
        return found if found.version else None

    def check_revision(self, revision: int) -> None:
        """Refuse a revision that is still to come, or that has been compacted away."""
        if revision > self.revision + bool(self.changes):
            raise FutureRevision
        if 0 < revision < self.compact_revision:
            raise Compacted(self.compact_revision)

    def select(self, key: bytes, range_end: bytes, revision: int = 0, limit: int = 0) -> tuple[list[KeyValue], int]:
        """The keys of a range in their order, at most `limit` (0: all), and how many there are altogether."""
        if revision <= 0 or (revision == self.revision and not self.changes):
            return self._select_now(key, range_end, limit)
        if not range_end:
            found = self.at(key, revision)
            return ([found], 1) if found else ([], 0)
        kvs: list[KeyValue] = []
        total = 0
        for candidate in merge(self._keys(self._live, key, range_end), self._keys(self._dead, key, range_end)):
            version = self.at(candidate, revision)
            if version:
                total += 1
                if not limit or total <= limit:
                    kvs.append(version)
        return kvs, total

    def _select_now(self, key: bytes, range_end: bytes, limit: int) -> tuple[list[KeyValue], int]:
        history = self._history
        if not range_end:
            versions = history.get(key)
            if versions is None or not versions[-1].version:
                return [], 0
            return [versions[-1]], 1
        low, high = self._places(key, range_end)
        total = max(high - low, 0)
        if limit:
            high = min(high, low + limit)
        return [history[found][-1] for found in self._live.islice(low, high)], total

    def count(self, key: bytes, range_end: bytes, revision: int = 0) -> int:
        """How many keys of the range there are."""
        if range_end and (revision <= 0 or (revision == self.revision and not self.changes)):
            low, high = self._places(key, range_end)
            return max(high - low, 0)
        return self.select(key, range_end, revision)[1]

    def _places(self, key: bytes, range_end: bytes) -> tuple[int, int]:
        live = self._live
        return live.bisect_left(key), len(live) if range_end == FROM_KEY else live.bisect_left(range_end)

    @staticmethod
    def _keys(keys: SortedList, key: bytes, range_end: bytes) -> Iterator[bytes]:
        end = None if range_end == FROM_KEY else range_end
        if end is not None and end <= key:
            return iter(())
        found: Iterator[bytes] = keys.irange(key, end, inclusive=(True, False))
        return found

    def all_keys(self) -> list[bytes]:
        """Every key with a version that can still be read, in no particular order."""
        return list(self._history)

    def versions(self, key: bytes) -> list[KeyValue]:
        """The versions of `key` that can still be read, oldest first; for copying the store out."""
        return self._history.get(key, [])

    def __len__(self) -> int:
        return len(self._live)

    # --- changing ---

    def put(self, key: bytes, value: bytes, lease: int) -> KeyValue | None:
        """Give `key` a new version; the version before, if the key existed."""
        revision = self.revision + 1
        history = self._history.get(key)
        before = history[-1] if history else None
        if before is not None and before.version:
            kv = KeyValue(key, value, before.create_revision, revision, before.version + 1, lease)
        else:
            kv = KeyValue(key, value, revision, revision, 1, lease)
        self._append(kv, history)
        self.changes.append(kv)
        return before if before is not None and before.version else None

    def delete(self, key: bytes) -> KeyValue | None:
        """End `key`; its last version, if it existed."""
        history = self._history.get(key)
        if not history or not history[-1].version:
            return None
        before = history[-1]
        tombstone = KeyValue(key, b"", 0, self.revision + 1)
        self._append(tombstone, history)
        self.changes.append(tombstone)
        return before

    def _append(self, kv: KeyValue, history: list[KeyValue] | None) -> None:
        size = len(kv.key) + len(kv.value) + VERSION_OVERHEAD_BYTES
        self.total_bytes += size
        before = history[-1] if history else None
        if before is not None and before.version:
            self.live_bytes -= version_bytes(before)
            if not kv.version:
                self._live.remove(kv.key)
                self._dead.add(kv.key)
        elif kv.version:
            self._live.add(kv.key)
            if before is not None:
                self._dead.remove(kv.key)
        elif before is None:
            self._dead.add(kv.key)  # only when a log is replayed whose beginning has been compacted away
        if kv.version:
            self.live_bytes += size
        if history is None:
            self._history[kv.key] = [kv]
        else:
            history.append(kv)

    def commit(self) -> tuple[KeyValue, ...]:
        """End the changes in progress; what was changed, in order. Without a change there is no new revision."""
        changes = tuple(self.changes)
        if changes:
            self.changes.clear()
            self.revision += 1
            self.log[self.revision] = changes
        return changes

    def replay_version(self, kv: KeyValue) -> KeyValue | None:
        """Add a version as it was made; the one before, if the key existed. `replay_revision` ends the revision."""
        before = self.current(kv.key)
        self._append(kv, self._history.get(kv.key))
        return before

    def replay_revision(self, revision: int, places: tuple[KeyValue | None, ...]) -> None:
        """The versions of `revision` have all been added; without any, only the revision is known."""
        ensure(not self.changes, "a replay never falls into a transaction", revision)
        if places:
            self.log[revision] = places
        self.revision = max(self.revision, revision)

    # --- compaction ---

    def compact(self, revision: int) -> None:
        """Forget what cannot be read at `revision` or later. As in etcd, a range can still be read *at* it."""
        if type(revision) is not int:
            raise InvalidArgument(f"a revision is a whole number, not {revision!r}")
        if revision <= self.compact_revision:
            raise Compacted(self.compact_revision)
        if revision > self.revision:
            raise FutureRevision
        # From the last one on, not after it: a deletion at that very revision was kept.
        first = max(self.compact_revision, 2)
        self.compact_revision = revision
        # What was compacted before is sparse, so go by the log where that is shorter than the span of revisions.
        span = range(first, revision + 1)
        pasts = span if len(span) <= len(self.log) else [past for past in self.log if past in span]
        touched = {kv.key for past in pasts for kv in self.log.get(past, ()) if kv is not None}
        for key in touched:
            self._compact_key(key, revision)

    def _compact_key(self, key: bytes, revision: int) -> None:
        history = self._history.get(key)
        if history is None:
            return
        place = bisect_right(history, revision, key=_revision_of)
        if place == 0:
            return
        # The last version of the past is still what the key is at `revision`, unless it is a tombstone. One of that
        # very revision stays until the next compaction: whoever watches from there must be told.
        last = history[place - 1]
        end = place if not last.version and last.mod_revision < revision else place - 1
        for kv in history[:end]:
            self.total_bytes -= version_bytes(kv)
            self._forget(kv)
        if end == len(history):
            del self._history[key]
            self._dead.remove(key)
        elif end:
            del history[:end]

    def _forget(self, kv: KeyValue) -> None:
        places = self.log.get(kv.mod_revision, ())
        left = tuple(None if other is kv else other for other in places)
        if any(left):
            self.log[kv.mod_revision] = left
        else:
            self.log.pop(kv.mod_revision, None)
