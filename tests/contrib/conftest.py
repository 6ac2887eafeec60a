"""Fixtures of the adapters' tests: both stores, and names of one's own."""

from __future__ import annotations

import pytest

from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.store import StoreProcess


@pytest.fixture(params=["etcd", "leasehold store"])
def url(request: pytest.FixtureRequest, etcd: EtcdCluster, served_store: StoreProcess) -> str:
    """The address of a real etcd, then that of the served store."""
    return etcd.url if request.param == "etcd" else served_store.url


@pytest.fixture
def name(prefix: bytes) -> str:
    """A name without slashes that no other test has."""
    return prefix.decode().strip("/").replace("/", "-")
