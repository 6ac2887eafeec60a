"""The served store against a real etcd: the same random scripts, every field of every answer the same."""

from __future__ import annotations

import secrets

import pytest

from leasehold.testing.differential import Report, compare
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


@pytest.mark.proof
@pytest.mark.timeout(3600)
async def test_no_difference_in_a_long_run_of_new_seeds() -> None:
    for _ in range(20):
        await run(secrets.randbelow(2**32), 20_000)
