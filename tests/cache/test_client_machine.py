"""The client's decisions, step by step."""

from __future__ import annotations

from typing import Any

from leasehold.cache import client_events as c
from leasehold.cache.client_machine import ClientMachine
from leasehold.cache.model import (
    ABSENT,
    Ack,
    Answer,
    Ask,
    Code,
    Drop,
    FromAuthority,
    Item,
    Outcome,
    Refill,
    Release,
    Version,
    Write,
)
from leasehold.cache.settings import ClientSettings

V1, V2 = Version(1, 1), Version(1, 2)


class Seat:
    """A client at which answers come in by hand."""

    def __init__(self, **settings: Any) -> None:
        self.machine = ClientMachine(ClientSettings(drift_ppm=0, attempt_timeout_ms=500, **settings))
        self.out: list[object] = []
        self.told: list[object] = []
        self._waiter = 0

    def feed(self, now_ms: int, event: c.ClientEvent) -> None:
        for effect in self.machine.handle(now_ms, event):
            if isinstance(effect, c.Transmit):
                self.out.append(effect.message)
            else:
                self.told.append(effect)

    def get(self, now_ms: int, *keys: bytes) -> int:
        self._waiter += 1
        self.feed(now_ms, c.Get(keys or (b"k",), self._waiter, now_ms + 5_000))
        return self._waiter

    def put(self, now_ms: int, value: bytes = b"new") -> int:
        self._waiter += 1
        self.feed(now_ms, c.Put(b"k", value, self._waiter, "callback", 1_000))
        return self._waiter

    def hear(self, now_ms: int, message: FromAuthority) -> None:
        self.feed(now_ms, c.FromServer([message]))

    def seq(self) -> int:
        last = self.out[-1]
        assert isinstance(last, Ask | Write)
        return last.seq

    def answer(self, now_ms: int, seq: int, value: bytes | None = b"v1", term_ms: int = 1_000) -> None:
        self.hear(now_ms, Answer(seq, (Item(b"k", value, V1, term_ms),)))

    def valid(self, now_ms: int, key: bytes = b"k") -> bool:
        return self.machine.entries.valid(now_ms, key) is not None


def values(seat: Seat) -> list[tuple[int, bytes | None]]:
    return [(effect.call, effect.value) for effect in seat.told if isinstance(effect, c.Deliver)]


def test_a_lease_counts_from_the_sending_of_the_attempt_that_was_answered() -> None:
    seat = Seat()
    seat.get(0)
    seat.answer(400, seat.seq())
    assert seat.valid(998)
    assert not seat.valid(999)  # one millisecond of margin for the clock's resolution


def test_schedule_22c_an_answer_to_an_attempt_that_was_given_up_is_not_kept() -> None:
    seat = Seat()
    seat.get(0)
    first = seat.seq()
    seat.feed(500, c.Tick())
    assert seat.seq() != first
    seat.answer(600, first)
    assert not seat.valid(600)
    seat.answer(610, seat.seq())
    assert values(seat) == [(1, b"v1")]
    assert seat.valid(1_400)


def test_schedule_6b_a_grant_overtaken_by_its_callback_is_returned_once_and_never_kept() -> None:
    seat = Seat()
    seat.get(0)
    asked = seat.seq()
    seat.hear(5, Drop(((b"k", V2),)))
    assert seat.out[-1] == Ack(((b"k", V2),))
    seat.answer(6, asked)
    assert values(seat) == [(1, b"v1")]
    assert not seat.valid(6)


def test_schedule_6c_a_writer_drops_its_copy_and_keeps_nothing_asked_for_before_its_write_was_answered() -> None:
    seat = Seat()
    seat.get(0)
    seat.answer(1, seat.seq())
    assert seat.valid(2)
    seat.put(3)
    write = seat.seq()
    assert not seat.valid(3)
    seat.get(4)
    asked = seat.seq()
    seat.hear(5, Outcome(write, Code.OK, V2))
    seat.answer(6, asked)
    assert not seat.valid(6)


def test_concurrent_misses_ask_once() -> None:
    seat = Seat()
    for now_ms in range(5):
        seat.get(now_ms)
    assert len(seat.out) == 1
    seat.answer(10, seat.seq())
    assert [waiter for waiter, _ in values(seat)] == [1, 2, 3, 4, 5]


def test_an_answer_without_a_lease_is_only_for_those_who_called_before_it_was_asked_for() -> None:
    seat = Seat()
    seat.get(0)
    seat.get(5)
    seat.answer(10, seat.seq(), term_ms=0)
    assert values(seat) == [(1, b"v1")]
    seat.answer(20, seat.seq(), b"v2", term_ms=0)
    assert values(seat) == [(1, b"v1"), (2, b"v2")]


def test_who_asks_after_a_callback_does_not_join_what_was_voided() -> None:
    seat = Seat()
    seat.get(0)
    seat.hear(5, Drop(((b"k", V2),)))
    seat.get(6)
    assert [type(message) for message in seat.out] == [Ask, Ack, Ask]


def test_absence_is_cached_under_a_lease_as_well() -> None:
    seat = Seat()
    seat.get(0)
    seat.answer(1, seat.seq(), None)
    seat.get(2)
    assert values(seat) == [(1, None), (2, None)]
    assert len(seat.out) == 1


def test_least_recently_used_goes_first_by_entries_and_by_bytes() -> None:
    seat = Seat(entries_max=2)
    for number in range(3):
        key = b"k%d" % number
        seat.get(0, key)
        seat.hear(1, Answer(seat.seq(), (Item(key, b"v", V1, 1_000),)))
        seat.get(2, b"k0")
    assert seat.valid(3, b"k0")
    assert not seat.valid(3, b"k1")
    assert seat.valid(3, b"k2")
    small = Seat(bytes_max=1_024)
    for number in range(4):
        key = b"k%d" % number
        small.get(0, key)
        small.hear(1, Answer(small.seq(), (Item(key, b"v" * 200, V1, 1_000),)))
    assert small.machine.entries.bytes <= 1_024
    assert len(small.machine.entries) == 2


def test_unanswered_writes_end_in_unknown_outcome() -> None:
    seat = Seat()
    seat.put(0)
    seat.feed(1_000, c.Tick())
    seat.put(2_000)
    seat.feed(2_001, c.Lost())
    codes = [effect.code for effect in seat.told if isinstance(effect, c.Fail)]
    assert codes == [Code.UNKNOWN, Code.UNKNOWN]


def test_an_authority_that_stops_makes_everybody_drop_everything() -> None:
    seat = Seat()
    seat.get(0)
    seat.answer(1, seat.seq())
    seat.hear(2, Drop(()))
    assert seat.out[-1] == Release()
    assert not seat.valid(2)


def test_schedule_12_a_leap_of_the_clock_ends_every_lease() -> None:
    seat = Seat()
    seat.get(0)
    seat.answer(1, seat.seq())
    assert not seat.valid(60_000)


def test_answers_nobody_asked_for_are_ignored() -> None:
    seat = Seat()
    seat.answer(0, 99)
    seat.hear(0, Outcome(99, Code.OK, ABSENT))
    assert seat.told == []
    assert not seat.valid(0)


def holding(seat: Seat, *, used: bool = True) -> None:
    seat.get(0)
    seat.answer(1, seat.seq())
    if used:
        seat.get(2)


def test_a_callback_on_a_used_value_asks_for_the_new_one_and_counts_from_there() -> None:
    seat = Seat()
    holding(seat)
    seat.hear(100, Drop(((b"k", V2),)))
    ack = seat.out[-1]
    assert isinstance(ack, Ack)
    assert ack.hits == (1,)
    seat.hear(400, Refill(((ack.seq, Item(b"k", b"v2", V2, 1_000)),)))
    assert seat.valid(1_098)
    assert not seat.valid(1_099)


def asked_in_acknowledgements(seat: Seat, times: int) -> list[tuple[int | None, ...]]:
    """Call it back so often, each time with what an acknowledgement asks for; what they asked."""
    asked = []
    for now_ms in range(100, 100 + 10 * times, 10):
        seat.hear(now_ms, Drop(((b"k", V2),)))
        ack = seat.out[-1]
        assert isinstance(ack, Ack)
        asked.append(ack.hits)
        seat.hear(now_ms + 1, Refill(((ack.seq, Item(b"k", b"v2", V2, 1_000)),)))
    return asked


def test_a_value_in_use_may_go_unused_twice_before_it_is_no_longer_asked_for() -> None:
    seat = Seat()
    holding(seat)
    assert asked_in_acknowledgements(seat, 4) == [(1,), (0,), (0,), ()]
    assert not seat.valid(140)


def test_what_was_read_but_once_is_asked_for_once_more() -> None:
    seat = Seat()
    holding(seat, used=False)
    assert asked_in_acknowledgements(seat, 2) == [(0,), ()]


def test_no_reader_joins_a_refill_because_it_waits_for_the_writer() -> None:
    seat = Seat()
    holding(seat)
    seat.hear(100, Drop(((b"k", V2),)))
    waiter = seat.get(101)
    assert isinstance(seat.out[-1], Ask)
    seat.answer(102, seat.seq(), b"v1", term_ms=0)
    assert values(seat)[-1] == (waiter, b"v1")
    assert not seat.valid(103)


def test_a_refill_is_void_after_another_callback_and_after_an_own_write() -> None:
    for trouble in ("callback", "write"):
        seat = Seat()
        holding(seat)
        seat.hear(100, Drop(((b"k", V2),)))
        ack = seat.out[-1]
        assert isinstance(ack, Ack)
        if trouble == "callback":
            seat.hear(101, Drop(((b"k", Version(1, 3)),)))
            again = seat.out[-1]
            assert isinstance(again, Ack)
            assert (again.seq, again.hits) == (ack.seq + 1, (0,)), "it still wants it, by a request of its own"
        else:
            seat.put(101)
        seat.hear(102, Refill(((ack.seq, Item(b"k", b"v2", V2, 1_000)),)))
        assert not seat.valid(103), trouble


def test_an_unanswered_refill_is_forgotten_and_not_repeated() -> None:
    seat = Seat()
    holding(seat)
    seat.hear(100, Drop(((b"k", V2),)))
    sent = len(seat.out)
    seat.feed(700, c.Tick())
    assert len(seat.out) == sent
    assert seat.machine.next_wake_ms() is None


def test_a_connection_on_which_nothing_is_heard_is_left() -> None:
    """An authority that is stopped keeps its connections open (found with SIGSTOP on a real one)."""
    seat = Seat()
    seat.get(0)
    seat.feed(500, c.Tick())
    assert c.Leave() not in seat.told
    seat.feed(1_000, c.Tick())
    assert c.Leave() in seat.told


def test_a_connection_that_says_anything_is_kept() -> None:
    seat = Seat()
    seat.get(0)
    for number in range(1, 9):
        seat.feed(number * 500, c.Tick())
        seat.hear(number * 500 + 1, Drop(((b"other", V2),)))
    assert c.Leave() not in seat.told


def outcome(seat: Seat, now_ms: int, seq: int, term_ms: int = 1_000) -> None:
    seat.hear(now_ms, Outcome(seq, Code.OK, V2, "", term_ms))


def test_a_writer_keeps_what_it_wrote_counted_from_when_it_sent_the_write() -> None:
    seat = Seat()
    holding(seat)
    seat.put(100)
    write = seat.out[-1]
    assert isinstance(write, Write)
    assert write.hits == 1
    outcome(seat, 400, write.seq)
    entry = seat.machine.entries.valid(1_098, b"k")
    assert entry is not None
    assert (entry.value, entry.version) == (b"new", V2)
    assert not seat.valid(1_099)


def test_what_was_written_is_not_kept_after_a_callback_another_write_or_the_end() -> None:
    for trouble in (Drop(((b"k", V2),)), Drop(()), None):
        seat = Seat()
        holding(seat)
        seat.put(100)
        first = seat.seq()
        if trouble is not None:
            seat.hear(101, trouble)
        else:
            seat.put(101)
            second = seat.seq()
        outcome(seat, 102, first)
        assert not seat.valid(103), trouble
        if trouble is None:
            outcome(seat, 104, second)
            assert not seat.valid(105), "two writes at once: the order in which they arrived is not known"


def test_a_writer_that_never_read_does_not_keep_what_it_wrote() -> None:
    seat = Seat()
    seat.put(100)
    assert isinstance(seat.out[-1], Write)
    assert seat.out[-1].hits is None
    outcome(seat, 101, seat.seq(), term_ms=0)
    assert not seat.valid(102)


def test_refills_that_never_come_are_bounded() -> None:
    """The authority answers none where a lease does not pay."""
    seat = Seat(entries_max=2)
    for number in range(5):
        key = b"k%d" % number
        for now_ms in (0, 1):
            seat.get(now_ms, key)
            if now_ms == 0:
                seat.hear(0, Answer(seat.seq(), (Item(key, b"v", V1, 1_000),)))
        seat.hear(2, Drop(((key, V2),)))
    assert len(seat.machine.entries) == 2
    assert not any(seat.valid(3, b"k%d" % number) for number in range(5))
