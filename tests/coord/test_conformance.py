"""One suite for every back end: the whole data model on memory://, embedded://, the served store and real etcd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import leasehold
from leasehold.coord.api import Coord
from leasehold.testing.conformance import CASES, Case, run
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.store import StoreProcess

pytestmark = pytest.mark.xdist_group("conformance")  # its processes are shared by the module

BACK_ENDS = ("memory", "embedded", "served", "etcd", "etcd-namespaced")


@pytest.fixture(scope="module")
def own_etcd() -> Iterator[EtcdCluster]:
    """Not shared: the tests count revisions, and a lease of another test could expire meanwhile."""
    with EtcdCluster(1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def own_store() -> Iterator[StoreProcess]:
    """As above."""
    with StoreProcess() as store:
        yield store


@pytest.fixture(params=BACK_ENDS)
async def coord(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Coord]:
    match request.param:
        case "memory":
            url = "memory://"
        case "embedded":
            url = f"embedded://{tmp_path}/store"
        case "served":
            url = request.getfixturevalue("own_store").url
        case "etcd":
            url = request.getfixturevalue("own_etcd").url
        case _:
            url = request.getfixturevalue("own_etcd").url + "?namespace=/some/where/"
    async with await leasehold.connect(url) as client:
        yield client


@pytest.mark.parametrize("case", [case for case in CASES if not case.slow], ids=str)
async def test_conformance(case: Case, coord: Coord) -> None:
    await run(case, coord)


async def test_conformance_of_what_takes_time(coord: Coord) -> None:
    """Leases that expire and leases that are kept: side by side, because most of it is waiting."""
    async with asyncio.TaskGroup() as together:
        for case in CASES:
            if case.slow:
                together.create_task(run(case, coord))
