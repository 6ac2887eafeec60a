"""What a second hostile reading found, in the shells and around them: each fails without its fix."""

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
        said = script.run(line)
        assert not any("BROKEN" in one for one in said), (line, said)
    return script


def test_14_what_is_drained_and_cannot_be_applied_ends_the_promotion() -> None:
    """It is in the journal then. `begin` in the middle of its batch would contradict it: nobody could follow (P1).

    As in the transcript "what only the leader has is copied", but the copy is still in the leader's buffer, in one
    batch with the end of a put that was acknowledged. That batch is drained, durable, and n3 lacks what it names.
    """
    script = _play(
        "set ha durability buffered", "nodes 3", "host", "host", "put A", "silence n2", "evict A", "wait 3000",
        "lose-bulk", "store compact", "stop n3", "kill n1", "heal", "until n2 serves", "cont n3", "until n3 standby",
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
    assert script.run("get R B")[-1].startswith("put "), "its end was acknowledged"


def test_a_stray_key_under_our_prefix_ends_nobody() -> None:
    """A key that somebody put there by hand, and took away again: every worker ended at once, and after each start."""
    script = _play("nodes 2", "host", "put A")
    store, keys = script.world.store.store, script.world.keys
    strays = [
        keys.explicit + b"README", keys.explicit + b"7", keys.explicit + b"-7", keys.explicit + b"%020dx" % 1,
        keys.unlogged + b"README", keys.notes + b"README", keys.nodes + b"\xff", keys.root + b"README",
    ]  # fmt: skip
    for stray in strays:
        store.execute(Put(stray, b"what is this?"))
    _play("wait 2000", "put B", "kill n2", "boot n2", "until n2 standby", "wait 2000", "roles", "put C", script=script)
    for stray in strays:
        store.execute(DeleteRange(stray))
    for stray in strays:
        store.execute(Put(stray, b"and again"))
    _play("wait 2000", "kill n1", "until n2 serves", "boot n1", "until n1 standby", script=script)
    assert script.run("get R C")[-1] == "put 7"


def _put_back(script: Script, backup: Store) -> None:
    """The store is put back as it was: its revisions, and with them the epochs to come, go back too."""
    world = script.world
    world.store.store = backup
    kvs = backup.range(Range(world.keys.explicit, world.keys.explicit_end)).kvs
    world.oracle.slots = {kv.key: len(kv.value) for kv in kvs}
    world.oracle._cut_off(decode_explicit(kvs[-1].value).last_n)
    world.tails.clear()


@pytest.mark.parametrize("led_again", [True, False])
def test_3_a_snapshot_that_goes_further_than_the_journal_is_of_another_history(led_again: bool) -> None:
    """Stop all nodes, put a backup of the store back, start them: n1's snapshot has records that are gone, n2 leads.

    If its epoch was higher than those that came after, n1 took all that n2 wrote for old news, said ready, and would
    have led with what is in no journal (P1, P7). Else it saw a fork, and read the same snapshot again for ever.
    """
    script = _play("set ha snapshot_records 100", "nodes 2", "host", "puts A 10", "host-death n2", "wait 3000")
    backup = copy.deepcopy(script.world.store.store)
    _play("puts B 30", *(("kill n1", "boot n1", "until n1 serves") if led_again else ()), script=script)
    _play("puts C 30", "wait 3000", "host-death n1", "wait 20000", script=script)
    assert script.world.nodes_by_name["n1"].disk, "it has a snapshot"
    _put_back(script, backup)
    _play("boot n2", "until n2 serves", "wait 2000", "boot n1", "wait 5000", "put D", "wait 2000", script=script)
    tail_n = script.world.oracle.truth.tail_n
    assert script.run("mark")[-1] == f"tail {tail_n}; n1 {tail_n}, n2 {tail_n}"
    _play("kill n2", "until n1 serves", script=script)
    assert script.run("get R D")[-1].startswith("put ")


def test_7_a_standby_under_which_the_store_is_put_back_does_not_say_ready_with_what_is_gone() -> None:
    """Its watch waits for a revision that is far ahead now, and no read shows that anything is missing (P7)."""
    script = _play("nodes 2", "host", "puts A 5", "wait 3000")
    backup = copy.deepcopy(script.world.store.store)
    _play("puts B 20", "wait 1000", "host-death n1", script=script)
    script.world.store.stop()
    _put_back(script, backup)
    script.world.store.start()
    said = [line for _ in range(20) for line in script.run("wait 500")]
    assert not [line for line in said if "BROKEN" in line and "holds Position" not in line]
    assert any("went back" in line for line in said)
    script.run("until n2 serves")
    assert script.run("mark")[-1] == f"tail {script.world.oracle.truth.tail_n}; n2 {script.world.oracle.truth.tail_n}"
    _play("put D", "boot n1", "until n1 standby", "kill n2", "until n1 serves", script=script)
