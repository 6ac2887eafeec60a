"""A node that drops its index frees the memory, in short steps."""

from __future__ import annotations

import gc
import sys

import pytest
from bench.bench_promotion import CLUSTER, Node, snapshot_of

from leasehold.ha import applied_state
from leasehold.ha.applied_state import AppliedState
from leasehold.ha.effects import Role
from leasehold.ha.events import Ticked
from leasehold.ha.outbox import Outbox
from leasehold.ha.restore import SOON_MS
from leasehold.ha.serving import Serving
from leasehold.index import Code, Index, IndexSettings, PutConfig, SegmentSpec
from leasehold.index.catalog import Catalog
from leasehold.index.model import Segment
from leasehold.journal.snapshot_file import SnapshotReader
from leasehold.node.service.functions import MasterService
from leasehold.wire.tables import NEWEST

STORAGE, TENANT = b"storage-client-1", b"default"
COUNT = 1_000


def segments_alive() -> int:
    """Segments in memory. After a collection only those that are referenced, or in a cycle that cannot be collected."""
    gc.collect()
    return sum(type(one) is Segment for one in gc.get_objects())


def catalogs_alive() -> int:
    gc.collect()
    return sum(type(one) is Catalog for one in gc.get_objects())


def objects_alive(writer: bytes) -> int:
    """Objects in memory that this client put. An object refers to its client; the collector does not track objects."""
    return sys.getrefcount(writer)


def fill(index: Index, writer: bytes, segments: int = 3) -> Index:
    """Finished objects with two replicas, an unfinished put, a copy under way, and extents in quarantine."""
    index.begin(0, 1)
    for number in range(segments):
        name = f"seg{number}"
        spec = SegmentSpec(bytes([number]) * 16, name, 1 << 40, COUNT * 8192, f"{name}:1", "tcp")
        assert index.mounts.mount(0, STORAGE, spec).code == Code.OK
    config = PutConfig(replicas=2)
    for number in range(COUNT):
        key = b"key-%d" % number
        assert index.puts.start(1, writer, TENANT, key, 4096, config).code == Code.OK
        assert index.puts.end(1, writer, TENANT, key).code == Code.OK
    for number in range(COUNT // 10):
        assert index.reads.get(2, TENANT, b"key-%d" % number) is not None
        assert index.removes.remove(2, TENANT, b"key-%d" % number, True).code == Code.OK
    assert index.puts.start(3, writer, TENANT, b"unfinished", 4096, config).code == Code.OK
    assert index.space.quarantine.totals()[0] == 2 * (COUNT // 10)
    index.log.take_outbox()
    index.log.durable(index.log.last_n)
    return index


def empty() -> Index:
    return Index(IndexSettings(), lambda count: 0)


def test_a_rebuild_frees_every_object_of_the_old_index() -> None:
    """Objects and segments refer to each other, and the collector cannot see that: they stayed in memory forever."""
    writer, before = bytes(bytearray(b"writer-client--1")), segments_alive()
    unused = objects_alive(writer)
    made = [fill(empty(), writer)]
    state = AppliedState(lambda: made.pop() if made else empty())
    assert objects_alive(writer) >= unused + COUNT * 9 // 10
    state.reset()
    while state.discarding:
        state.discard_some()
    assert objects_alive(writer) == unused
    assert segments_alive() == before


def test_a_segment_whose_end_is_not_settled_is_freed_too() -> None:
    writer, before = bytes(bytearray(b"writer-client--1")), segments_alive()
    unused = objects_alive(writer)
    index = fill(empty(), writer)
    index.catalog.settle_step_objects = 10
    for segment in list(index.space.segments.values())[:2]:
        index.mounts.unmount(5, STORAGE, segment.spec.id)
    del segment
    assert len(index.catalog.ending) == 2
    for _ in index.discarding(100):
        pass
    del index
    assert objects_alive(writer) == unused
    assert segments_alive() == before


def test_loading_a_snapshot_frees_the_index_before_it() -> None:
    raw = snapshot_of(fill(empty(), b"writer-client--1"))
    before, steps = segments_alive(), 0
    state = AppliedState(empty)
    for _ in range(3):
        steps += sum(1 for _ in state.loading(SnapshotReader(raw, CLUSTER)))
    assert segments_alive() == before + 3, "of the last one"
    assert steps > 3


def test_no_step_frees_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applied_state, "discard_step_objects", 50)
    writer = bytes(bytearray(b"writer-client--1"))
    made = [fill(empty(), writer)]
    state = AppliedState(lambda: made.pop() if made else empty())
    state.reset()
    freed, before = [], objects_alive(writer)
    while state.discarding:
        state.discard_some()
        freed.append(before - objects_alive(writer))
        before = objects_alive(writer)
    assert sum(freed) >= COUNT * 9 // 10
    assert max(freed) <= 50


def rebuild(node: Node) -> None:
    """Let a node discard its state, up to the request for a snapshot."""
    machine = node.machine
    node.now_ms += 2 * SOON_MS  # or it would not load the same snapshot again
    machine._roles._rebuild(node.now_ms, "the test requires it")
    effects = machine.handle(node.now_ms, Ticked())
    assert machine.role is Role.FOLLOWER
    while machine.ctx.state.discarding:
        assert machine.wake_at_ms <= node.now_ms, "the rest is due immediately"
        effects += machine.handle(node.now_ms, Ticked())
    for effect in effects:
        node._do(effect)


def test_a_node_that_rebuilds_frees_its_index_between_events() -> None:
    raw = snapshot_of(fill(empty(), b"writer-client--1"))
    before = segments_alive()
    node = Node()
    node.follow(raw)
    gc.freeze()  # as a node does when it is ready
    try:
        for _ in range(3):
            rebuild(node)
            node._run(Role.STANDBY)
    finally:
        gc.unfreeze()
    assert node.machine.index.catalog.object_count > COUNT * 8 // 10
    assert segments_alive() == before + 3


def test_handlers_keep_no_index() -> None:
    """A worker makes its handlers once. They must not keep the index of that time in memory."""
    before = catalogs_alive()
    serving = Serving(empty(), Outbox.always_open())
    handlers = MasterService(serving, NEWEST).handlers()
    serving.update(empty(), 0)
    assert handlers
    assert catalogs_alive() == before + 1
