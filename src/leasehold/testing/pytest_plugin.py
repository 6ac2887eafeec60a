"""Fixtures for pytest: `pytest_plugins = ["leasehold.testing.pytest_plugin"]` in your conftest.py.

Servers are shared by a whole test session (start them yourself for tests that harm them); use keys of your own.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.store import StoreProcess


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdCluster]:
    """One real etcd node, shared: for tests that do it no harm."""
    with EtcdCluster(1) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def served_store() -> Iterator[StoreProcess]:
    """The embedded store as a process, shared: for tests that do it no harm."""
    with StoreProcess() as store:
        yield store


@pytest.fixture
def prefix() -> bytes:
    """A key prefix that no other test has."""
    return f"/test/{uuid.uuid4().hex}/".encode()
