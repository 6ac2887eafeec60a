"""The disk tier: which notices count, what stays readable, and what every node knows."""

from __future__ import annotations

from tests.index.kit import KIB, OTHER, STORAGE, WRITER, T, follow, primary, put, spec, standby

from leasehold.base.codes import Code, ReplicaKind
from leasehold.index import Index, PutConfig
from leasehold.index.disk_commands import Written
from leasehold.index.features import LEVEL_NEWEST
from leasehold.journal.snapshot_file import SnapshotTaker, load_snapshot

SIZE = 4 * KIB
NEW = b"storage-client-2"  # the same storage host, started again


def with_disk(**changes: object) -> Index:
    index = primary((64 * KIB,), 0, enable_offload=True, **changes)
    index.set_feature_level(0, LEVEL_NEWEST)
    assert index.disks.mount(0, STORAGE, True).code == Code.OK
    return index


def notice(key: bytes, bucket: int, size: int = SIZE, endpoint: str = "host1:2") -> Written:
    return Written(T, key, bucket, 0, len(key), size, endpoint)


def keys_of(index: Index, now_ms: int = 1) -> list[bytes]:
    return [key for (_, key), _ in index.disks.offload_heartbeat(now_ms, STORAGE, True).value]


def offloaded(index: Index, key: bytes, bucket: int, client: bytes = STORAGE, now_ms: int = 2) -> bool:
    """Whether a notice was accepted."""
    before = index.log.last_n
    assert index.disks.offloaded(now_ms, client, [notice(key, bucket)]).code == Code.OK
    return index.log.last_n > before


def stored(index: Index, key: bytes, bucket: int = 5) -> None:
    put(index, 0, key)
    assert key in keys_of(index)
    assert offloaded(index, key, bucket)


def evict(index: Index, key: bytes) -> None:
    entry = index.catalog.lookup(T, key)
    assert entry is not None
    index.eviction.evict(entry)


def test_an_object_is_written_once_and_read_from_disk_when_memory_is_evicted() -> None:
    index = with_disk()
    stored(index, b"k")
    assert keys_of(index) == []
    found = index.reads.get(3, T, b"k")
    assert found is not None
    assert len(found.replicas) == 1
    assert [copy.owner for copy in index.disk.beside(found)] == [STORAGE]
    evict(index, b"k")
    row = index.reads.get(3, T, b"k")
    assert row is not None
    assert (row.put_seq, row.size, row.replicas) == (found.put_seq, SIZE, ())
    assert index.puts.start(3, WRITER, T, b"k", SIZE, PutConfig()).code == Code.EXISTS
    assert index.removes.remove(4, T, b"k", False).code == Code.HAS_LEASE
    assert index.removes.remove(4, T, b"k", True).code == Code.OK
    assert index.reads.get(5, T, b"k") is None
    index.check()


def test_a_notice_counts_only_for_the_version_that_was_handed_out() -> None:
    index = with_disk()
    put(index, 0, b"k")
    assert keys_of(index) == [b"k"]
    assert index.removes.remove(1, T, b"k", True).code == Code.OK
    put(index, 1, b"k")
    assert keys_of(index) == [], "not while another version is handed out to the same client"
    assert not offloaded(index, b"k", 7), "the file has the version that was removed"
    assert index.disks.refused_notices == 1
    assert keys_of(index) == [b"k"]
    assert not offloaded(index, b"k", 7), "repeated: the file of the removed version"
    assert offloaded(index, b"k", 8)
    index.check()


def test_a_notice_creates_no_object() -> None:
    index = with_disk()
    assert not offloaded(index, b"unknown", 9)
    assert index.reads.get(3, T, b"unknown") is None
    assert index.disks.offloaded(3, OTHER, [notice(b"k", 1)]).code == Code.SEGMENT_NOT_FOUND


def test_what_could_not_be_written_is_handed_out_again() -> None:
    index = with_disk()
    put(index, 0, b"k")
    assert keys_of(index) == [b"k"]
    assert index.disks.offloaded(2, STORAGE, [notice(b"k", -1, -1)]).code == Code.OK
    assert keys_of(index) == [b"k"]


def test_an_object_that_is_being_written_stays_in_memory() -> None:
    index = with_disk()
    put(index, 0, b"k")
    assert keys_of(index) == [b"k"]
    entry = index.catalog.lookup(T, b"k")
    assert entry is not None
    assert index.offloads.keeps(entry, 1)
    assert offloaded(index, b"k", 1)
    assert not index.offloads.keeps(entry, 1)


def test_eviction_waits_for_the_disk() -> None:
    index = with_disk(offload_on_evict=True)
    entry = put(index, 0, b"k")
    assert keys_of(index) == [], "not after the put"
    assert index.offloads.keeps(entry, 1)
    assert keys_of(index) == [b"k"]
    assert offloaded(index, b"k", 1)
    assert not index.offloads.keeps(entry, 1)


def test_a_silent_owner_is_disconnected_and_its_copies_return_with_it() -> None:
    index = with_disk(client_ttl_ms=1_000, disk_grace_ms=60_000)
    stored(index, b"k")
    index.work(5_000)  # the client is silent: its memory is lost, too
    assert index.reads.get(5_000, T, b"k") is None
    assert index.disks.offload_heartbeat(5_000, STORAGE, True).code == Code.SEGMENT_NOT_FOUND
    assert index.disks.mount(5_100, STORAGE, True).code == Code.OK
    found = index.reads.get(5_200, T, b"k")
    assert found is not None
    assert found.changed_n == index.disk.owners[STORAGE].changed_n, "the hit shows the record of the return"
    index.check()


def test_a_restarted_client_is_recognised_by_its_files() -> None:
    index = with_disk(client_ttl_ms=1_000, disk_grace_ms=60_000)
    stored(index, b"k", 5)
    index.work(5_000)
    assert index.disks.mount(5_100, NEW, True).code == Code.OK
    assert not offloaded(index, b"k", 4, NEW, 5_200), "another file"
    assert index.reads.get(5_200, T, b"k") is None
    assert offloaded(index, b"k", 5, NEW, 5_200)
    found = index.reads.get(5_300, T, b"k")
    assert found is not None
    assert [copy.owner for copy in index.disk.beside(found)] == [NEW]
    index.check()


def test_a_version_that_no_one_can_read_is_replaced() -> None:
    index = with_disk(client_ttl_ms=1_000, disk_grace_ms=60_000)
    stored(index, b"k")
    index.work(5_000)
    assert index.mounts.mount(5_100, OTHER, spec(2)).code == Code.OK
    put(index, 5_200, b"k")
    assert index.disks.mount(5_300, STORAGE, True).code == Code.OK
    found = index.reads.get(5_400, T, b"k")
    assert found is not None
    assert not index.disk.beside(found)
    index.check()


def test_copies_are_forgotten_after_the_grace() -> None:
    index = with_disk(client_ttl_ms=1_000, disk_grace_ms=2_000)
    stored(index, b"k")
    index.work(5_000)
    index.work(8_000)
    assert STORAGE not in index.disk.owners
    assert index.disks.mount(8_100, STORAGE, True).code == Code.OK
    assert index.reads.get(8_200, T, b"k") is None
    assert index.disk.count == 0
    index.check()


def test_a_promotion_puts_a_version_back_into_memory() -> None:
    index = with_disk(promotion_on_hit=True, promotion_threshold=2)
    stored(index, b"k")
    evict(index, b"k")
    for _ in range(2):
        assert index.reads.get(3, T, b"k") is not None
    ((name, size),) = index.disks.promotion_heartbeat(4, STORAGE).value
    assert (name, size) == ((T, b"k"), SIZE)
    assert index.disks.promotion_start(5, OTHER, T, b"k", SIZE, ()).code == Code.BAD_PARAMS
    assert index.disks.promotion_start(5, STORAGE, T, b"k", SIZE + 1, ()).code == Code.BAD_PARAMS
    started = index.disks.promotion_start(5, STORAGE, T, b"k", SIZE, ())
    assert started.code == Code.OK
    assert started.value is not None
    assert index.disks.promotion_start(5, STORAGE, T, b"k", SIZE, ()).code == Code.NOT_READY
    assert index.puts.end(5, STORAGE, T, b"k").code == Code.INVALID_WRITE
    row = index.reads.get(5, T, b"k")
    assert row is not None
    assert not row.replicas, "readable from disk meanwhile"
    assert index.disks.promotion_end(6, STORAGE, T, b"k").code == Code.OK
    found = index.reads.get(7, T, b"k")
    assert found is not None
    assert (found.put_seq, found.client, len(index.disk.beside(found))) == (started.value.put_seq, WRITER, 1)
    index.check()


def test_a_failed_promotion_is_not_repeated_soon() -> None:
    index = with_disk(promotion_on_hit=True, promotion_threshold=1, put_release_ms=10_000)
    stored(index, b"k")
    evict(index, b"k")
    assert index.reads.get(3, T, b"k") is not None
    assert index.disks.promotion_heartbeat(4, STORAGE).value
    assert index.disks.promotion_start(5, STORAGE, T, b"k", SIZE, ()).code == Code.OK
    assert index.disks.promotion_failed(6, STORAGE, T, b"k").code == Code.OK
    assert index.space.quarantine.live()
    assert index.reads.get(7, T, b"k") is not None
    assert index.disks.promotion_heartbeat(8, STORAGE).value
    assert index.disks.promotion_start(9, STORAGE, T, b"k", SIZE, ()).code == Code.NOT_READY
    assert index.disks.promotion_end(9, STORAGE, T, b"k").code == Code.NOT_READY, "a late notice"
    index.check()


def test_a_standby_and_a_snapshot_have_the_same_copies() -> None:
    leader, follower = with_disk(), standby(enable_offload=True)
    stored(leader, b"k", 5)
    stored(leader, b"other", 6)
    evict(leader, b"k")
    follow(follower, leader)
    follower.check()
    assert follower.disk.count == 2
    taker = SnapshotTaker(leader, "c")
    parts = []
    while not taker.sliced:
        parts.append(taker.slice())
    loaded = load_snapshot(b"".join([*parts, taker.keyless()]), "c")
    copy = standby(enable_offload=True)
    copy.load(loaded.keyless, (*loaded.slices, *loaded.quarantined))
    copy.check()
    for index in (follower, copy):
        assert index.disk.owners[STORAGE].replicas == 2
        version = index.disk.readable(T, b"k")
        assert version is not None
        assert version.replicas[0].is_at(5, 0, 1)
    copy.begin(100, 2)
    assert copy.reads.get(101, T, b"k") is not None


def test_the_owner_deletes_a_file() -> None:
    index = with_disk()
    stored(index, b"k")
    evict(index, b"k")
    assert index.disks.evict(3, OTHER, T, [b"k"], ReplicaKind.LOCAL_DISK).value == [Code.OK]
    assert index.reads.get(3, T, b"k") is not None
    assert index.disks.evict(4, STORAGE, T, [b"k", b"none"], ReplicaKind.LOCAL_DISK).value == [Code.OK, Code.NOT_FOUND]
    assert index.reads.get(5, T, b"k") is None
    index.check()


def test_all_files_are_deleted_only_if_none_is_listed() -> None:
    index = with_disk()
    stored(index, b"k")
    assert index.removes.remove_all(3, T, True).value == 1
    index.disks.removed_all()
    assert index.disks.poll_remove_all(4, STORAGE).value
    assert not index.disks.poll_remove_all(4, STORAGE).value, "once"
    stored(index, b"again", 9)
    index.disks.removed_all()
    assert not index.disks.poll_remove_all(4, STORAGE).value


def test_the_tier_is_off_by_default() -> None:
    index = primary((64 * KIB,))
    index.set_feature_level(0, LEVEL_NEWEST)
    assert index.disks.mount(0, STORAGE, True).code == Code.NO_OFFLOAD
    assert index.disks.offloaded(0, STORAGE, [notice(b"k", 1)]).code == Code.NO_OFFLOAD
    assert index.disks.offloaded(0, STORAGE, []).code == Code.OK


def test_the_way_back_to_an_older_level_forgets_the_copies() -> None:
    index = with_disk()
    stored(index, b"k")
    index.set_feature_level(3, 0)
    assert not index.disk.owners
    assert not index.disk.count
    index.check()
