"""Found by the simulator (seed 4): an object under grace whose own end lies in the present bucket of the wheel."""

from __future__ import annotations

from leasehold.index import Index, IndexSettings, PutConfig, SegmentSpec

SIZE = 4096


def test_grace_that_ends_within_the_present_bucket_does_not_stall_eviction() -> None:
    index = Index(IndexSettings(lease_ttl_ms=100, eviction_high_watermark=0.1), lambda n: 0)
    index.begin(0, 5)
    index.mount(0, b"c", SegmentSpec(b"s", "s", 1 << 30, 4 * SIZE, "h:1", "tcp"))
    index.put_start(0, b"c", b"t", b"k", SIZE, PutConfig())
    index.put_end(0, b"c", b"t", b"k")
    index.get(1, b"t", b"k")
    index.begin(0, 9)
    for now_ms in range(0, 300, 1):
        index.work(now_ms)  # it returned never while grace and end shared a bucket
    for now_ms in range(300, 1_000, 10):
        index.work(now_ms)
    assert index.object_count == 0
