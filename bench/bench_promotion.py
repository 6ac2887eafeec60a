"""A standby with a million objects becomes the primary: how long it takes, and its longest single step.

The real machine and index over a store in memory, one event after the other: no network and no disk is in the figures.
A step is what the node's loop cannot interrupt. Time of this thread. `python -m bench promotion`
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator
from random import Random

from bench.bench_index import filled, key_of
from bench.rows import record
from leasehold.ha.effects import CloseWatch, GrantLease, NodeEffect, OpenWatch, ReadSnapshot, Role, StoreRequest
from leasehold.ha.events import NodeEvent, SnapshotRead, Started, StoreAnswered, Ticked, WatchDelivered
from leasehold.ha.keys import EndMarker, Keys, LeaderValue, end_epoch, pack
from leasehold.ha.machine import Identity, NodeMachine
from leasehold.ha.settings import HaSettings
from leasehold.index import Code, Index, IndexSettings, PutConfig
from leasehold.index.records import Record
from leasehold.journal.batch import encode_explicit, encode_records
from leasehold.journal.fenced_writer import slot_key
from leasehold.journal.snapshot_file import SnapshotTaker
from leasehold.mvcc.model import Put, Watch
from leasehold.mvcc.store import Store
from leasehold.mvcc.watch import Watcher

CLUSTER = "bench"
CLIENT, STORAGE, TENANT = b"writer-client--1", b"storage-client-1", b"default"
OLD_EPOCH = 1  # that of the filled index; it is never compared with the key's revision
BATCH_RECORDS = 4_000
# Names of the rows, in the order of `measure`.
ROWS = (
    "read the snapshot",
    "promotion at the tail",
    "first steps after promotion",
    "promotion with a tail to read",
    "promotion with quarantined extents",
)


class Steps:
    """How long each step took, in time of this thread."""

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = self.longest_ms = 0.0
        self.longest = ""

    def measure(self, what: str, step: Callable[[], object]) -> None:
        started_ns = time.thread_time_ns()
        step()
        took_ms = (time.thread_time_ns() - started_ns) / 1e6
        self.count += 1
        self.total_ms += took_ms
        if took_ms > self.longest_ms:
            self.longest_ms, self.longest = took_ms, what

    def __str__(self) -> str:
        return f"{self.total_ms:8.1f} ms in {self.count} steps, the longest {self.longest_ms:7.1f} ms ({self.longest})"


class Node:
    """One machine and its store: effects are carried out immediately, their events are handled in order."""

    def __init__(self, index: IndexSettings | None = None) -> None:
        self.keys, self.store, self.now_ms = Keys(CLUSTER), Store(), 1_000_000
        lease = self.store.lease_grant(self.now_ms, 3_600).id  # without one the key would count as forged
        self.store.execute(Put(self.keys.leader, pack(LeaderValue("old", "old-1")), lease))
        self.epoch = self.store.revision
        self.machine = NodeMachine(
            Identity("new", "new-1", CLUSTER),
            HaSettings(),
            lambda: Index(index or IndexSettings(), Random(1).randrange),
        )
        self._inbox: deque[NodeEvent] = deque()
        self._watches: dict[int, Watcher] = {}
        self._snapshot: bytes = b""
        self._event: NodeEvent = Ticked()  # the one that is handled

    def follow(self, snapshot: bytes) -> Steps:
        """Start from a snapshot, up to a ready standby."""
        self.start(snapshot)
        return self._run(Role.STANDBY)

    def start(self, snapshot: bytes) -> None:
        self._snapshot = snapshot
        self._inbox.append(Started())

    def promote(self) -> Steps:
        """Delete the old leader's key and write an end marker; run up to the primary."""
        self.end_old_epoch()
        return self._run(Role.PRIMARY)

    def end_old_epoch(self) -> None:
        """As the old leader's guardian does it."""
        self.store.execute(end_epoch(self.keys, self.epoch, EndMarker("old", "old-1", "reaped")))
        self.store.execute(Put(self.keys.end_marker(OLD_EPOCH), pack(EndMarker("old", "old-1", "reaped"))))

    def _run(self, role: Role) -> Steps:
        steps = Steps()
        self.run_until(lambda: self.machine.role is role, lambda work: steps.measure(type(self._event).__name__, work))
        return steps

    def run_until(self, done: Callable[[], bool], step: Callable[[Callable[[], object]], object]) -> None:
        """Handle one event after the other, each inside of `step`."""
        machine = self.machine
        while not done():
            self._pull()
            if not self._inbox and not machine.busy:
                self.now_ms = max(self.now_ms + 1, min(machine.wake_at_ms, self.now_ms + 1_000))
            self._event = self._inbox.popleft() if self._inbox else Ticked()
            effects: list[NodeEffect] = []
            step(lambda: effects.extend(machine.handle(self.now_ms, self._event)))  # noqa: B023
            for effect in effects:
                self._do(effect)

    def _pull(self) -> None:
        for number, watcher in self._watches.items():
            batch = self.store.pull(watcher)
            if batch is not None:
                self._inbox.append(WatchDelivered(number, batch))

    def _do(self, effect: NodeEffect) -> None:
        if isinstance(effect, StoreRequest):
            self._inbox.append(StoreAnswered(effect.request, self.store.execute(effect.op)))
        elif isinstance(effect, GrantLease):
            self._inbox.append(StoreAnswered(effect.request, self.store.lease_grant(self.now_ms, effect.ttl_s)))
        elif isinstance(effect, OpenWatch):
            watch = Watch(effect.key, effect.range_end, effect.start_revision)
            self._watches[effect.watch] = self.store.watch(watch, lambda _: None)
        elif isinstance(effect, CloseWatch):
            self.store.unwatch(self._watches.pop(effect.watch))
        elif isinstance(effect, ReadSnapshot):
            self._inbox.append(SnapshotRead(self._snapshot))


def snapshot_of(index: Index) -> bytes:
    taker = SnapshotTaker(index, CLUSTER)
    parts = []
    while not taker.sliced:
        parts.append(taker.slice())
    return b"".join([*parts, taker.keyless()])


def write_tail(node: Node, leader: Index) -> int:
    """Write the leader's records since the snapshot as batches that no watch has delivered; return their number."""
    outbox = leader.log.take_outbox()
    right_ms = node.machine.settings.leader_ttl_ms
    for first_n, records in _batches(outbox):
        raw = encode_explicit(OLD_EPOCH, first_n, (OLD_EPOCH, first_n - 1), right_ms, 0, [encode_records(records)])
        node.store.execute(Put(slot_key(node.keys.explicit, first_n), raw))
    return len(outbox)


def _batches(outbox: list[tuple[int, Record]]) -> Iterator[tuple[int, list[Record]]]:
    for at in range(0, len(outbox), BATCH_RECORDS):
        yield outbox[at][0], [record for _, record in outbox[at : at + BATCH_RECORDS]]


def in_grace(node: Node) -> Steps:
    """The first minute of the new primary: work between requests, and puts that want space while nothing may go."""
    steps, index = Steps(), node.machine.index
    for at_ms in (0, 1, 5_000, 9_999, 10_001, 11_000):
        index.owners.ping(at_ms, STORAGE)
        for _ in range(50):
            steps.measure(f"work at {at_ms} ms", lambda: index.work(at_ms))  # noqa: B023
        for number in range(50):
            key = b"fresh-%d-%d" % (at_ms, number)
            steps.measure(
                f"put of 64 MiB at {at_ms} ms",
                lambda: index.puts.start(at_ms, CLIENT, TENANT, key, 64 << 20, PutConfig()),  # noqa: B023
            )
        index.log.take_outbox()
    return steps


def measure(count: int) -> dict[str, Steps]:
    """Each name is a sentence: what was measured with `count` objects."""
    leader = filled(count)
    leader.log.take_outbox()
    snapshot = snapshot_of(leader)
    found: dict[str, Steps] = {}
    node = Node()
    found["read the snapshot, up to a ready standby"] = node.follow(snapshot)
    _settle()
    found["promotion of a standby at the tail"] = node.promote()
    assert node.machine.index.catalog.object_count == count
    found["the new primary's first steps, under grace and after it"] = in_grace(node)
    del node

    node = Node()
    node.follow(snapshot)
    for number in range(count // 10):
        assert leader.removes.remove(20_000_000, TENANT, key_of(number), False).code == Code.OK
    written = write_tail(node, leader)
    _settle()
    found[f"promotion with {written:,} records of the tail still to be read"] = node.promote()
    assert node.machine.index.catalog.object_count == count - count // 10
    del node

    for number in range(count // 10, count):
        leader.reads.get(20_000_000, TENANT, key_of(number))
    leader.removes.remove_all(20_000_000, TENANT, True)
    leader.log.take_outbox()
    node = Node()
    node.follow(snapshot_of(leader))
    _settle()
    quarantined = node.machine.index.space.quarantine.totals()[0]
    found[f"promotion with {quarantined:,} extents that rest"] = node.promote()
    return found


def _settle() -> None:
    """Freeze the heap as a node does when it has caught up: the garbage collector then ignores these objects."""
    gc.collect()
    gc.freeze()


def main() -> None:
    """Print what takes how long, and the longest step of each."""
    for row, (name, steps) in zip(ROWS, measure(1_000_000).items(), strict=True):
        print(f"{steps}  {name}", flush=True)
        record(f"{row}, total", steps.total_ms, "ms")
        record(f"{row}, longest step", steps.longest_ms, "ms")


if __name__ == "__main__":
    main()
