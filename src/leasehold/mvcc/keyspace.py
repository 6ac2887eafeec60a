"""Keys, their versions, and their revisions.

Every version of a key is one `KeyValue`; a deletion is one too, a *tombstone*, with `version` 0. A key's versions
are in its history, oldest first; the same objects are in the log by revision, which watches read.
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

# Memory of one version in addition to its key and value. etcd counts 256 as well.
VERSION_OVERHEAD_BYTES = 256

_revision_of = attrgetter("mod_revision")


def version_bytes(kv: KeyValue) -> int:
    """The size of a version, as counted towards the quota."""
    return len(kv.key) + len(kv.value) + VERSION_OVERHEAD_BYTES


class KeySpace:
    """All versions of all keys that were not compacted.

    Changes are visible to readers immediately, and get their common revision, `revision + 1`, on `commit`. There is
    no rollback: a caller checks everything before its first change.
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
        self.revision = 1  # of a new store, as in etcd
        self.compact_revision = -1
        self.changes: list[KeyValue] = []
        # Revision -> its versions, in order; a place whose version was compacted away holds None, so that a
        # version's place in its revision (etcd's sub revision) stays known.
        self.log: dict[int, tuple[KeyValue | None, ...]] = {}
        self._history: dict[bytes, list[KeyValue]] = {}
        self._live: SortedList = SortedList()  # keys that exist now
        self._dead: SortedList = SortedList()  # keys that existed at a revision that can still be read
        self.total_bytes = 0
        self.live_bytes = 0

    # --- reading ---

    def current(self, key: bytes) -> KeyValue | None:
        """The current version of the key, including changes in progress."""
        history = self._history.get(key)
        if history is None:
            return None
        last = history[-1]
        return last if last.version else None

    def at(self, key: bytes, revision: int) -> KeyValue | None:
        """The version of the key at `revision`."""
        history = self._history.get(key)
        if history is None:
            return None
        place = bisect_right(history, revision, key=_revision_of)
        if place == 0:
            return None
        found = history[place - 1]
        return found if found.version else None

    def check_revision(self, revision: int) -> None:
        """Reject a future revision, or one that was compacted."""
        if revision > self.revision + bool(self.changes):
            raise FutureRevision
        if 0 < revision < self.compact_revision:
            raise Compacted(self.compact_revision)

    def select(self, key: bytes, range_end: bytes, revision: int = 0, limit: int = 0) -> tuple[list[KeyValue], int]:
        """The keys of a range in order, at most `limit` (0: all), and their total number."""
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
        """The number of keys in the range."""
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
        """Every key with a version that can still be read, unordered."""
        return list(self._history)

    def versions(self, key: bytes) -> list[KeyValue]:
        """The versions of `key` that can still be read, oldest first; for copying the store out."""
        return self._history.get(key, [])

    def __len__(self) -> int:
        return len(self._live)

    # --- changing ---

    def put(self, key: bytes, value: bytes, lease: int) -> KeyValue | None:
        """Add a new version of `key`. Returns the previous version, if the key existed."""
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
        """Delete `key`. Returns its last version, if it existed."""
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
            self._dead.add(kv.key)  # only in the replay of a log whose beginning was compacted
        if kv.version:
            self.live_bytes += size
        if history is None:
            self._history[kv.key] = [kv]
        else:
            history.append(kv)

    def commit(self) -> tuple[KeyValue, ...]:
        """Commit the changes in progress. Returns them in order. Without a change there is no new revision."""
        changes = tuple(self.changes)
        if changes:
            self.changes.clear()
            self.revision += 1
            self.log[self.revision] = changes
        return changes

    def replay_version(self, kv: KeyValue) -> KeyValue | None:
        """Add a version from a log. Returns the previous one, if any. `replay_revision` ends the revision."""
        before = self.current(kv.key)
        self._append(kv, self._history.get(kv.key))
        return before

    def replay_revision(self, revision: int, places: tuple[KeyValue | None, ...]) -> None:
        """All versions of `revision` have been added. There may be none: then only the revision number advances."""
        ensure(not self.changes, "a replay never falls into a transaction", revision)
        if places:
            self.log[revision] = places
        self.revision = max(self.revision, revision)

    # --- compaction ---

    def compact(self, revision: int) -> None:
        """Delete versions that cannot be read at `revision` or later. As in etcd, reading *at* it still works."""
        if type(revision) is not int:
            raise InvalidArgument(f"a revision is a whole number, not {revision!r}")
        if revision <= self.compact_revision:
            raise Compacted(self.compact_revision)
        if revision > self.revision:
            raise FutureRevision
        # Including the last compacted revision: a deletion at exactly that revision was kept.
        first = max(self.compact_revision, 2)
        self.compact_revision = revision
        # Compacted history is sparse, so iterate over the log if that is shorter than the span of revisions.
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
        # The last older version is still the key's value at `revision`, unless it is a tombstone. A tombstone of
        # exactly that revision stays until the next compaction: a watch from there must deliver it.
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
