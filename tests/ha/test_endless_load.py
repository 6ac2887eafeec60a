"""Put and remove millions of times, through the pure machines: the keys and bytes in the store stay bounded.

Index, committer, snapshots and truncation are the real ones, `mvcc` is the store; calls come in batches.
"""

from __future__ import annotations

import pytest

from leasehold.base import limits
from leasehold.base.codes import Code
from leasehold.ha.events import Decided
from leasehold.index.model import PutConfig
from leasehold.mvcc.model import Range, prefix_end
from leasehold.testing.sim.callers import TENANT
from leasehold.testing.sim.plan import BLOCK
from leasehold.testing.sim.script import Script

PAIRS_A_STEP = 2_000
STEP_MS = 100  # 20,000 pairs a second
RECORDS_A_PAIR = 3  # put_start, put_end, remove
SNAPSHOT_RECORDS = 100_000
CLIENT, PLAIN = b"client", PutConfig()

# The truncation point follows the beginning of the last complete snapshot. The next one starts `snapshot_records` after
# its end and is complete a little later. Truncation is checked once a second, and deletes in small steps.
# A batch holds the records that one step decides, up to the limit of a batch.
BATCHES_A_STEP = 1 + PAIRS_A_STEP * RECORDS_A_PAIR // limits.journal_batch_records_max
BATCHES_MAX = BATCHES_A_STEP * (2 * SNAPSHOT_RECORDS // (PAIRS_A_STEP * RECORDS_A_PAIR) + 3 * 1_000 // STEP_MS)
BYTES_MAX = BATCHES_MAX * 512 * 1024  # a step's records, before compression


def run(pairs: int) -> tuple[int, int]:
    """The highest number of batches, and of bytes, in the store at any time."""
    script = Script()
    for line in (f"set ha snapshot_records {SNAPSHOT_RECORDS}", "set ha copies 1", "nodes 1 4096", "host"):
        script.run(line)
    world = script.world
    world.store._on_write = lambda op, result: None  # the oracle would keep the whole journal
    setattr(world.subscriber, "sent", lambda message: None)  # noqa: B010  it compares events with the oracle's journal
    node = world.nodes[0]
    assert node.run is not None
    machine, keys = node.run.machine, world.keys
    batches_max = bytes_max = 0
    for step in range(pairs // PAIRS_A_STEP):
        index, now_ms = machine.index, machine.leader_ms(node.now_ms())
        for number in range(PAIRS_A_STEP):
            key = b"key-%d-%d" % (step, number)
            code = index.puts.start(now_ms, CLIENT, TENANT, key, BLOCK, PLAIN).code
            assert code is Code.OK, step
            index.puts.end(now_ms, CLIENT, TENANT, key)
            index.removes.remove(now_ms, TENANT, key, False, CLIENT)
        wanted_n = index.log.last_n
        node.run._handle(Decided())
        until_us = world.clock.now_us + STEP_MS * 1_000
        while machine.durable_n < wanted_n or world.clock.now_us < until_us:
            world.clock.step()
        if step % 10 == 0:
            kvs = world.store.store.range(Range(keys.root, prefix_end(keys.root))).kvs
            batches_max = max(batches_max, sum(kv.key.startswith(keys.explicit) for kv in kvs))
            bytes_max = max(bytes_max, sum(len(kv.key) + len(kv.value) for kv in kvs))
            world.store.compact(1_000)
            assert batches_max <= BATCHES_MAX, (step, batches_max)
            assert bytes_max <= BYTES_MAX, (step, bytes_max)
    assert index.catalog.object_count == 0
    return batches_max, bytes_max


def test_many_pairs_leave_nothing_behind() -> None:
    run(120_000)


@pytest.mark.proof
def test_ten_million_pairs_leave_nothing_behind() -> None:
    run(10_000_000)
