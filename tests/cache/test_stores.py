"""Every store behind keeps the same contract: tokens, epochs, the maximum term, the marker of a clean stop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

import leasehold
from leasehold.cache import CoordStore, HookStore, Kept, RedisStore, SqliteStore, TokenRefused, Version
from leasehold.cache.stores.api import BackingStore
from leasehold.cache.stores.hooks import StoreHook
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.redis import RedisProcess

Maker = Callable[[], BackingStore]


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with RedisProcess(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(params=["sqlite", "memory://", "etcd", "redis", "hooks"])
async def make(request: pytest.FixtureRequest, tmp_path: Path, prefix: bytes) -> AsyncIterator[Maker]:
    """A function that opens the same store again, as another process would."""
    if request.param == "sqlite":
        yield lambda: SqliteStore(tmp_path / "cache.db")
    elif request.param == "redis":
        server: RedisProcess = request.getfixturevalue("redis")
        yield lambda: RedisStore(server.url, prefix)
    elif request.param == "hooks":
        behind = SqliteStore(tmp_path / "values.db")
        await behind.open(1)
        keep = _hook(behind)
        yield lambda: HookStore(behind.load, keep, state=tmp_path / "state.db")
        await behind.close()
    else:
        cluster: EtcdCluster | None = request.getfixturevalue("etcd") if request.param == "etcd" else None
        async with await leasehold.connect(cluster.url if cluster else "memory://") as coord:
            yield lambda: CoordStore(coord, prefix)


def _hook(behind: SqliteStore) -> StoreHook:
    """A store of one's own: it keeps tokens, but has epochs of its own."""
    kept: dict[bytes, Version] = {}
    highest = [0]

    async def store(key: bytes, value: bytes | None, token: Version) -> None:
        highest[0] = max(highest[0], token.epoch)
        if token.epoch < highest[0] or token <= kept.get(key, Version(0, 0)):
            raise TokenRefused("older")
        kept[key] = token
        behind_token = Version(1, len(kept) + token.n + 1_000 * token.epoch)
        await behind.store(key, value, behind_token)

    return store


async def test_schedule_22b_a_late_store_with_an_older_token_is_refused(make: Maker) -> None:
    store = make()
    opened = await store.open(1_000)
    assert opened.term_before_ms == 0
    assert await store.load(b"k") is None
    first, second, third = (Version(opened.epoch, n) for n in (1, 2, 3))
    await store.store(b"k", b"v1", first)
    kept = await store.load(b"k")
    assert kept is not None
    assert kept.value == b"v1"
    await store.store(b"k", b"", third)
    with pytest.raises(TokenRefused):
        await store.store(b"k", b"late", second)
    kept = await store.load(b"k")
    assert kept is not None
    assert kept.value == b""
    await store.store(b"k", None, Version(opened.epoch, 4))
    assert await store.load(b"k") is None
    with pytest.raises(TokenRefused):  # a deletion has a token too
        await store.store(b"k", b"late", third)
    await store.close()


async def test_keys_and_values_are_any_bytes(make: Maker) -> None:
    store = make()
    epoch = (await store.open(1_000)).epoch
    for n, key in enumerate((b"\0", b"\xff\xfe", "Schlüssel".encode(), b"a/b c\n"), start=1):
        await store.store(key, key * 3, Version(epoch, n))
        kept = await store.load(key)
        assert kept is not None
        assert kept.value == key * 3
    await store.close()


async def test_schedule_22b_a_newer_term_fences_the_older_off(make: Maker) -> None:
    old, new = make(), make()
    before = await old.open(1_000)
    await old.store(b"a", b"v1", Version(before.epoch, 1))
    after = await new.open(1_000)
    assert after.epoch > before.epoch
    await new.store(b"b", b"x", Version(after.epoch, 1))
    with pytest.raises(TokenRefused):
        await old.store(b"a", b"v2", Version(before.epoch, 2))
    with pytest.raises(TokenRefused):
        await old.store(b"never seen", b"v2", Version(before.epoch, 3))
    kept = await new.load(b"a")
    assert kept is not None
    assert kept.value == b"v1"
    await old.close()
    await new.close()


async def test_schedule_9_the_maximum_term_is_durable_raised_immediately_and_lowered_later(make: Maker) -> None:
    for term_ms, expected_before_ms in ((5_000, 0), (1_000, 5_000), (1_000, 5_000)):
        store = make()
        assert (await store.open(term_ms)).term_before_ms == expected_before_ms
        await store.close()
    store = make()
    await store.open(1_000)
    await store.settle_term(1_000)
    await store.close()
    store = make()
    assert (await store.open(1_000)).term_before_ms == 1_000
    await store.close()


async def test_schedule_9d_the_marker_of_a_clean_stop_counts_once(make: Maker) -> None:
    store = make()
    await store.open(5_000)
    await store.mark_clean()
    await store.close()
    for expected_before_ms in (0, 5_000):
        store = make()
        assert (await store.open(5_000)).term_before_ms == expected_before_ms
        await store.close()


def test_kept_values_know_their_version() -> None:
    assert Kept(b"v", Version(3, 4)).version > Version(3, 3)
