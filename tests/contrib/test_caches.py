"""The cache adapters: Django, aiocache and `cached`, with their frameworks' own tests."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contrib.suites import PLUGINS, Outcome, check_explained, explained, run_suite, source

from leasehold.base.errors import InvalidArgument
from leasehold.cache import Client, SyncClient
from leasehold.contrib.aiocache import LeaseholdCache
from leasehold.contrib.cached import cached
from leasehold.contrib.expiring import Bounds, ExpiringEntries
from leasehold.testing.cache import CacheProcess
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.store import StoreProcess


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CacheProcess]:
    with CacheProcess(tmp_path_factory.mktemp("cache"), "--store", "memory://") as cache:
        yield cache


# --- the common part ---


async def test_an_index_bounds_the_entries_of_all_clients(served: CacheProcess, name: str) -> None:
    bounds = Bounds(entries_max=30, cull_frequency=3)
    async with Client(served.address) as one, Client(served.address) as two:
        first, second = ExpiringEntries(lambda: one, name), ExpiringEntries(lambda: two, name)
        await asyncio.gather(*(first.set(f"a{n}", b"1", None, bounds) for n in range(40)))
        await asyncio.gather(*(second.set(f"b{n}", b"1", None, bounds) for n in range(40)))
        keys = [f"{letter}{n}" for letter in "ab" for n in range(40)]
        assert 1 <= len(await first.get_many(keys)) <= 30
        assert await first.get_many(keys) == await second.get_many(keys)
        await second.clear(bounds)
        assert await first.get_many(keys) == {}


async def test_expired_entries_make_room_before_live_ones(served: CacheProcess, name: str) -> None:
    bounds = Bounds(entries_max=10, cull_frequency=2)
    async with Client(served.address) as client:
        entries = ExpiringEntries(lambda: client, name)
        await entries.set("live", b"1", None, bounds)
        for number in range(9):
            await entries.set(f"short{number}", b"1", time.time() + 0.01, bounds)
        await asyncio.sleep(0.02)
        await entries.set("new", b"1", None, bounds)
        assert set(await entries.get_many(["live", "new"])) == {"live", "new"}


async def test_a_long_key_is_stored_under_its_hash(served: CacheProcess, name: str) -> None:
    async with Client(served.address) as client:
        entries = ExpiringEntries(lambda: client, name)
        await entries.set("k" * 100_000, b"1", None, Bounds())
        assert await entries.get("k" * 100_000) == b"1"
        assert await entries.get("k" * 100_001) is None


# --- aiocache ---


async def test_increments_of_many_clients_are_not_lost(served: CacheProcess, name: str) -> None:
    caches = [LeaseholdCache(served.address, name=name) for _ in range(4)]
    await asyncio.gather(*(cache.increment("hits") for cache in caches for _ in range(10)))
    assert [await cache.get("hits") for cache in caches] == [40] * 4
    await asyncio.gather(*(cache.close() for cache in caches))


# --- cached ---


def test_a_result_is_computed_once_and_invalidated_everywhere(served: CacheProcess, name: str) -> None:
    database = {7: "old"}
    calls: list[int] = []
    with SyncClient(served.address) as one, SyncClient(served.address) as two:

        def load(user: int) -> str:
            calls.append(user)
            return database[user]

        def key(user: int) -> str:
            return f"{name}:{user}"

        first, second = cached(one, key=key)(load), cached(two, key=key)(load)
        assert [first(7), first(7), second(7), second(7)] == ["old"] * 4
        assert calls == [7]
        database[7] = "new"
        first.invalidate(7)
        assert [second(7), first(7)] == ["new"] * 2
        assert calls == [7, 7]


def test_a_result_from_before_an_invalidation_is_not_stored_after_it(served: CacheProcess, name: str) -> None:
    """The slow call has read the database before the change, and ends after the invalidation."""
    database = {7: "old"}
    read, go_on = threading.Event(), threading.Event()
    with SyncClient(served.address) as client:

        @cached(client, key=lambda user: f"{name}:{user}")
        def load(user: int) -> str:
            found = database[user]
            if found == "old":
                read.set()
                assert go_on.wait(30)
            return found

        slow = threading.Thread(target=load, args=(7,))
        slow.start()
        assert read.wait(30)
        database[7] = "new"
        load.invalidate(7)
        go_on.set()
        slow.join()
        assert load(7) == "new"


async def test_a_coroutine_function_and_an_end(served: CacheProcess, name: str) -> None:
    calls = 0
    async with Client(served.address) as client:

        @cached(client, key=lambda: name, ttl_s=0.05)
        async def load() -> int:
            nonlocal calls
            calls += 1
            return calls

        assert [await load(), await load()] == [1, 1]
        await asyncio.sleep(0.06)
        assert await load() == 2
        await load.invalidate()
        assert await load() == 3

        async def other() -> int:
            return 0

        with pytest.raises(InvalidArgument):
            cached(client, lambda: name, ttl_s=0)(other)


# --- a paused reader ---

READER = """
import sys
from django.conf import settings
settings.configure(CACHES={"default": {"BACKEND": "leasehold.contrib.django.LeaseholdCache", "LOCATION": sys.argv[1],
                                       "OPTIONS": {"NAME": sys.argv[2]}}})
from django.core.cache import cache
for line in sys.stdin:
    print(cache.get("limit"), flush=True)
"""


def test_a_process_that_was_stopped_does_not_read_the_old_value(tmp_path: Path, name: str) -> None:
    """The reader is stopped with the value in its memory; the write waits for its lease; then it goes on."""
    program = tmp_path / "reader.py"
    program.write_text(READER)
    with CacheProcess(tmp_path, "--store", "memory://", "--term", "1s") as cache:
        command = [sys.executable, str(program), cache.address, name]
        reader: subprocess.Popen[Any] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert reader.stdin is not None
        assert reader.stdout is not None

        def read() -> str:
            reader.stdin.write(b"\n")  # type: ignore[union-attr]
            reader.stdin.flush()  # type: ignore[union-attr]
            return str(reader.stdout.readline().decode().strip())  # type: ignore[union-attr]

        try:
            with SyncClient(cache.address) as writer:
                entries = ExpiringEntries(lambda: writer._client, name)

                def write(value: str) -> None:
                    writer._portal().call(entries.set, ":1:limit", b"i" + value.encode(), None, Bounds())

                write("100")
                assert [read(), read()] == ["100", "100"]
                os.kill(reader.pid, signal.SIGSTOP)
                write("200")
                reader.stdin.write(b"\n")
                reader.stdin.flush()
                os.kill(reader.pid, signal.SIGCONT)
                assert reader.stdout.readline().decode().strip() == "200"
        finally:
            reader.kill()
            reader.wait()


# --- the frameworks' own tests ---


def run_django(address: str) -> Outcome:
    folder = source("django", "5.2.19") / "tests"
    return run_suite(folder, [str(PLUGINS / "suite_django.py")], "suite_django", {"SUITE_CACHE": address})


def run_aiocache(address: str, *arguments: str) -> Outcome:
    known = ["-o", "asyncio_mode=auto", "-m", "not redis and not memcached", *arguments]
    folder = source("aiocache", "0.12.3")
    return run_suite(folder, ["tests/acceptance"], "suite_aiocache", {"SUITE_CACHE": address}, arguments=known)


def test_djangos_own_tests(served: CacheProcess) -> None:
    check_explained(run_django(served.address), "django.md", "On every store")


def test_a_part_of_aiocaches_own_tests(served: CacheProcess) -> None:
    """The rest waits for expiry: `make chaos`."""
    outcome = run_aiocache(served.address, "-k", "(TestCache or Lock) and not ttl and not expire and not lease")
    assert len(outcome.passed) >= 25, outcome.failed
    assert set(outcome.failed) <= explained("aiocache.md", "On every store")


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", ["etcd", "leasehold store"])
def test_the_own_tests_on_a_durable_store(store: str, tmp_path: Path) -> None:
    with (
        EtcdCluster(1) if store == "etcd" else StoreProcess() as server,
        CacheProcess(tmp_path, "--store", server.url) as cache,
    ):
        check_explained(run_django(cache.address), "django.md", "On every store")
        check_explained(run_aiocache(cache.address), "aiocache.md", "On every store")
