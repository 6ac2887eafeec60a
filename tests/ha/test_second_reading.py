"""What a second hostile reading found, in the shells and around them: each fails without its fix."""

from __future__ import annotations

from itertools import pairwise

from leasehold.base.codes import Code
from leasehold.ha.events import Decided
from leasehold.journal.batch import decode_explicit
from leasehold.mvcc.model import Range, prefix_end
from leasehold.testing.sim.callers import TENANT
from leasehold.testing.sim.script import Script


def test_14_what_is_drained_and_cannot_be_applied_ends_the_promotion() -> None:
    """It is in the journal then. `begin` in the middle of its batch would contradict it: nobody could follow (P1).

    As in the transcript "what only the leader has is copied", but the copy is still in the leader's buffer, in one
    batch with the end of a put that was acknowledged. That batch is drained, durable, and n3 lacks what it names.
    """
    script = Script()
    for line in (
        "set ha durability buffered", "nodes 3", "host", "host", "put A", "silence n2", "evict A", "wait 3000",
        "lose-bulk", "store compact", "stop n3", "kill n1", "heal", "until n2 serves", "cont n3", "until n3 standby",
        "wait 1500", "start W B", "write W", "cut n2 store",
    ):  # fmt: skip
        assert not any("BROKEN" in said for said in script.run(line)), line
    world = script.world
    run = world.nodes_by_name["n2"].run
    assert run is not None
    index, leader_ms = run.machine.index, run.machine.leader_ms(run.node.now_ms())
    assert index.put_end(leader_ms, b"W", TENANT, b"B")[0] is Code.OK
    assert index.copy_start(leader_ms, b"copier", TENANT, b"A", "", ("host1",))[0] is Code.OK
    run._handle(Decided())
    for line in ("wait 200", "host-death n2", "wait 8000", "boot n1", "wait 20000"):
        assert not any("BROKEN" in said for said in script.run(line)), line
    explicit = world.keys.explicit
    batches = [decode_explicit(kv.value) for kv in world.store.store.range(Range(explicit, prefix_end(explicit))).kvs]
    for before, after in pairwise(batches):
        assert (after.prev_n, after.first_n) == (before.last_n, before.last_n + 1), "the chain contradicts itself"
    assert script.run("get R B")[-1].startswith("put "), "its end was acknowledged"
