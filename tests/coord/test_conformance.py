"""One suite for every back end: the whole data model on memory://, embedded://, the served store and real etcd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import leasehold
from leasehold.coord.api import Coord
from leasehold.testing.conformance import CASES, Case, run

BACK_ENDS = ("memory", "embedded", "served", "etcd", "etcd-namespaced")


@pytest.fixture(params=BACK_ENDS)
async def coord(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Coord]:
    match request.param:
        case "memory":
            url = "memory://"
        case "embedded":
            url = f"embedded://{tmp_path}/store"
        case "served":
            url = request.getfixturevalue("served_store").url
        case "etcd":
            url = request.getfixturevalue("etcd").url
        case _:
            url = request.getfixturevalue("etcd").url + "?namespace=/some/where/"
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
