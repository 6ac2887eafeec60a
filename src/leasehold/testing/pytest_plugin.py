"""Fixtures for pytest: `pytest_plugins = ["leasehold.testing.pytest_plugin"]` in your conftest.py.

Servers are shared by a whole test session (start them yourself for tests that harm them); use keys of your own.
A test after which a shared server has stopped fails and shows the end of the server's log.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator

from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.extra import require
from leasehold.testing.sharing import revive_ended, shared
from leasehold.testing.store import StoreProcess

require("pytest", __name__)

import pytest  # noqa: E402


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdCluster]:
    """One real etcd node, shared: for tests that do not harm it."""
    with EtcdCluster(1) as cluster, shared(*cluster.nodes):
        yield cluster


@pytest.fixture(scope="session")
def served_store() -> Iterator[StoreProcess]:
    """The embedded store as a process, shared: for tests that do not harm it."""
    with StoreProcess() as store, shared(store):
        yield store


@pytest.fixture
def prefix() -> bytes:
    """A key prefix that no other test has."""
    return f"/test/{uuid.uuid4().hex}/".encode()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """After each test: check that the shared servers are running."""
    try:
        return (yield)
    finally:
        if stopped := revive_ended():
            pytest.fail("\n".join(stopped), pytrace=False)
