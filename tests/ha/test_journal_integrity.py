"""The journal stays one chain: drained batches, foreign keys, and a store restored from a backup."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest

from leasehold.base.codes import Code
from leasehold.ha.events import Decided
from leasehold.journal.batch import decode_explicit
from leasehold.mvcc.model import DeleteRange, Put, Range, prefix_end
from leasehold.mvcc.store import Store
from leasehold.testing.sim.callers import TENANT
from leasehold.testing.sim.script import Script


def _play(*lines: str, script: Script | None = None) -> Script:
    script = script or Script()
    for line in lines:
        shown = script.run(line)
        assert not any("BROKEN" in one for one in shown), (line, shown)
    return script


def test_14_a_drained_batch_that_cannot_be_applied_ends_the_promotion() -> None:
    """The batch is in the journal then. A `begin` in its middle would contradict it: no node could follow (P1).

    As in the transcript "an object that only the leader has is copied", but the copy is still in the leader's buffer,
    in one batch with an acknowledged put_end. That batch is drained and durable, and n3 lacks the object it names.
    """
    script = _play(
        "set ha durability buffered", "nodes 3", "host", "host", "put A", "silence n2", "evict A", "wait 3000",
        "lose-unlogged", "store compact", "stop n3", "kill n1", "heal", "until n2 serves", "cont n3",
        "until n3 standby",
        "wait 1500", "start W B", "write W", "cut n2 store",
    )  # fmt: skip
    world = script.world
    run = world.nodes_by_name["n2"].run
    assert run is not None
    index, leader_ms = run.machine.index, run.machine.leader_ms(run.node.now_ms())
    assert index.puts.end(leader_ms, b"W", TENANT, b"B").code is Code.OK
    assert index.copies.copy_start(leader_ms, b"copier", TENANT, b"A", "", ("host1",)).code is Code.OK
    run._handle(Decided())
    _play("wait 200", "host-death n2", "wait 8000", "boot n1", "wait 20000", script=script)
    explicit = world.keys.explicit
    batches = [decode_explicit(kv.value) for kv in world.store.store.range(Range(explicit, prefix_end(explicit))).kvs]
    for before, after in pairwise(batches):
        assert (after.prev_n, after.first_n) == (before.last_n, before.last_n + 1), "the chain contradicts itself"
    assert script.run("get R B")[-1].startswith("put "), "its put_end was acknowledged"


def test_a_foreign_key_under_the_prefix_stops_no_worker() -> None:
    """An operator wrote a key there and deleted it again: every worker crashed, and again after each start."""
    script = _play("nodes 2", "host", "put A")
    store, keys = script.world.store.store, script.world.keys
    foreign_keys = [
        keys.explicit + b"README", keys.explicit + b"7", keys.explicit + b"-7", keys.explicit + b"%020dx" % 1,
        keys.unlogged + b"README", keys.end_markers + b"README", keys.nodes + b"\xff", keys.root + b"README",
    ]  # fmt: skip
    for key in foreign_keys:
        store.execute(Put(key, b"what is this?"))
    _play("wait 2000", "put B", "kill n2", "boot n2", "until n2 standby", "wait 2000", "roles", "put C", script=script)
    for key in foreign_keys:
        store.execute(DeleteRange(key))
    for key in foreign_keys:
        store.execute(Put(key, b"and again"))
    _play("wait 2000", "kill n1", "until n2 serves", "boot n1", "until n1 standby", script=script)
    assert script.run("get R C")[-1] == "put 7"


def _restore(script: Script, backup: Store) -> None:
    """Restore the store from a backup: its revisions go back, and with them the numbers of new epochs."""
    world = script.world
    world.store.store = backup
    kvs = backup.range(Range(world.keys.explicit, world.keys.explicit_end)).kvs
    world.oracle.slots = {kv.key: len(kv.value) for kv in kvs}
    world.oracle._cut_off(decode_explicit(kvs[-1].value).last_n)
    world.tails.clear()


@pytest.mark.parametrize("led_again", [True, False])
def test_3_a_snapshot_beyond_the_end_of_the_journal_is_not_used(led_again: bool) -> None:
    """Stop all nodes, restore the store from a backup, start them: n1's snapshot has records that are lost, n2 leads.

    If its epoch was higher than the new ones, n1 ignored n2's records as old, reported ready, and would have led with
    records that are in no journal (P1, P7). Otherwise it saw a fork, and read the same snapshot again without end.
    """
    script = _play("set ha snapshot_records 100", "nodes 2", "host", "puts A 10", "host-death n2", "wait 3000")
    backup = copy.deepcopy(script.world.store.store)
    _play("puts B 30", *(("kill n1", "boot n1", "until n1 serves") if led_again else ()), script=script)
    _play("puts C 30", "wait 3000", "host-death n1", "wait 20000", script=script)
    assert script.world.nodes_by_name["n1"].disk, "it has a snapshot"
    _restore(script, backup)
    _play("boot n2", "until n2 serves", "wait 2000", "boot n1", "wait 5000", "put D", "wait 2000", script=script)
    tail_n = script.world.oracle.truth.tail_n
    assert script.run("applied")[-1] == f"tail {tail_n}; n1 {tail_n}, n2 {tail_n}"
    _play("kill n2", "until n1 serves", script=script)
    assert script.run("get R D")[-1].startswith("put ")


def test_7_a_running_standby_notices_that_the_store_was_restored() -> None:
    """Its watch waits for a revision that is far ahead now, and no read shows a missing record (P7)."""
    script = _play("nodes 2", "host", "puts A 5", "wait 3000")
    backup = copy.deepcopy(script.world.store.store)
    _play("puts B 20", "wait 1000", "host-death n1", script=script)
    script.world.store.stop()
    _restore(script, backup)
    script.world.store.start()
    shown = [line for _ in range(20) for line in script.run("wait 500")]
    assert not [line for line in shown if "BROKEN" in line and "holds Position" not in line]
    assert any("went back" in line for line in shown)
    script.run("until n2 serves")
    assert (
        script.run("applied")[-1] == f"tail {script.world.oracle.truth.tail_n}; n2 {script.world.oracle.truth.tail_n}"
    )
    _play("put D", "boot n1", "until n1 standby", "kill n2", "until n1 serves", script=script)
