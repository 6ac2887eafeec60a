"""Fixtures for the tests of the served store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import leasehold
from leasehold.coord.api import Coord
from leasehold.store.opening import open_memory
from leasehold.store.server.serve import StoreServer
from leasehold.testing.store import StoreProcess


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreProcess]:
    """A served store of the test's own, which it may harm."""
    with StoreProcess(data_dir=tmp_path) as process:
        yield process


@pytest.fixture
async def client(served_store: StoreProcess) -> AsyncIterator[Coord]:
    """A client of the served store that all tests share."""
    async with await leasehold.connect(served_store.url) as coord:
        yield coord


@pytest.fixture
async def server() -> AsyncIterator[StoreServer]:
    """A store in memory, served in this very process on a port of its own."""
    engine = open_memory()
    served = StoreServer(engine, "127.0.0.1:0")
    await served.start()
    yield served
    await served.stop(0.1)
    engine.close()
