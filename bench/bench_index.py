"""The state alone, in this process: nanoseconds a call, bytes an object, evictions a second and the pauses meanwhile.

python -m bench.bench_index
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from random import Random

from bench.rows import PER_SECOND, record
from leasehold.index import Code, Index, IndexSettings, PutConfig, SegmentSpec

_TENANT = b"default"
_CLIENT = b"writer-client--1"
_STORAGE = b"storage-client-1"
_SIZE = 4096
_PLAIN = PutConfig()


def key_of(number: int) -> bytes:
    """23 bytes, as in the figure for the C++ master."""
    return b"bench-key-%013d" % number


def filled(count: int, seed: int = 1) -> Index:
    """An index with `count` finished objects of 4 KiB, the pool 88 % full."""
    index = Index(IndexSettings(), Random(seed).randrange)
    index.begin(0, 1)
    pool = int(count * _SIZE / 0.88) & ~63
    for number in range(4):
        name = f"seg{number}"
        segment = SegmentSpec(bytes([number]) * 16, name, 1 << 40, pool // 4, f"{name}:1", "tcp")
        assert index.mounts.mount(0, _STORAGE, segment).code == Code.OK
    for number in range(count):
        key = key_of(number)
        code = index.puts.start(1, _CLIENT, _TENANT, key, _SIZE, _PLAIN).code
        assert code == Code.OK
        index.puts.end(1, _CLIENT, _TENANT, key)
        if number % 10_000 == 0:
            index.log.take_outbox()
            index.log.durable(index.log.last_n)
    index.log.take_outbox()
    index.log.durable(index.log.last_n)
    return index


def memory_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def ns_per_call(call: Callable[[int], object], count: int) -> float:
    """The best of three rounds, in time of this thread: neighbours on the machine do not count."""
    best = float("inf")
    for _ in range(3):
        started = time.thread_time_ns()
        for number in range(count):
            call(number)
        best = min(best, (time.thread_time_ns() - started) / count)
    return best


def bytes_per_object(count: int) -> float:
    gc.collect()
    before = memory_bytes()
    index = filled(count)
    gc.collect()
    used = (memory_bytes() - before) / count
    assert index.catalog.object_count == count
    return used


def hot_paths(index: Index, count: int) -> dict[str, float]:
    hot = [key_of(number) for number in range(1_000)]
    random = Random(2)
    cold = [key_of(random.randrange(count)) for _ in range(100_000)]
    batch = hot[:500]
    figures = {
        "get, hot, ns": ns_per_call(lambda n: index.reads.get(1_000 + n, _TENANT, hot[n % 1_000]), 100_000),
        "get, cold (1M objects), ns": ns_per_call(lambda n: index.reads.get(500_000 + n, _TENANT, cold[n]), 100_000),
        "exist, batch of 500, ns per key": ns_per_call(
            lambda n: index.reads.exist_many(900_000 + n, _TENANT, batch, b"\1\1", b"\1\0"), 200
        )
        / 500,
    }
    index.take_renewals(10_000_000)

    def put_and_remove(number: int) -> None:
        key = b"fresh-%d" % number
        index.puts.start(1_000_000, _CLIENT, _TENANT, key, _SIZE, _PLAIN)
        index.puts.end(1_000_000, _CLIENT, _TENANT, key)
        index.removes.remove(1_000_000, _TENANT, key, True)
        if number % 1_000 == 0:
            index.log.take_outbox()
            index.log.durable(index.log.last_n)

    figures["put_start + put_end + remove, ns"] = ns_per_call(put_and_remove, 20_000)
    return figures


def eviction(index: Index, goal: int) -> dict[str, float]:
    """Evict `goal` objects in pieces, with requests between the pieces: speed, and how long a request waits."""
    gc.collect()
    gc.freeze()
    now_ms = 10_000_000
    index.owners.ping(now_ms, _STORAGE)
    keys = [key_of(number) for number in range(0, 1_000_000, 7)]
    random = Random(3)
    pauses: list[int] = []
    before = index.eviction.evicted_count
    started = time.thread_time_ns()
    index.eviction.start_round(index.space.used_bytes - goal * _SIZE)
    while index.eviction.evicted_count - before < goal:
        piece = time.thread_time_ns()
        more = index.work(now_ms, 256)
        for _ in range(10):  # requests that waited for this piece
            index.reads.get(now_ms, _TENANT, random.choice(keys))
        pauses.append(time.thread_time_ns() - piece)
        if not more and index.eviction.evicted_count - before < goal:
            break
    seconds = (time.thread_time_ns() - started) / 1e9
    gc.unfreeze()
    pauses.sort()
    return {
        "evicted": float(index.eviction.evicted_count - before),
        "evictions per second": (index.eviction.evicted_count - before) / seconds,
        "a request waits, p99, ms": pauses[int(len(pauses) * 0.99)] / 1e6,
        "a request waits, worst, ms": pauses[-1] / 1e6,
    }


def main() -> None:
    """Print every figure beside the one to compare it with."""
    count = 500_000
    used = bytes_per_object(count)
    print(f"{used:10.0f}  bytes per object at 500,000 (the C++ master: 782)")
    record("bytes per object", used, "bytes")
    index = filled(1_000_000)
    for name, value in {**hot_paths(index, 1_000_000), **eviction(index, 400_000)}.items():
        print(f"{value:10,.3f}  {name}")
        if name == "evictions per second":
            record("evictions", value, PER_SECOND)
        elif name != "evicted":  # always the same number
            row, _, unit = name.rpartition(", ")
            record(row, value, unit)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
