"""From a hundred thousand to ten million objects: rates, and the longest step of a node's loop.

One index and one machine over a store in memory, in a process for each size. A step is what the loop cannot interrupt:
one request, one piece of periodic work, one event of the machine. Thread time, garbage collection included, divided by
the slowness of this core in the same run (`tests/measured.py`).

    python -m bench scale                                    100,000 and a million objects
    LEASEHOLD_BENCH_OBJECTS=10000000 python -m bench scale   ten million: 7 GB of memory, several minutes

Every size is kept in docs/pictures/scale.json. `scripts/draw-pictures` draws docs/pictures/scale.svg from it.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from random import Random

import msgspec
from tests.measured import Yardstick

from bench.bench_index import filled, key_of, memory_bytes
from bench.bench_promotion import CLIENT, CLUSTER, OLD_EPOCH, STORAGE, TENANT, Node, _batches
from bench.rows import PER_SECOND, record
from leasehold.index import Index, PutConfig
from leasehold.journal.batch import encode_explicit, encode_records
from leasehold.journal.fenced_writer import slot_key
from leasehold.journal.snapshot_file import SnapshotTaker
from leasehold.mvcc.model import Put

FILE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "scale.json"
_SAMPLE = 100_000  # reads, puts and tail records
_LATER_MS = 20_000_000


class Activity(msgspec.Struct):
    """One activity at one size."""

    name: str
    objects: int
    seconds: float
    steps: int
    longest_ms: float
    bytes_per_object: float = 0.0

    @property
    def rate(self) -> float:
        return self.objects / self.seconds


class Stopwatch:
    """Adds up the time of steps, and keeps the longest."""

    def __init__(self, yardstick: Yardstick) -> None:
        self._yardstick = yardstick
        self._before = yardstick.slowness()
        self._steps, self._total_ns, self._longest_ns = 0, 0, 0

    def step(self, work: Callable[[], object]) -> object:
        started_ns = time.thread_time_ns()
        result = work()
        took_ns = time.thread_time_ns() - started_ns
        self._steps += 1
        self._total_ns += took_ns
        self._longest_ns = max(self._longest_ns, took_ns)
        return result

    def end(self, name: str, objects: int) -> Activity:
        slowness = (self._before + self._yardstick.slowness()) / 2
        seconds = self._total_ns / 1e9 / slowness
        return Activity(name, objects, seconds, self._steps, self._longest_ns / 1e6 / slowness)


def as_a_node() -> None:
    """The garbage collector as a node sets it when it is ready."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 1_000)


def fill_more(index: Index, puts: int, yardstick: Yardstick) -> Activity:
    """The pool is 88 % full: these fit without an eviction."""
    watch, config = Stopwatch(yardstick), PutConfig()
    for number in range(puts):
        key = b"more-%d" % number
        watch.step(lambda: index.puts.start(1, CLIENT, TENANT, key, 4096, config))  # noqa: B023
        watch.step(lambda: index.puts.end(1, CLIENT, TENANT, key))  # noqa: B023
        if number % 1_000 == 0:
            index.log.take_outbox()
            index.log.durable(index.log.last_n)
    return watch.end("put", puts)


def read(index: Index, count: int, yardstick: Yardstick) -> Activity:
    watch, random = Stopwatch(yardstick), Random(2)
    for _ in range(_SAMPLE):
        key = key_of(random.randrange(count))
        watch.step(lambda: index.reads.get(2, TENANT, key))  # noqa: B023
    index.take_renewals(1 << 40)
    return watch.end("read", _SAMPLE)


def evict(index: Index, goal: int, yardstick: Yardstick) -> Activity:
    watch = Stopwatch(yardstick)
    index.owners.ping(_LATER_MS, STORAGE)
    before = index.eviction.evicted_count
    index.eviction.start_round(index.space.used_bytes - goal * 4096)
    while watch.step(lambda: index.work(_LATER_MS)):
        pass
    return watch.end("evict", index.eviction.evicted_count - before)


def snapshot(index: Index, yardstick: Yardstick) -> tuple[bytes, Activity]:
    watch, taker, parts = Stopwatch(yardstick), SnapshotTaker(index, CLUSTER), []
    while not taker.sliced:
        watch.step(lambda: parts.append(taker.slice()))
    watch.step(lambda: parts.append(taker.keyless()))
    return b"".join(parts), watch.end("snapshot", index.catalog.object_count)


def tail(index: Index) -> list[tuple[int, bytes]]:
    """The slots of a journal after the snapshot: removes and new puts."""
    index.log.take_outbox()
    for entry in list(islice(index.catalog.objects(), _SAMPLE // 2)):
        index.removes.remove(_LATER_MS, TENANT, entry.key, True)
    for number in range(_SAMPLE // 2):
        key = b"tail-%d" % number
        index.puts.start(_LATER_MS, CLIENT, TENANT, key, 4096, PutConfig())
        index.puts.end(_LATER_MS, CLIENT, TENANT, key)
    return [
        (first_n, encode_explicit(OLD_EPOCH, first_n, (OLD_EPOCH, first_n - 1), 3_000, 0, [encode_records(records)]))
        for first_n, records in _batches(index.log.take_outbox())
    ]


def follow(node: Node, name: str, objects: int, done: Callable[[], bool], yardstick: Yardstick) -> Activity:
    """Run the machine until `done`."""
    watch = Stopwatch(yardstick)
    node.run_until(done, watch.step)
    return watch.end(name, objects)


def measure(count: int) -> list[Activity]:
    """All activities with `count` objects."""
    yardstick = Yardstick()
    gc.collect()
    before, started_ns = memory_bytes(), time.thread_time_ns()
    index = filled(count)
    fill = Activity("fill", count, (time.thread_time_ns() - started_ns) / 1e9 / yardstick.slowness(), 2 * count, 0.0)
    gc.collect()
    fill.bytes_per_object = (memory_bytes() - before) / count
    as_a_node()
    found = [fill, fill_more(index, min(_SAMPLE, count // 20), yardstick), read(index, count, yardstick)]
    found.append(evict(index, min(_SAMPLE, count // 4), yardstick))
    raw, saved = snapshot(index, yardstick)
    found.append(saved)
    slots, last_n, objects = tail(index), index.log.last_n, saved.objects
    for _ in index.discarding(100_000):
        pass
    del index
    gc.unfreeze()
    gc.collect()
    gc.disable()  # as a node does while it loads
    node = Node()
    machine = node.machine
    node.start(raw)
    del raw
    found.append(follow(node, "restore", objects, lambda: machine.ready, yardstick))
    gc.freeze()
    gc.enable()
    for first_n, batch in slots:
        node.store.execute(Put(slot_key(node.keys.explicit, first_n), batch))
    records = last_n - machine.index.log.last_n
    found.append(follow(node, "catch up", records, lambda: machine.index.log.last_n == last_n, yardstick))
    node.end_old_epoch()
    found.append(follow(node, "promote", objects, lambda: machine.role.value == "primary", yardstick))
    return found


def keep(found: Iterable[Activity], count: int) -> None:
    """Replace the figures of this size in the file that the picture is drawn from."""
    sizes = msgspec.json.decode(FILE.read_bytes(), type=dict[str, list[Activity]]) if FILE.exists() else {}
    sizes[str(count)] = list(found)
    ordered = dict(sorted(sizes.items(), key=lambda one: int(one[0])))
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n")


def main() -> None:
    """Measure each size in its own process."""
    for size in os.environ.get("LEASEHOLD_BENCH_OBJECTS", "100000,1000000").split(","):
        run = subprocess.run([sys.executable, "-m", __spec__.name, size], stdout=subprocess.PIPE, check=True)
        found = msgspec.json.decode(run.stdout, type=list[Activity])
        keep(found, int(size))
        for one in found:
            longest = f"{one.steps:>10,} steps, the longest {one.longest_ms:6.2f} ms" if one.longest_ms else ""
            print(f"{int(size):>12,}  {one.name:<9} {one.rate:>12,.0f}/s  {one.seconds:8.2f} s  {longest}", flush=True)
            record(f"{one.name}, {size} objects", one.rate, PER_SECOND)
            if one.longest_ms:
                record(f"{one.name}, {size} objects, longest step", one.longest_ms, "ms")
        print(f"{int(size):>12,}  {found[0].bytes_per_object:.0f} bytes per object", flush=True)
        record(f"bytes per object, {size} objects", found[0].bytes_per_object, "bytes")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.stdout.buffer.write(msgspec.json.encode(measure(int(sys.argv[1]))))
    else:
        main()
