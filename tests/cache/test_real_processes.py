"""The simulation's story on real processes: kill -9 of the authority, clients stopped past the lease, failover."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import leasehold
from leasehold.base.errors import LeaseholdError
from leasehold.cache import Client, Version
from leasehold.cache.errors import TokenRefused
from leasehold.cache.stores.coord import CoordStore
from leasehold.testing.cache import CacheProcess, ClientProcess
from leasehold.testing.checkers import by_key, check_register
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.process import wait_until

KEYS = 4
TERM_S = 0.3
PATIENCE_S = 60.0  # nothing is measured here: a busy machine may take its time


@contextmanager
def working(folder: Path, addresses: list[str], number: int) -> Iterator[list[ClientProcess]]:
    clients = [ClientProcess(folder, addresses, seed, KEYS) for seed in range(number)]
    try:
        for client in clients:
            client.spawn()
        for client in clients:
            client.wait_ready()
        yield clients
    finally:
        for client in clients:
            client.kill()


def go_on(clients: Sequence[ClientProcess], reads: int = 20, writes: int = 2) -> None:
    """Wait until each of them has read and written on."""
    goals = [(client, client.count("read") + reads, client.count("write") + writes) for client in clients]
    wait_until(
        lambda: all(client.count("read") >= r and client.count("write") >= w for client, r, w in goals),
        f"clients go on; the first one's log ends with {clients[0].log_tail(3)}",
        PATIENCE_S,
    )


def assert_never_stale(clients: Sequence[ClientProcess]) -> None:
    for client in clients:
        client.stop()
    for key, operations in by_key(item for client in clients for item in client.history()).items():
        verdict = check_register(operations)
        assert verdict, f"{key!r}: no order for {verdict.stuck}"


@pytest.mark.alone
def test_history_of_real_processes_is_linearizable(tmp_path: Path) -> None:
    arguments = ("--store", f"sqlite:///{tmp_path}/cache.db", "--term", f"{TERM_S}s")
    with CacheProcess(tmp_path, *arguments) as served, working(tmp_path, [served.address], 3) as clients:
        go_on(clients)
        clients[0].freeze()
        past_its_lease = time.monotonic() + 1.5 * TERM_S
        go_on(clients[1:])
        wait_until(lambda: time.monotonic() > past_its_lease, "the lease has expired")
        clients[0].thaw()
        served.restart()
        go_on(clients)
        clients[1].kill()
        served.restart()
        go_on([clients[0], clients[2]])
        assert_never_stale(clients)


@pytest.mark.alone
def test_failover_on_real_processes_serves_nothing_stale(tmp_path: Path) -> None:
    """The leader is killed; its successor is paused past its session, and continues after another has served."""
    with EtcdCluster(1) as etcd:
        arguments = ("--store", etcd.url, "--elect", etcd.url, "--elect-ttl", "4s", "--term", f"{TERM_S}s")
        with (
            CacheProcess(tmp_path, *arguments, name="one") as one,
            CacheProcess(tmp_path, *arguments, name="two") as two,
            working(tmp_path, [one.address, two.address], 2) as clients,
        ):
            go_on(clients)
            first, second = (one, two) if one.terms() else (two, one)
            assert (first.terms(), second.terms()) == (1, 0)
            first.kill()
            wait_until(lambda: second.terms() >= 1, "the other begins a term", PATIENCE_S)
            go_on(clients)
            first.start()
            second.freeze()
            wait_until(lambda: first.terms() >= 2, "the first begins a term again", PATIENCE_S)
            go_on(clients)
            second.thaw()
            go_on(clients)
            assert_never_stale(clients)
            epochs = {operation.hint // 1e6 for client in clients for _, operation in client.history()}
            assert {1, 2, 3} <= epochs


@pytest.mark.alone
async def test_the_store_refuses_an_authority_whose_term_was_superseded(tmp_path: Path) -> None:
    """Another authority has begun a term in the store: the served one notices, and begins a new term."""
    with EtcdCluster(1) as etcd:
        arguments = ("--store", etcd.url, "--elect", etcd.url, "--elect-ttl", "2s", "--term", f"{TERM_S}s")
        with CacheProcess(tmp_path, *arguments) as served:
            async with await leasehold.connect(etcd.url) as coord, Client(served.address) as client:
                await client.put(b"k", b"before")
                usurper = CoordStore(coord)
                opened = await usurper.open(300)
                await usurper.store(b"k", b"usurped", Version(opened.epoch, 1))
                await put_at_last(client, b"k", b"after")
                assert served.terms() == 2
                with pytest.raises(TokenRefused):
                    await usurper.store(b"k", b"stale", Version(opened.epoch, 10**6))
                assert await client.get(b"k") == b"after"


async def put_at_last(client: Client, key: bytes, value: bytes) -> None:
    """Write until it is certain; the same value twice does no harm."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            await client.put(key, value)
        except LeaseholdError:
            assert time.monotonic() < deadline
        else:
            return
