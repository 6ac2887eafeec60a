"""Quotas of tenants: charged at put_start, recorded, and never at the cost of a leased object."""

from __future__ import annotations

from tests.index.kit import KIB, STORAGE, WRITER, T, all_slices, follow, primary, put, spec, standby

from leasehold.index import Code, Index, PutConfig
from leasehold.index.features import LEVEL_OF
from leasehold.index.quotas import Quotas
from leasehold.index.records import SetQuota


def _enforcing(*sizes: int) -> Index:
    index = primary(sizes, 0, tenant_quotas=True)
    index.set_feature_level(0, LEVEL_OF[SetQuota])
    return index


def _limited(quota: int) -> Index:
    index = _enforcing(64 * KIB, 64 * KIB)
    assert index.tenants.set_quota(0, T, quota).code == Code.OK
    return index


def _start(index: Index, key: bytes, size: int, config: PutConfig | None = None, now_ms: int = 0) -> Code:
    return index.puts.start(now_ms, WRITER, T, key, size, config or PutConfig()).code


def test_a_tenant_without_a_quota_is_refused_where_quotas_are_enforced() -> None:
    index = _enforcing(64 * KIB)
    assert _start(index, b"k", KIB) == Code.TENANT_NOT_REGISTERED
    assert index.tenants.set_quota(0, T, 4 * KIB).value.effective_bytes == 4 * KIB
    assert _start(index, b"k", KIB) == Code.OK
    assert primary().puts.start(0, WRITER, T, b"k", KIB, PutConfig()).code == Code.OK


def test_unfinished_puts_replicas_and_copies_are_charged() -> None:
    index = _limited(10 * KIB)
    assert _start(index, b"two", 4 * KIB, PutConfig(replicas=2)) == Code.OK
    assert index.quotas.used(T) == 8 * KIB
    assert _start(index, b"more", 4 * KIB) == Code.TENANT_QUOTA_EXCEEDED
    assert index.puts.revoke(0, WRITER, T, b"two").code == Code.OK
    assert index.quotas.used(T) == 0
    entry = put(index, 0, b"k", 6 * KIB)
    target = next(s.spec.name for s in index.space.segments.values() if s is not entry.replicas[0].segment)
    assert index.copies.copy_start(0, STORAGE, T, b"k", "", [target]).code == Code.TENANT_QUOTA_EXCEEDED
    assert index.tenants.set_quota(0, T, 12 * KIB).code == Code.OK
    assert index.copies.copy_start(0, STORAGE, T, b"k", "", [target]).code == Code.OK
    assert index.quotas.used(T) == 12 * KIB
    index.check()


def test_its_own_unleased_objects_leave_for_a_put_and_no_others() -> None:
    index = _limited(8 * KIB)
    assert index.tenants.set_quota(0, b"other", 8 * KIB).code == Code.OK
    assert index.puts.start(0, WRITER, b"other", b"theirs", 4 * KIB, PutConfig()).code == Code.OK
    assert index.puts.end(0, WRITER, b"other", b"theirs").code == Code.OK
    put(index, 0, b"read")
    put(index, 0, b"old")
    assert index.reads.get(20_000, T, b"read") is not None
    assert _start(index, b"new", 4 * KIB, now_ms=20_001) == Code.OK
    assert index.catalog.lookup(T, b"old") is None
    assert index.catalog.lookup(T, b"read") is not None
    assert index.catalog.lookup(b"other", b"theirs") is not None
    assert _start(index, b"newer", 4 * KIB, now_ms=20_002) == Code.TENANT_QUOTA_EXCEEDED
    assert _start(index, b"huge", 9 * KIB, now_ms=60_000) == Code.TENANT_QUOTA_EXCEEDED
    index.check()


def test_an_upsert_is_charged_beside_the_old_version_until_its_end() -> None:
    index = _limited(8 * KIB)
    put(index, 0, b"k")
    assert index.puts.start_upsert(0, WRITER, T, b"k", 4 * KIB, PutConfig()).code == Code.OK
    assert index.quotas.used(T) == 8 * KIB
    assert index.puts.end(0, WRITER, T, b"k").code == Code.OK
    assert index.quotas.used(T) == 4 * KIB


def test_quotas_are_recorded_and_in_snapshots() -> None:
    index, follower = _limited(8 * KIB), standby(tenant_quotas=True)
    put(index, 0, b"k")
    follow(follower, index)
    loaded = standby(tenant_quotas=True)
    loaded.load(index.export.keyless(), all_slices(index))
    for node in (follower, loaded):
        assert node.quotas.policies == {T: 8 * KIB}
        assert node.quotas.used(T) == 4 * KIB
        node.check()
    assert index.tenants.delete_quota(0, T).code == Code.TENANT_NOT_EMPTY
    assert index.removes.remove(0, T, b"k", False).code == Code.OK
    assert index.tenants.delete_quota(0, T).code == Code.OK
    assert index.tenants.delete_quota(0, T).code == Code.NOT_FOUND
    follow(follower, index)
    assert follower.quotas.policies == {}
    assert follower.tenants.quotas(0).value == []


def test_an_unmounted_segment_is_charged_no_longer() -> None:
    index = _limited(64 * KIB)
    for number in range(8):
        put(index, 0, b"k%d" % number)
    assert index.mounts.unmount(0, STORAGE, spec(1).id).code == Code.OK
    while index.work(200):
        pass
    assert index.quotas.used(T) == sum(entry.size for entry in index.catalog.objects())
    index.check()


def test_a_pool_smaller_than_the_sum_is_divided_by_the_requested_bytes() -> None:
    """The C++ master's rule: whole parts first, the remaining bytes to the largest remainders."""
    quotas = Quotas(primary().coverage)
    quotas.load([(b"a", 10), (b"b", 20), (b"c", 30)])
    assert quotas.effective(60) == {b"a": 10, b"b": 20, b"c": 30}
    assert quotas.effective(31) == {b"a": 5, b"b": 10, b"c": 16}
    assert sum(quotas.effective(32).values()) == 32


def test_quotas_need_their_feature_level_and_end_before_it_is_lowered() -> None:
    low = primary((64 * KIB,), 0, tenant_quotas=True)
    assert low.tenants.set_quota(0, T, KIB).code == Code.NOT_NOW
    index = _limited(8 * KIB)
    index.set_feature_level(0, 0)
    assert index.quotas.policies == {}
    assert index.export.keyless().quotas == ()


def test_bad_quotas_are_refused() -> None:
    index = _limited(8 * KIB)
    for tenant, quota in ((T, 0), (T, 1 << 63), (b"", 1), (b"x" * 10_000, 1)):
        assert index.tenants.set_quota(0, tenant, quota).code == Code.BAD_PARAMS
