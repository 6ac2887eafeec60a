"""Placement: strategies, the newcomer's ramp, and what they never do: make a put fail or evict."""

from __future__ import annotations

import pytest
from tests.index.kit import KIB, OTHER, STORAGE, all_slices, primary, put, spec, standby

from leasehold.base.settings import specs
from leasehold.index import Code, Index, IndexSettings, PutConfig, SegmentSpec
from leasehold.index.model import Quarantined
from leasehold.index.space.quarantine import Quarantine
from leasehold.testing.newcomer import newcomer_share

STRATEGIES = specs(IndexSettings)["allocation"][1].choices


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sizes", [(4 * KIB,), (KIB, 4 * KIB, 17 * KIB)])
def test_a_newcomer_among_ten_gets_at_most_two_elevenths_in_its_first_minute(seed: int, sizes: tuple[int, ...]) -> None:
    shares = newcomer_share("two-choices", seed=seed, sizes=sizes)
    assert len(shares) == 60
    assert all(share <= 2 / 11 for share in shares), max(shares)
    assert shares[-1] > 1 / 11  # it fills: the ramp is a limit, not an exclusion


def test_without_the_ramp_free_ratio_first_floods_the_newcomer() -> None:
    assert newcomer_share("free-ratio-first", seed=1)[-1] > 4 / 11


def test_the_ramp_never_makes_a_put_fail_or_evict() -> None:
    """Three full segments and an empty one: it takes everything, in its first millisecond."""
    index = primary((64 * KIB,) * 3)
    for number in range(48):
        put(index, 0, b"old-%d" % number)
    assert index.mounts.mount(1, OTHER, spec(9)).code == Code.OK
    for number in range(16):
        assert put(index, 1, b"new-%d" % number).replicas[0].segment.spec.name == "seg9"
    assert index.eviction.evicted_count == 0
    index.check()


def test_replicas_avoid_a_newcomer_that_has_its_share() -> None:
    index = primary((256 * KIB,) * 4)
    for number in range(200):
        put(index, 0, b"old-%d" % number)
    assert index.mounts.mount(120_000, OTHER, spec(9, size=256 * KIB)).code == Code.OK
    given = sum(
        replica.segment.spec.name == "seg9"
        for number in range(12)
        for replica in put(index, 120_000, b"new-%d" % number, config=PutConfig(replicas=2)).replicas
    )
    assert given <= 24 * 2 / 5


def test_a_segment_of_a_snapshot_is_no_newcomer() -> None:
    index = primary()
    loaded = standby()
    loaded.load(index.export.keyless(), all_slices(index))
    (segment,) = loaded.space.segments.values()
    assert index.clock.latest - segment.joined > 1 << 40


def _hosts(**changes: object) -> Index:
    index = primary((), 0, **changes)
    for number, host in enumerate(("rack1-a", "rack1-b", "rack2-a"), start=1):
        one = SegmentSpec(bytes([number]) * 16, host, number << 40, 32 * KIB, f"{host}:1", "tcp", host)
        assert index.mounts.mount(0, STORAGE, one).code == Code.OK
    return index


def test_local_first_takes_the_host_then_its_label_then_any() -> None:
    index = _hosts(allocation="local-first", host_labels=("rack1-*=one", "rack2-a=two"))
    homes = [put(index, 0, b"k%d" % n, config=PutConfig(host="rack1-b")).replicas[0].segment for n in range(24)]
    names = [segment.spec.name for segment in homes]
    assert names == ["rack1-b"] * 8 + ["rack1-a"] * 8 + ["rack2-a"] * 8


def test_local_first_without_a_known_host_spreads() -> None:
    index = _hosts(allocation="local-first")
    for config in (PutConfig(), PutConfig(host="elsewhere")):
        for number in range(12):
            put(index, 0, b"%s-%d" % (config.host.encode(), number), config=config)
    assert {segment.allocator.used_bytes for segment in index.space.segments.values()} == {32 * KIB}


def test_ssd_free_ratio_first_prefers_the_emptiest_disk() -> None:
    index = primary((), allocation="ssd-free-ratio-first")
    for number in range(3):
        client = bytes([number]) * 16
        assert index.mounts.mount(0, client, spec(number + 1)).code == Code.OK
        index.placement.disks.report(client, 1_000, 900 - 300 * number)
    assert put(index, 0, b"a").replicas[0].segment.spec.name == "seg3"
    index.placement.disks.report(bytes([1]) * 16, 0, 0)  # without a size it counts as empty
    assert put(index, 0, b"b").replicas[0].segment.spec.name == "seg2"
    for now_ms in (700_000, 700_200):  # all clients are dead, and so forgotten
        index.work(now_ms)
    assert index.placement.disks.free_ratio(bytes(16)) == 1.0


@pytest.mark.parametrize("allocation", STRATEGIES)
def test_every_strategy_uses_all_space_before_it_evicts(allocation: str) -> None:
    index = primary((64 * KIB,) * 5, allocation=allocation)
    for number in range(80):
        put(index, number * 10, b"k%d" % number, config=PutConfig(host="host2"))
    assert index.eviction.evicted_count == 0
    assert index.space.used_bytes == index.space.total_bytes


def test_free_bytes_decide_between_two() -> None:
    index = primary((64 * KIB, 640 * KIB))
    homes = [put(index, 0, b"k%d" % number).replicas[0].segment.spec.name for number in range(20)]
    assert homes == ["seg2"] * 20


def test_an_extent_is_quarantined_again_while_its_first_entry_is_still_known() -> None:
    """A replay may do so: record and place are the same, and the entries themselves cannot be ordered."""
    index = primary()
    (segment,) = index.space.segments.values()
    quarantine = Quarantine()
    for _ in range(2):
        entry = Quarantined(segment, 0, 64, 1_000, 1_000, 7)
        segment.allocator.claim(0, entry)
        quarantine.add(entry)
        segment.allocator.release(0)
        quarantine.left(entry)
    assert quarantine.take_expired(1_000, 10) == []
    assert quarantine.totals() == (0, 0)
