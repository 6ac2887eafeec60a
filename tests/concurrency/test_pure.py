"""The pure parts: deadlines, predecessors, candidates, read sets, local queues."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from leasehold.concurrency.deadline import SessionDeadline, SessionState, margin_for
from leasehold.concurrency.local_queues import LocalQueues
from leasehold.concurrency.observe import Candidates
from leasehold.concurrency.place import WINDOW, predecessors_of
from leasehold.concurrency.readset import ReadSet
from leasehold.concurrency.semaphore import Countdown
from leasehold.mvcc.model import CompareResult, Event, EventType, Header, KeyValue

TTL_MS = 10_000


def deadline(sent_ms: int = 0) -> SessionDeadline:
    return SessionDeadline(sent_ms + TTL_MS, TTL_MS, margin_for(TTL_MS))


def test_the_margin_is_a_twentieth_within_bounds() -> None:
    assert [margin_for(ttl_ms) for ttl_ms in (60_000, 10_000, 2_000, 1_000, 60)] == [3_000, 500, 100, 50, 30]
    assert margin_for(10**9) == 3_000


def test_a_session_is_healthy_then_suspended_then_lost() -> None:
    session = deadline()
    states = [(now_ms, session.state(now_ms)) for now_ms in (0, 4_999, 5_000, 9_499, 9_500)]
    assert states == [
        (0, SessionState.HEALTHY),
        (4_999, SessionState.HEALTHY),
        (5_000, SessionState.SUSPENDED),
        (9_499, SessionState.SUSPENDED),
        (9_500, SessionState.LOST),
    ]


def test_a_renewal_counts_from_its_sending() -> None:
    session = deadline()
    session.renewed(4_000, 3_400 + TTL_MS)
    assert session.state(3_400 + TTL_MS - 501) is SessionState.SUSPENDED
    assert session.state(3_400 + TTL_MS - 500) is SessionState.LOST


def test_a_renewal_that_comes_too_late_revives_nothing() -> None:
    """Even if the state was not read in between: the process was frozen."""
    session = deadline()
    session.renewed(20_000, 20_000 + TTL_MS)
    assert session.state(20_001) is SessionState.LOST


def test_the_first_reason_stays() -> None:
    session = deadline()
    session.end("closed")
    session.end("something else")
    assert session.state(0) is SessionState.LOST
    assert session.lost_because == "closed"


@given(st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 3_000)), max_size=30))
def test_never_certain_beyond_send_plus_ttl_minus_margin(steps: list[tuple[int, int]]) -> None:
    """With any delays of the answers, the deadline passes before the store's lease can expire."""
    session, now_ms, last_sent_ms = deadline(), 0, 0
    for wait_ms, answer_ms in steps:
        sent_ms = now_ms + wait_ms
        now_ms = sent_ms + answer_ms
        alive_before = session.state(now_ms) is not SessionState.LOST
        session.renewed(now_ms, sent_ms + TTL_MS)
        last_sent_ms = sent_ms if alive_before else last_sent_ms
        certain = session.state(now_ms) is not SessionState.LOST
        assert not certain or now_ms < last_sent_ms + TTL_MS - margin_for(TTL_MS)
        assert session.next_change_ms(now_ms) <= last_sent_ms + TTL_MS


def kvs(*revisions: int) -> tuple[KeyValue, ...]:
    return tuple(KeyValue(b"k%d" % revision, create_revision=revision) for revision in revisions)


def test_all_keys_of_a_short_queue_are_known() -> None:
    ahead = predecessors_of(50, Header(60), kvs(50, 40, 30))
    assert [kv.create_revision for kv in ahead.kvs] == [40, 30]
    assert ahead.all_known
    assert not ahead.fill_window
    assert {(c.key, c.result, c.operand) for c in ahead.have_left()} == {
        (b"k40", CompareResult.NOT_EQUAL, 40),
        (b"k30", CompareResult.NOT_EQUAL, 30),
    }


def test_in_a_long_queue_no_key_is_ahead_of_a_predecessor_that_holds_the_lock() -> None:
    ahead = predecessors_of(1000, Header(1000), kvs(*range(1000, 1000 - WINDOW - 2, -1)))
    assert not ahead.all_known
    assert len(ahead.kvs) == WINDOW
    assert ahead.fill_window
    near = ahead.only_holder()
    assert near.all_known
    assert [kv.create_revision for kv in near.kvs] == [999]


def test_a_read_is_valid_if_a_watch_sees_every_change_after_it() -> None:
    ahead = predecessors_of(50, Header(60), kvs(50, 40))
    assert ahead.valid_at(61)
    assert ahead.valid_at(55), "a lagging member reports more, not less"
    assert not ahead.valid_at(62), "a key may have been deleted at 61"


def test_a_semaphore_counts_down() -> None:
    ahead = Countdown(b"own", {b"a", b"b", b"c"}, permits=2)
    assert not ahead.turn_has_come
    assert not ahead.deleted(b"a key behind")
    assert not ahead.deleted(b"a")
    assert ahead.deleted(b"b")
    assert ahead.turn_has_come
    assert not ahead.own_deleted
    assert ahead.deleted(b"own")
    assert ahead.own_deleted


def test_the_oldest_candidate_leads() -> None:
    candidates = Candidates(kvs(7, 5, 9))
    assert candidates.head() == KeyValue(b"k5", create_revision=5)
    candidates.apply(Event(EventType.DELETE, KeyValue(b"k5")))
    candidates.apply(Event(EventType.PUT, KeyValue(b"k7", b"new", create_revision=7, mod_revision=11)))
    head = candidates.head()
    assert head is not None
    assert head.value == b"new"
    for key in (b"k7", b"k9"):
        candidates.apply(Event(EventType.DELETE, KeyValue(key)))
    assert candidates.head() is None


def test_only_keys_that_were_used_are_compared() -> None:
    reads = ReadSet()
    reads.add(b"a", KeyValue(b"a", mod_revision=3), revision=10)
    reads.add(b"b", None, revision=10)
    assert reads.compares() == []
    reads.look(b"b")
    reads.add_range(b"r", b"s", (KeyValue(b"r1", mod_revision=4),), revision=12)
    compared = [(c.key, c.range_end, c.result, c.operand) for c in reads.compares()]
    assert compared == [
        (b"b", b"", CompareResult.EQUAL, 0),
        (b"r1", b"", CompareResult.EQUAL, 4),
        (b"r", b"s", CompareResult.LESS, 11),
    ]


async def test_local_queues_keep_their_order_and_vanish_when_empty() -> None:
    queues = LocalQueues()
    first, second, third = (queues.join(b"x") for _ in range(3))
    assert [place.done() for place in (first, second, third)] == [True, False, False]
    queues.leave(b"x", second)
    queues.leave(b"x", first)
    assert third.done()
    assert queues.occupied(b"x")
    queues.leave(b"x", third)
    assert not queues.occupied(b"x")
    await asyncio.sleep(0)
