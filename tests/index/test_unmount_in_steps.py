"""A segment is unmounted immediately, and its objects are settled step by step: no caller can see the difference."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest
from tests.index.kit import all_slices, settings
from tests.measured import until_met

from leasehold.index import Code, Index, PutConfig, SegmentSpec

CLIENT, TENANT, PLAIN = b"writer", b"default", PutConfig()
COUNT = 600


def spec(number: int) -> SegmentSpec:
    return SegmentSpec(bytes([number]) * 16, f"s{number}", 1 << 40, 1 << 20, f"h{number}:1", "tcp")


def pool(step_objects: int) -> Index:
    """Six hundred objects on two segments, every tenth on both; the first segment has just been taken back."""
    index = Index(settings(), lambda choices: 0)
    index.catalog.settle_step_objects = step_objects
    index.begin(0, 1)
    for number in (1, 2):
        index.mounts.mount(0, bytes([number]), spec(number))
    for number in range(COUNT):
        config = PutConfig(replicas=2) if number % 10 == 0 else PLAIN
        assert index.puts.start(1, CLIENT, TENANT, key(number), 64, config).code == Code.OK
        index.puts.end(1, CLIENT, TENANT, key(number))
    assert index.mounts.unmount(2, bytes([1]), spec(1).id).code == Code.OK
    return index


def key(number: int) -> bytes:
    return b"key-%03d" % number


def every_answer(index: Index) -> list[object]:
    """The answers to callers of every kind, each about other objects."""
    keys = [key(number) for number in range(COUNT)]
    answers: list[object] = [index.reads.exist_many(3, TENANT, keys[0:100], True, False)]
    answers.append(
        [found and [r.id for r in found.replicas] for found in index.reads.get_many(3, TENANT, keys[100:200]).value]
    )
    answers.append([index.removes.remove(3, TENANT, each, True) for each in keys[200:300]])
    answers.append([index.puts.start(3, CLIENT, TENANT, each, 64, PLAIN).code for each in keys[300:350]])
    answers.append([index.puts.start_upsert(3, CLIENT, TENANT, each, 64, PLAIN).code for each in keys[350:400]])
    answers.append([index.copies.copy_start(3, CLIENT, TENANT, each, "s2", ["s2"]).code for each in keys[400:420]])
    answers.append([index.reads.get(3, TENANT, each) is not None for each in keys[420:450]])
    answers.append(index.removes.remove_by_regex(4, TENANT, b"key-4[5-9]", True))
    answers.append(index.removes.remove_all(4, TENANT, False))
    index.check()
    return answers


def test_every_caller_is_answered_as_if_all_objects_had_been_settled() -> None:
    spread, immediately = pool(0), pool(COUNT)
    assert spread.catalog.ending
    assert not immediately.catalog.ending
    assert every_answer(spread) == every_answer(immediately)
    assert spread.catalog.ending, "the rest is still to come"
    while spread.work(5):
        spread.check()
    assert not spread.catalog.ending
    assert spread.digest() == immediately.digest()
    assert spread.catalog.object_count == immediately.catalog.object_count
    assert spread.space.used_bytes == immediately.space.used_bytes


def test_an_object_with_a_replica_elsewhere_survives_the_walk() -> None:
    index = pool(0)
    both = [key(number) for number in range(0, COUNT, 10)]
    assert all(index.reads.get(3, TENANT, each) is not None for each in both)
    while index.work(4):
        pass
    assert [len(found.replicas) for each in both if (found := index.reads.get(5, TENANT, each)) is not None] == [1] * 60
    index.check()


def test_a_standby_that_is_behind_with_it_ends_in_the_same_state() -> None:
    leader, standby = pool(0), Index(settings(), lambda choices: 0)
    standby.catalog.settle_step_objects = 0
    every_answer(leader)
    for n, record in leader.log.take_outbox():
        standby.apply(n, record)
        if n % 50 == 0:
            standby.check()
    assert standby.digest() == leader.digest()


def test_a_snapshot_taken_meanwhile_has_nothing_of_the_segment() -> None:
    leader, loaded = pool(0), Index(settings(), lambda choices: 0)
    assert leader.catalog.ending
    loaded.load(leader.export.keyless(), all_slices(leader))
    loaded.check()
    assert loaded.digest() == leader.digest()


def test_renewals_do_not_name_what_was_on_the_segment() -> None:
    """A standby has deleted it already: it would report divergence and rebuild, again and again."""
    index = Index(settings(), lambda choices: 0)
    index.catalog.settle_step_objects = 0
    index.begin(0, 1)
    for number in (1, 2):
        index.mounts.mount(0, bytes([number]), spec(number))
    for number in range(COUNT):
        index.puts.start(1, CLIENT, TENANT, key(number), 64, PLAIN)
        index.puts.end(1, CLIENT, TENANT, key(number))
    index.reads.exist_many(2, TENANT, [key(number) for number in range(COUNT)], True, False)
    assert index.mounts.unmount(2, bytes([1]), spec(1).id).code == Code.OK
    assert index.catalog.ending
    named = {renewal[1] for renewal in index.take_renewals(COUNT)[0]}
    left = {key(number) for number in range(COUNT) if index.catalog.lookup(TENANT, key(number)) is not None}
    assert named == left


def test_the_same_memory_lent_again_meanwhile_is_another_segment() -> None:
    index = pool(0)
    assert index.mounts.mount(3, bytes([1]), spec(1)).code == Code.OK
    assert index.catalog.ending
    for number in range(COUNT, COUNT + 50):
        assert index.puts.start(3, CLIENT, TENANT, key(number), 64, PLAIN).code == Code.OK
    while index.work(4):
        index.check()
    index.check()


_SCRIPT = """
import gc, json, time
from bench.bench_index import filled
from leasehold.index.patterns import compile_pattern
from leasehold.journal.snapshot_file import SnapshotTaker
from leasehold.node.service.descriptors import DescriptorWriter
from leasehold.node.service.regex_listing import Found, replica_of
from leasehold.wire.tables import NEWEST
from tests.measured import Yardstick

TENANT, STORAGE = b"default", b"storage-client-1"

def steps_ms(step, steps_max=1_000_000):
    # In milliseconds of a core that is as fast as the reference.
    took_ms, more, before = [], True, yardstick.slowness()
    while more and len(took_ms) < steps_max:
        started_ns = time.thread_time_ns()
        more = step()
        took_ms.append((time.thread_time_ns() - started_ns) / 1e6)
    slowness = (before + yardstick.slowness()) / 2
    return [each / slowness for each in took_ms]

def longest_of_the_best(run):
    # A neighbour's cache misses are in a thread's own time, too: the cost of each step is the best of three.
    return max(min(times) for times in zip(run(), run(), run(), strict=True))

def snapshot():
    taker = SnapshotTaker(index, "c")
    return steps_ms(lambda: bool(taker.slice()) and not taker.sliced, 1_000)

def listing():
    found = Found(index, TENANT, compile_pattern(b"0[0-4]..$"), writer)
    return steps_ms(lambda: found.step(1_000_000), 1_000)

def removal_by_regex():
    removal = index.removes.start_range(TENANT, b"nothing has this name", False)
    return steps_ms(lambda: not removal.step(1_000_000), 1_000)

def removed_or_applied(one):
    # What cannot be done twice: every step but the one in a hundred that has a neighbour, or a dict that grows. How
    # long it takes to double a dict is the memory's own speed (3 to 13 ms for the same one, docs/why/index.md), not a
    # step's.
    return sorted(one)[len(one) * 99 // 100]

longest_ms, yardstick = {}, Yardstick()
index = filled(1_000_000)
returns = NEWEST.functions["GetReplicaListByRegex"].returns
writer = DescriptorWriter(NEWEST.name, replica_of(returns))
gc.collect()
gc.freeze()
longest_ms["slice"] = longest_of_the_best(snapshot)
longest_ms["listing"] = longest_of_the_best(listing)
longest_ms["regex"] = longest_of_the_best(removal_by_regex)
segment = index.space.segments.by_client.get(STORAGE)[0]
longest_ms["record"] = max(steps_ms(lambda: index.mounts.unmount(2_000_000, STORAGE, segment.spec.id) is None))
longest_ms["walk"] = max(steps_ms(lambda: index.catalog.settle_some(256)))
left = index.catalog.object_count
index.log.take_outbox()
removal = index.removes.start_range(TENANT, b"", True)
longest_ms["remove_all"] = removed_or_applied(steps_ms(lambda: not removal.step(2_000_000), 4_000))
assert removal.count == left - index.catalog.object_count > 100_000
print(json.dumps({**longest_ms, "left": left}))
"""


@pytest.mark.alone
@pytest.mark.timeout(1200)
def test_no_step_takes_more_than_five_milliseconds_with_a_million_objects() -> None:
    """Snapshot, listing, removal by regex; ending a segment with a quarter of a million objects; removing the rest."""
    for worst_ms in until_met(5, "ms of the longest step"):
        ran = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True)
        longest_ms: dict[str, float] = msgspec.json.decode(ran.stdout)
        left = longest_ms.pop("left")
        assert 700_000 < left < 800_000
        print(longest_ms)
        worst_ms.append(max(longest_ms.values()))
