"""A single node with an embedded store."""

from __future__ import annotations

from pathlib import Path

from leasehold.testing.node import NodeProcess
from leasehold.testing.process import wait_until
from leasehold.testing.workload import Lender, Putter, missing


async def test_an_embedded_store_keeps_everything_over_a_crash_of_the_worker(tmp_path: Path) -> None:
    coord = f"embedded://{tmp_path}/store"
    with NodeProcess(coord, "alone", data_dir=tmp_path / "n", arguments=["--copies", "1"]) as node:
        wait_until(node.is_primary, "it serves")
        async with Lender(node.rpc) as lender:
            putter = Putter(node.rpc, "k")
            await putter.put_batch(50)
            for _ in range(2):
                node.kill_worker()
                assert await missing(node.rpc, sorted(putter.results.acknowledged)) == []
                await putter.put_batch(50)
            assert len(putter.results.acknowledged) >= 100
            assert lender.remounts == 0
            putter.close()
        node.stop()
        node.start()
        wait_until(node.is_primary, "it serves again after an orderly stop")
        assert node.status().index.objects == 0, "its owner has unmounted, so the objects were removed"


async def test_a_store_in_memory_serves_and_forgets_with_the_worker(tmp_path: Path) -> None:
    with NodeProcess("memory://", "alone", data_dir=tmp_path) as node:
        wait_until(node.is_primary, "it serves")
        async with Lender(node.rpc):
            putter = Putter(node.rpc, "k")
            await putter.put_batch(50)
            assert await missing(node.rpc, sorted(putter.results.acknowledged)) == []
            putter.close()
