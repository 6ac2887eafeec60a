"""`Immediate`: a store in memory answers without waiting; a store on disk does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold.coord.api import Immediate
from leasehold.coord.connect import connect
from leasehold.mvcc.errors import EmptyKey
from leasehold.mvcc.model import Put, PutResult


async def test_in_memory_it_is_done_when_the_call_returns() -> None:
    async with await connect("memory://") as coord:
        assert isinstance(coord, Immediate)
        assert isinstance(coord.immediately(Put(b"k", b"v")), PutResult)
        found = await coord.get_one(b"k")
        assert found is not None
        assert found.value == b"v"
        with pytest.raises(EmptyKey):
            coord.immediately(Put(b"", b"v"))


async def test_on_a_disk_nothing_is_done_before_it_can_be_durable(tmp_path: Path) -> None:
    async with await connect(f"embedded://{tmp_path}/store") as coord:
        assert isinstance(coord, Immediate)
        assert coord.immediately(Put(b"k", b"v")) is None
        assert await coord.get_one(b"k") is None
