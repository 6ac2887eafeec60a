"""What a second hostile reading found, in the shells and around them: each fails without its fix."""

from __future__ import annotations

from itertools import pairwise

from leasehold.base.codes import Code
from leasehold.ha.events import Decided
from leasehold.journal.batch import decode_explicit
from leasehold.mvcc.model import DeleteRange, Put, Range, prefix_end
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
    assert index.put_end(leader_ms, b"W", TENANT, b"B")[0] is Code.OK
    assert index.copy_start(leader_ms, b"copier", TENANT, b"A", "", ("host1",))[0] is Code.OK
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
        keys.bulk + b"README", keys.notes + b"README", keys.nodes + b"\xff", keys.root + b"README",
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
