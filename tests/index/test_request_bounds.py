"""No request may stall the master, make it write a record that is too large, or keep memory forever."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import thread_time

import pytest
from tests.index.kit import KIB, OTHER, STORAGE, WRITER, T, follow, primary, put, spec, standby

from leasehold.base.limits import (
    clients_max,
    pattern_instructions_max,
    preferred_segments_max,
    replicas_max,
    segments_per_client_max,
    tenants_max,
)
from leasehold.index import Code, PutConfig
from leasehold.index.patterns import BadPattern, accept_pattern, compile_pattern, work_of
from leasehold.index.replies import Acknowledged
from leasehold.journal.batch import encode_records

HELD_UP_S = 1.0  # of processor time: a guardian ends a worker that does not beat for two seconds


def seconds(what: Callable[[], object]) -> float:
    before = thread_time()
    what()
    return thread_time() - before


def test_more_segments_than_one_client_may_lend_are_refused_and_nothing_is_mounted() -> None:
    index = primary()
    too_many = [spec(10 + number) for number in range(segments_per_client_max + 1)]
    assert index.mounts.remount(0, OTHER, too_many) == Acknowledged(Code.BAD_PARAMS, 0)
    assert len(index.space.segments) == 1
    assert index.log.refused == {"too many segments": 1}
    assert index.mounts.remount(0, OTHER, too_many[:-1]).code == Code.OK
    assert index.mounts.mount(0, OTHER, too_many[-1]).code == Code.BAD_PARAMS
    index.check()


def test_thousands_of_segments_are_mounted_found_and_ended_without_a_pause() -> None:
    index = primary()
    lenders = [bytes([number]) * 16 for number in range(1, 5)]
    for lender in lenders:
        specs = [spec(1000 * (10 + lender[0]) + number) for number in range(1000)]
        assert seconds(partial(index.mounts.remount, 0, lender, specs)) < HELD_UP_S
    assert seconds(lambda: [index.owners.endpoints_of(b"unknown") for _ in range(32_768)]) < HELD_UP_S
    assert seconds(lambda: [index.space.segments.by_name.get("nowhere") for _ in range(32_768)]) < HELD_UP_S
    assert len(index.space.segments.by_client.get(lenders[0])) == 1000
    assert seconds(lambda: index.mounts.unmount(0, lenders[1], spec(12_500).id)) < HELD_UP_S
    assert len(index.space.segments.placeable[False]) == 4000
    index.check()


def test_an_overlap_is_still_found_among_many() -> None:
    index = primary()
    assert index.mounts.mount(0, OTHER, spec(7, base=0x10_0000, endpoint="one:1")).code == Code.OK
    assert index.mounts.mount(0, OTHER, spec(8, base=0x10_0040, endpoint="one:1")).code == Code.SEGMENT_EXISTS
    assert index.mounts.mount(0, OTHER, spec(8, base=0x10_0040, endpoint="two:1")).code == Code.OK
    assert index.mounts.mount(0, STORAGE, spec(9, base=0x10_0040, endpoint="two:1")).code == Code.OK  # supersedes
    assert [segment.spec.id for segment in index.space.segments.by_client.get(OTHER)] == [spec(7).id]
    assert index.space.segments.by_id.keys() == {spec(number).id for number in (1, 7, 9)}


def test_clients_that_lend_nothing_are_bounded() -> None:
    index = primary()
    for number in range(clients_max - 1):
        index.mounts.remount(0, number.to_bytes(16, "big"), [])
    assert index.mounts.remount(0, OTHER, []) == Acknowledged(Code.BAD_PARAMS, 0)
    assert index.mounts.remount(0, STORAGE, [spec(1)]).code == Code.OK


def test_a_put_may_not_prefer_too_many_segments() -> None:
    index = primary((64 * KIB, 64 * KIB, 64 * KIB))
    names = tuple(f"nowhere{number}" for number in range(preferred_segments_max - 1))
    reply = index.puts.start(0, WRITER, T, b"k", 10, PutConfig(preferred_segments=(*names, "seg3")))
    code, entry = reply.code, reply.value
    assert code == Code.OK
    assert entry is not None
    assert entry.replicas[0].segment.spec.name == "seg3"
    too_many = PutConfig(preferred_segments=(*names, "seg3", "seg2"))
    assert index.puts.start(0, WRITER, T, b"k2", 10, too_many).code == Code.BAD_PARAMS


def test_a_copy_to_more_places_than_a_replica_id_can_tell_is_refused() -> None:
    index = primary((64 * KIB,) * (replicas_max + 3))
    put(index, 0, b"k")
    names = [f"seg{number}" for number in range(1, replicas_max + 4)]
    assert index.copies.copy_start(0, WRITER, T, b"k", "", names).code == Code.BAD_PARAMS
    reply = index.copies.copy_start(0, WRITER, T, b"k", "", names[:replicas_max])
    code, plan, n = reply.code, reply.value, reply.after
    assert code == Code.OK
    assert plan is not None
    assert {replica.id >> 4 for replica in plan[1]} == {n}


def test_no_task_makes_a_record_that_no_batch_can_hold() -> None:
    """One call with a hundred times the same name ended every primary in turn: the record could not be written."""
    index = primary()
    put(index, 0, b"k")
    assert index.tasks.create_copy(0, T, b"k", ["seg1"] * 1000).code == Code.BAD_PARAMS
    assert index.tasks.create_copy(0, T, b"k", ["seg1"] * replicas_max).code == Code.OK
    assert len(encode_records([record for _, record in index.log.take_outbox()])[1]) < 4 * KIB


def test_tables_of_tenants_without_objects_are_given_back() -> None:
    leader, follower = primary(), standby()
    for number in range(100):
        tenant = b"tenant%d" % number
        assert leader.puts.start(0, WRITER, tenant, b"k", 10, PutConfig()).code == Code.OK
        if number:
            assert leader.puts.revoke(0, WRITER, tenant, b"k").code == Code.OK
    follow(follower, leader)
    for turn in range(1, 30):
        leader.work(turn * 100)
        follower.observe(turn * 100)
    assert list(leader.catalog.tables) == list(follower.catalog.tables) == [b"tenant0"]
    leader.check()


def test_there_may_not_be_too_many_tenants() -> None:
    index = primary((64 * tenants_max + 64 * KIB,))
    for number in range(tenants_max):
        assert index.puts.start(0, WRITER, b"%d" % number, b"k", 10, PutConfig()).code == Code.OK
    assert index.puts.start(0, WRITER, b"one more", b"k", 10, PutConfig()).code == Code.NO_SPACE
    assert index.puts.start_upsert(0, WRITER, b"one more", b"k", 10, PutConfig()).code == Code.NO_SPACE
    assert index.puts.start(0, WRITER, b"7", b"k2", 10, PutConfig()).code == Code.OK


def test_a_pattern_that_would_take_seconds_for_one_key_is_refused() -> None:
    """It is linear in the key, but was 8 s for one of 64 KiB: every instruction is looked at for every byte."""
    with pytest.raises(BadPattern, match="too complex"):
        accept_pattern(rb"(a?){1000}(a?){1000}b")
    worst = accept_pattern(rb"(a?){127}(a?){127}b")
    assert pattern_instructions_max * 0.9 < worst.programsize <= pattern_instructions_max
    assert seconds(lambda: worst.search(b"a" * 64 * KIB)) < 4 * HELD_UP_S
    assert work_of(worst, [b"a" * 64 * KIB]) > 10_000
    assert work_of(accept_pattern(rb"^layer-[0-9]+/"), [b"k" * 40] * 100) < 120


def test_what_is_in_the_journal_is_applied_however_complex_it_is() -> None:
    assert compile_pattern(rb"(a?){1000}(a?){1000}b").search(b"ab")
