"""Back ends for the tests of the recipes: every test that takes `coord` or `url` runs on all three."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from leasehold.coord.api import Coord
from leasehold.coord.connect import connect
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.sharing import shared

BACK_ENDS = ("memory", "served", "etcd")


@pytest.fixture(params=BACK_ENDS)
def url(request: pytest.FixtureRequest) -> str:
    """The address of a store: in this process, as a process of ours, a real etcd."""
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}"
    address: str = request.getfixturevalue("served_store" if request.param == "served" else "etcd").url
    return address


@pytest.fixture
async def coord(url: str) -> AsyncIterator[Coord]:
    """A client of that store."""
    async with await connect(url) as client:
        yield client


@pytest.fixture
async def etcd_coord(etcd: EtcdCluster) -> AsyncIterator[Coord]:
    """A client of a real etcd."""
    async with await connect(etcd.url) as client:
        yield client


@pytest.fixture
async def memory_coord() -> AsyncIterator[Coord]:
    """A store in this process, for tests that try a thing a hundred times."""
    async with await connect("memory://") as client:
        yield client


@pytest.fixture(scope="session")
def etcd3() -> Iterator[EtcdCluster]:
    """Three real nodes, shared: for tests that do them no harm."""
    with EtcdCluster(3) as cluster, shared(*cluster.nodes):
        yield cluster


@pytest.fixture
def name() -> str:
    """The name of a lock or an election that no other test has."""
    return f"test/{uuid.uuid4().hex}"
