"""Found by the simulator (seed 4): an object under grace whose own end lies in the present bucket of the wheel."""

from __future__ import annotations

from leasehold.index import Code, Index, IndexSettings, PutConfig, SegmentSpec

SIZE = 4096


def test_grace_that_ends_within_the_present_bucket_does_not_stall_eviction() -> None:
    index = Index(IndexSettings(lease_ttl_ms=100, eviction_high_watermark=0.1), lambda n: 0)
    index.begin(0, 5)
    index.mounts.mount(0, b"c", SegmentSpec(b"s", "s", 1 << 30, 4 * SIZE, "h:1", "tcp"))
    index.puts.start(0, b"c", b"t", b"k", SIZE, PutConfig())
    index.puts.end(0, b"c", b"t", b"k")
    index.reads.get(1, b"t", b"k")
    index.begin(0, 9)
    for now_ms in range(0, 300, 1):
        index.work(now_ms)  # it returned never while grace and end shared a bucket
    for now_ms in range(300, 1_000, 10):
        index.work(now_ms)
    assert index.catalog.object_count == 0


def test_a_miss_after_evicting_what_is_not_durable_waits_for_it() -> None:
    """Found by the simulator (seed 1461): the evicted version was not durable, nor the loss of the one before."""
    index = Index(IndexSettings(lease_ttl_ms=100), lambda n: 0)
    index.begin(0, 5)
    index.mounts.mount(0, b"c", SegmentSpec(b"s", "s", 1 << 30, SIZE, "h:1", "tcp"))
    index.puts.start(0, b"c", b"t", b"k", SIZE, PutConfig())
    index.puts.end(0, b"c", b"t", b"k")
    index.log.durable(index.log.last_n)
    index.work(500)
    index.puts.start(500, b"c", b"t", b"other", SIZE, PutConfig())  # evicts k
    index.puts.end(500, b"c", b"t", b"other")
    not_durable_n = index.log.last_n
    code = index.puts.start(1_000, b"c", b"t", b"third", SIZE, PutConfig()).code  # evicts `other`
    assert code == 0
    assert index.reads.get(1_000, b"t", b"other") is None
    assert index.reads.miss(b"t", b"other").after >= not_durable_n


def test_what_joins_a_group_after_a_takeover_shares_its_grace() -> None:
    """Found by the simulator (seed 4279): the others were under grace, and it alone could be removed."""
    index = Index(IndexSettings(lease_ttl_ms=1_000), lambda n: 0)
    index.begin(0, 5)
    index.mounts.mount(0, b"c", SegmentSpec(b"s", "s", 1 << 30, 4 * SIZE, "h:1", "tcp"))
    for epoch, key in ((5, b"old"), (9, b"new")):
        if epoch == 9:
            index.work(10)
            index.reads.get(10, b"t", b"old")
            index.begin(0, epoch)
        index.puts.start(5, b"c", b"t", key, SIZE, PutConfig(group=b"g"))
        index.puts.end(5, b"c", b"t", key)
    assert index.removes.remove(20, b"t", b"new", False).code == Code.HAS_LEASE
    assert index.removes.remove(1_100, b"t", b"new", False).code == Code.OK
