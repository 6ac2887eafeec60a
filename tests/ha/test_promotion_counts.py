"""A promotion's history entry has the counts of its work and of its starting state."""

from __future__ import annotations

from leasehold.ha.keys import unpack
from leasehold.ha.node_values import HistoryEntry
from leasehold.mvcc.model import Range, prefix_end
from leasehold.testing.sim.script import Script


def test_the_history_names_every_count_of_a_promotion() -> None:
    script = Script()
    for line in ("nodes 2", "host", "put A", "put B", "start W C", "get R B", "remove B force"):
        script.run(line)
    for line in ("evict A", "put D", "kill n1", "until n2 serves", "wait 500"):
        script.run(line)
    keys, store = script.world.keys, script.world.store.store
    kvs = store.range(Range(keys.history, prefix_end(keys.history))).kvs
    entries = [unpack(HistoryEntry, kv.value, kv.key) for kv in kvs]
    counts = [entry.counts for entry in entries if entry.node == "n2" and entry.role == "primary"][-1]
    assert counts == {
        "applied": 0,  # a hot standby has already applied everything
        "displaced": 1,  # A, evicted without a record: D uses its space
        "cleaned_up": 0,
        "bytes_cleaned_up": 0,
        "batches_drained": 0,
        "objects": 2,  # D, and C which is not finished
        "bytes_used": 3 * 4096,
        "in_grace": 1,
        "extents_resting": 1,  # of B, until its lease expires
        "bytes_resting": 4096,
    }
