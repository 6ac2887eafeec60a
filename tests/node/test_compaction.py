"""`--coord-compact`: the primary compacts the store's history, on request only."""

from __future__ import annotations

from pathlib import Path

import leasehold
from leasehold.mvcc.errors import Compacted
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeProcess
from leasehold.testing.waiting import until


async def test_the_primary_compacts_history_that_is_older(tmp_path: Path) -> None:
    with (
        EtcdCluster(1) as etcd,
        NodeProcess(etcd.url, "a", data_dir=tmp_path, arguments=["--coord-compact", "1s"]) as node,
    ):
        async with await leasehold.connect(etcd.url) as coord:
            first = (await coord.put(b"k", b"1")).header.revision
            await coord.put(b"k", b"2")

            async def is_compacted() -> bool:
                try:
                    await coord.get(b"k", revision=first)
                except Compacted:
                    return True
                return False

            await until(is_compacted, "the old version is compacted")
            assert node.is_primary()
