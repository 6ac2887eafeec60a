"""The watch hub: watchers are places in the log."""

from __future__ import annotations

import pytest

from leasehold.mvcc.errors import Compacted, EmptyWatchRange
from leasehold.mvcc.model import FROM_KEY, DeleteRange, Event, EventType, Put, Txn, Watch, WatchFilter
from leasehold.mvcc.store import Store
from leasehold.mvcc.watch import Watcher


def pull_all(store: Store, watcher: Watcher, events_max: int = 1_000) -> list[Event]:
    events: list[Event] = []
    while not watcher.idle:
        batch = store.pull(watcher, events_max=events_max)
        events += batch.events if batch else ()
    return events


def revisions(events: list[Event]) -> list[tuple[bytes, int]]:
    return [(event.kv.key, event.kv.mod_revision) for event in events]


def test_from_now_on() -> None:
    store = Store()
    store.put(Put(b"a"))
    woken: list[Watcher] = []
    watcher = store.watch(Watch(b"a"), woken.append)
    store.put(Put(b"b"))
    assert not woken
    assert store.pull(watcher) is None
    store.put(Put(b"a"))
    store.delete(DeleteRange(b"a"))
    assert woken == [watcher]  # once, until it has been pulled
    events = pull_all(store, watcher)
    assert revisions(events) == [(b"a", 4), (b"a", 5)]
    assert [event.type for event in events] == [EventType.PUT, EventType.DELETE]
    store.put(Put(b"a"))
    assert woken == [watcher, watcher]


def test_from_the_past() -> None:
    store = Store()
    for key in (b"a", b"b", b"a"):
        store.put(Put(key))
    woken: list[Watcher] = []
    watcher = store.watch(Watch(b"a", start_revision=1), woken.append)
    assert woken == [watcher]
    store.put(Put(b"a"))
    assert revisions(pull_all(store, watcher, events_max=1)) == [(b"a", 2), (b"a", 4), (b"a", 5)]


def test_from_the_future() -> None:
    store = Store()
    watcher = store.watch(Watch(b"a", start_revision=4))
    for _ in range(3):
        store.put(Put(b"a"))
    assert revisions(pull_all(store, watcher)) == [(b"a", 4)]


def test_ranges_and_filters() -> None:
    store = Store()
    everything = store.watch(Watch(b"\0", FROM_KEY))
    some = store.watch(Watch(b"a", b"c"))
    deletes = store.watch(Watch(b"a", b"c", filters=(WatchFilter.NO_PUT,)))
    puts = store.watch(Watch(b"a", b"c", filters=(WatchFilter.NO_DELETE,)))
    for key in (b"a", b"b", b"c"):
        store.put(Put(key))
    store.delete(DeleteRange(b"a", b"d"))
    assert revisions(pull_all(store, everything)) == [(b"a", 2), (b"b", 3), (b"c", 4), (b"a", 5), (b"b", 5), (b"c", 5)]
    assert revisions(pull_all(store, some)) == [(b"a", 2), (b"b", 3), (b"a", 5), (b"b", 5)]
    assert revisions(pull_all(store, deletes)) == [(b"a", 5), (b"b", 5)]
    assert revisions(pull_all(store, puts)) == [(b"a", 2), (b"b", 3)]


def test_a_revision_is_never_split() -> None:
    store = Store()
    watcher = store.watch(Watch(b"a", b"z"))
    store.txn(Txn((), (Put(b"a"), Put(b"b"), Put(b"c"))))
    store.put(Put(b"a"))
    first = store.pull(watcher, events_max=1)
    assert first is not None
    assert (len(first.events), first.header.revision) == (3, 3)
    assert not watcher.idle


def test_nothing_beyond_the_durable_revision() -> None:
    store = Store()
    watcher = store.watch(Watch(b"a"))
    store.put(Put(b"a"))
    store.put(Put(b"a"))
    assert store.pull(watcher, upto_revision=1) is None
    batch = store.pull(watcher, upto_revision=2)
    assert batch is not None
    assert revisions(list(batch.events)) == [(b"a", 2)]
    assert not watcher.idle
    assert revisions(pull_all(store, watcher)) == [(b"a", 3)]


def test_previous_versions() -> None:
    store = Store()
    watcher = store.watch(Watch(b"a", prev_kv=True))
    store.put(Put(b"a", b"1"))
    store.put(Put(b"a", b"2"))
    store.delete(DeleteRange(b"a"))
    before = [event.prev_kv.value if event.prev_kv else None for event in pull_all(store, watcher)]
    assert before == [None, b"1", b"2"]


def test_compaction_ends_a_watch_that_is_behind() -> None:
    store = Store()
    behind, idle = store.watch(Watch(b"a")), store.watch(Watch(b"b"))
    for _ in range(5):
        store.put(Put(b"a"))
    store.compact(5)
    with pytest.raises(Compacted) as caught:
        store.pull(behind)
    assert caught.value.compact_revision == 5
    store.put(Put(b"b"))
    assert revisions(pull_all(store, idle)) == [(b"b", 7)]
    with pytest.raises(Compacted):
        store.pull(store.watch(Watch(b"a", start_revision=4)))
    assert revisions(pull_all(store, store.watch(Watch(b"a", start_revision=5)))) == [(b"a", 5), (b"a", 6)]


def test_an_ended_watch_is_not_woken() -> None:
    store = Store()
    woken: list[Watcher] = []
    for key, end in ((b"a", b""), (b"a", b"b")):
        watcher = store.watch(Watch(key, end), woken.append)
        store.unwatch(watcher)
        store.unwatch(watcher)
    store.put(Put(b"a"))
    assert not woken


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(EmptyWatchRange):
        Store().watch(Watch(b"b", b"a"))


def test_a_deletion_at_the_compacted_revision_is_delivered() -> None:
    """A watch may begin there: older releases of etcd lose that event (issue 18089 there)."""
    store = Store()
    store.put(Put(b"a"))
    store.delete(DeleteRange(b"a"))
    watcher = store.watch(Watch(b"a", start_revision=store.revision))
    store.compact(store.revision)
    batch = store.pull(watcher)
    assert batch is not None
    assert [event.type for event in batch.events] == [EventType.DELETE]
    # The next compaction removes it.
    store.put(Put(b"b"))
    store.compact(store.revision)
    assert store.keys.versions(b"a") == []
    assert store.keys.total_bytes == store.keys.live_bytes
