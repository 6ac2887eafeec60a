"""The watch hub: all watchers, the keys that they watch, and the position of each.

A watcher has no queue. It is a position in the store's log of revisions: *idle* if it has received every event for its
keys, else *behind* from `next_revision` on. So a slow reader costs no memory, a watch from the past is served like one
that fell behind, and events are lost only by compaction.
"""

from __future__ import annotations

from collections.abc import Callable

from leasehold.mvcc.errors import Compacted, EmptyWatchRange
from leasehold.mvcc.keyspace import KeySpace
from leasehold.mvcc.model import (
    FROM_KEY,
    Event,
    EventType,
    KeyValue,
    Watch,
    WatchFilter,
)

# A batch ends with the revision that exceeds this: clients limit the size of a message, often to 4 MiB.
BATCH_BYTES_MAX = 1 << 20

Wake = Callable[["Watcher"], None]


class Watcher:
    """One watch. `wake` is called when it falls behind; it must not call the store, only schedule a `pull`."""

    __slots__ = ("_no_delete", "_no_put", "idle", "key", "next_revision", "prev_kv", "range_end", "wake")

    def __init__(self, watch: Watch, wake: Wake | None, following: int) -> None:
        """`following` is the revision after the last one of the store."""
        self.key = watch.key or b"\0"
        self.range_end = watch.range_end
        self.prev_kv = watch.prev_kv
        self._no_put = WatchFilter.NO_PUT in watch.filters
        self._no_delete = WatchFilter.NO_DELETE in watch.filters
        self.wake = wake
        self.idle = watch.start_revision == 0 or watch.start_revision >= following
        self.next_revision = max(watch.start_revision, following) if self.idle else watch.start_revision

    def fall_behind(self, revision: int, kv: KeyValue) -> None:
        """A version was committed at `revision` while this watcher was idle."""
        if revision < self.next_revision or not self.wants(kv):
            return
        self.idle = False
        self.next_revision = revision
        if self.wake is not None:
            self.wake(self)

    def advance(self, next_revision: int, *, idle: bool) -> None:
        """Every event before `next_revision` was pulled. `idle`: there are no later ones."""
        self.next_revision = max(next_revision, self.next_revision)
        self.idle = idle

    def covers(self, key: bytes) -> bool:
        if not self.range_end:
            return key == self.key
        return self.key <= key and (self.range_end == FROM_KEY or key < self.range_end)

    def wants(self, kv: KeyValue) -> bool:
        return self.covers(kv.key) and not (self._no_put if kv.version else self._no_delete)


class WatchHub:
    """All watchers of one store."""

    __slots__ = ("_by_key", "_keys", "_ranges")

    def __init__(self, keys: KeySpace) -> None:
        self._keys = keys
        self._by_key: dict[bytes, dict[Watcher, None]] = {}
        self._ranges: dict[Watcher, None] = {}

    def add(self, watch: Watch, wake: Wake | None) -> Watcher:
        """Start a watch. If it starts at an old revision, it is behind immediately, and `wake` is called."""
        watcher = Watcher(watch, wake, self._keys.revision + 1)
        if watcher.range_end and watcher.range_end != FROM_KEY and watcher.range_end <= watcher.key:
            raise EmptyWatchRange
        if watcher.range_end:
            self._ranges[watcher] = None
        else:
            self._by_key.setdefault(watcher.key, {})[watcher] = None
        if not watcher.idle and wake is not None:
            wake(watcher)
        return watcher

    def remove(self, watcher: Watcher) -> None:
        """End a watch. Ending it twice has no effect."""
        if watcher.range_end:
            self._ranges.pop(watcher, None)
            return
        same_key = self._by_key.get(watcher.key)
        if same_key is not None:
            same_key.pop(watcher, None)
            if not same_key:
                del self._by_key[watcher.key]

    def notify(self, revision: int, changes: tuple[KeyValue, ...]) -> None:
        """A revision was committed: its watchers are behind now."""
        by_key, ranges = self._by_key, self._ranges
        if not by_key and not ranges:
            return
        for kv in changes:
            if by_key:
                for watcher in by_key.get(kv.key, ()):
                    if watcher.idle:
                        watcher.fall_behind(revision, kv)
            for watcher in ranges:
                if watcher.idle and watcher.wants(kv):
                    watcher.fall_behind(revision, kv)

    def pull(self, watcher: Watcher, upto_revision: int, events_max: int) -> tuple[Event, ...] | None:
        """The next events for `watcher`, up to `upto_revision`: whole revisions, at least one, about `events_max`.

        None if there are none. If the watcher is not idle afterwards,
        there is more to pull. Raises `Compacted`, and ends the watch, if its next events were compacted.
        """
        if watcher.idle:
            return None
        keys = self._keys
        if watcher.next_revision < keys.compact_revision:
            self.remove(watcher)
            raise Compacted(keys.compact_revision)
        events: list[Event] = []
        size_bytes = 0
        revision = watcher.next_revision
        while revision <= upto_revision and len(events) < events_max and size_bytes < BATCH_BYTES_MAX:
            for kv in keys.log.get(revision, ()):
                if kv is not None and watcher.wants(kv):
                    events.append(self._event(watcher, kv))
                    size_bytes += len(kv.key) + len(kv.value)
            revision += 1
        watcher.advance(revision, idle=revision > keys.revision)
        if not events:
            return None
        return tuple(events)

    def _event(self, watcher: Watcher, kv: KeyValue) -> Event:
        # As in etcd, a creation has no previous version, even if the same transaction deleted the key.
        created = kv.version and kv.create_revision == kv.mod_revision
        previous = self._keys.at(kv.key, kv.mod_revision - 1) if watcher.prev_kv and not created else None
        return Event(EventType.PUT if kv.version else EventType.DELETE, kv, previous)
