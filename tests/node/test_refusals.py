"""Bad input is counted where an operator looks: what the index refuses, and what the wire cannot read."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold import Client
from leasehold.testing.node import NodeProcess
from leasehold.testing.waiting import until
from leasehold.wire.errors import MasterError


async def test_refusals_of_the_index_are_in_the_metrics(tmp_path: Path) -> None:
    with NodeProcess("memory://", "a", data_dir=tmp_path) as node:
        await until(node.is_primary, "it leads")
        async with Client(node.rpc) as master:
            with pytest.raises(MasterError):
                await master.remove_by_regex("(")
        assert b'leasehold_refused_total{reason="bad pattern"} 1.0' in node.http("/metrics")[1]
        assert node.status().refused == {"bad pattern": 1}
