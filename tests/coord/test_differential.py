"""The served store against a real etcd: the same random scripts, every field of every answer the same."""

from __future__ import annotations

import asyncio
import secrets

import pytest

from leasehold.etcd.pb import rpc_pb2
from leasehold.testing.differential import Report, compare
from leasehold.testing.differential.edges import edges
from leasehold.testing.differential.generate import Step
from leasehold.testing.differential.run import Run
from leasehold.testing.differential.side import Side
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.store import StoreProcess

SEEDS = (1, 2, 3, 4)
OPERATIONS_PER_SEED = 5_000


async def run(seed: int, operations: int) -> Report:
    with EtcdCluster(1, arguments=["--unsafe-no-fsync"]) as etcd, StoreProcess() as store:
        return await compare(etcd.endpoints[0], store.endpoint, seed=seed, operations=operations)


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_difference_to_a_real_etcd(seed: int) -> None:
    report = await run(seed, OPERATIONS_PER_SEED)
    assert report.operations >= OPERATIONS_PER_SEED
    # Scripts that ask nothing would find nothing.
    assert report.watches > 20
    assert report.events > 500
    assert report.errors > 200
    assert report.expiries == 2


async def test_a_compaction_that_overtakes_a_watch_in_etcd_is_no_difference() -> None:
    """A watch from the past with nothing to tell: etcd cancels it if it is compacted before its next round."""
    with EtcdCluster(1, arguments=["--unsafe-no-fsync"]) as etcd, StoreProcess() as store:
        script = Run(await Side.open("reference", etcd.endpoints[0]), await Side.open("other", store.endpoint), seed=0)
        try:
            await script.clean()
            for _ in range(5):
                answer = await script.both(Step("Put", rpc_pb2.PutRequest(key=b"some"), False))
                assert isinstance(answer.message, rpc_pb2.PutResponse)
                now = answer.message.header.revision
                await script.start_watch(rpc_pb2.WatchCreateRequest(key=b"other", start_revision=now - 1))
                await script.both(Step("Compact", rpc_pb2.CompactionRequest(revision=now), False))
                await script.check_watches()
                # The next watch is not mistaken for it, and later events are compared as before.
                await script.both(Step("Put", rpc_pb2.PutRequest(key=b"other"), False))
                await script.check_watches()
        finally:
            await asyncio.gather(script.left.close(), script.right.close())


async def test_no_difference_at_the_edges() -> None:
    with EtcdCluster(1, arguments=["--unsafe-no-fsync"]) as etcd, StoreProcess() as store:
        script = Run(await Side.open("reference", etcd.endpoints[0]), await Side.open("other", store.endpoint), seed=0)
        try:
            await script.clean()
            for step in edges():
                await script.both(step)
        finally:
            await asyncio.gather(script.left.close(), script.right.close())


@pytest.mark.proof
@pytest.mark.timeout(3600)
async def test_no_difference_in_a_long_run_of_new_seeds() -> None:
    for _ in range(20):
        await run(secrets.randbelow(2**32), 20_000)
