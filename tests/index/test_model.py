"""The state machine against a naive model: 100,000 random commands, every invariant after each."""

from __future__ import annotations

from random import Random

import pytest
from tests.index.kit import settings
from tests.index.model import Driver

from leasehold.index import Index

_COMMANDS = 12_500


@pytest.mark.parametrize("seed", range(8))
def test_agrees_with_the_naive_model(seed: int) -> None:
    ours = settings(
        lease_ttl_ms=1_000,
        put_discard_ms=3_000,
        put_release_ms=20_000,
        client_ttl_ms=8_000,
        soft_pin_ttl_ms=4_000,
        allow_evict_soft_pinned=seed % 2 == 0,
        allocation="random" if seed % 3 == 0 else "free-ratio-first",
    )
    index = Index(ours, Random(seed).randrange)
    index.catalog.settle_step_objects = (
        seed % 2
    )  # half of the runs meet objects of unmounted segments before they are settled
    index.begin(0, 1)
    driver = Driver(index, ours, seed)
    for _ in range(_COMMANDS):
        driver.step()
        index.check()
        index.log.take_outbox()
        index.log.durable(index.log.last_n)
    for what in ("put_end", "hit", "miss", "remove", "remove forced", "evicted", "upsert beside",
                 "copy_end", "put_revoke", "false death", "unmount", "exists"):  # fmt: skip
        assert driver.counts.get(what, 0) > 2, (what, driver.counts)
