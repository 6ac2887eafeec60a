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


class ClientUnderTest:
    """A machine whose messages the test sends and receives."""

    def __init__(self, **settings: Any) -> None:
        self.machine = ClientMachine(ClientSettings(drift_ppm=0, attempt_timeout_ms=500, **settings))
        self.out: list[object] = []
        self.effects: list[object] = []
        self._call = 0

    def feed(self, now_ms: int, event: c.ClientEvent) -> None:
        for effect in self.machine.handle(now_ms, event):
            if isinstance(effect, c.Transmit):
                self.out.append(effect.message)
            else:
                self.effects.append(effect)

    def get(self, now_ms: int, *keys: bytes) -> int:
        self._call += 1
        self.feed(now_ms, c.Get(keys or (b"k",), self._call, now_ms + 5_000))
        return self._call

    def put(self, now_ms: int, value: bytes = b"new") -> int:
        self._call += 1
        self.feed(now_ms, c.Put(b"k", value, self._call, "callback", 1_000))
        return self._call

    def receive(self, now_ms: int, message: FromAuthority) -> None:
        self.feed(now_ms, c.FromServer([message]))

    def seq(self) -> int:
        last = self.out[-1]
        assert isinstance(last, Ask | Write)
        return last.seq

    def answer(self, now_ms: int, seq: int, value: bytes | None = b"v1", term_ms: int = 1_000) -> None:
        self.receive(now_ms, Answer(seq, (Item(b"k", value, V1, term_ms),)))

    def valid(self, now_ms: int, key: bytes = b"k") -> bool:
        return self.machine.entries.valid(now_ms, key) is not None


def values(client: ClientUnderTest) -> list[tuple[int, bytes | None]]:
    return [(effect.call, effect.value) for effect in client.effects if isinstance(effect, c.Deliver)]


def test_a_lease_counts_from_the_sending_of_the_attempt_that_was_answered() -> None:
    client = ClientUnderTest()
    client.get(0)
    client.answer(400, client.seq())
    assert client.valid(998)
    assert not client.valid(999)  # one millisecond of margin for the clock's resolution


def test_schedule_22c_an_answer_to_an_attempt_that_was_given_up_is_not_kept() -> None:
    client = ClientUnderTest()
    client.get(0)
    first = client.seq()
    client.feed(500, c.Tick())
    assert client.seq() != first
    client.answer(600, first)
    assert not client.valid(600)
    client.answer(610, client.seq())
    assert values(client) == [(1, b"v1")]
    assert client.valid(1_400)


def test_schedule_6b_a_grant_overtaken_by_its_callback_is_returned_once_and_never_kept() -> None:
    client = ClientUnderTest()
    client.get(0)
    seq = client.seq()
    client.receive(5, Drop(((b"k", V2),)))
    assert client.out[-1] == Ack(((b"k", V2),))
    client.answer(6, seq)
    assert values(client) == [(1, b"v1")]
    assert not client.valid(6)


def test_schedule_6c_a_writer_drops_its_copy_and_keeps_nothing_requested_before_its_write_was_answered() -> None:
    client = ClientUnderTest()
    client.get(0)
    client.answer(1, client.seq())
    assert client.valid(2)
    client.put(3)
    write = client.seq()
    assert not client.valid(3)
    client.get(4)
    seq = client.seq()
    client.receive(5, Outcome(write, Code.OK, V2))
    client.answer(6, seq)
    assert not client.valid(6)


def test_concurrent_misses_ask_once() -> None:
    client = ClientUnderTest()
    for now_ms in range(5):
        client.get(now_ms)
    assert len(client.out) == 1
    client.answer(10, client.seq())
    assert [waiter for waiter, _ in values(client)] == [1, 2, 3, 4, 5]


def test_an_answer_without_a_lease_is_only_for_callers_from_before_the_request() -> None:
    client = ClientUnderTest()
    client.get(0)
    client.get(5)
    client.answer(10, client.seq(), term_ms=0)
    assert values(client) == [(1, b"v1")]
    client.answer(20, client.seq(), b"v2", term_ms=0)
    assert values(client) == [(1, b"v1"), (2, b"v2")]


def test_a_read_after_a_callback_does_not_join_a_void_request() -> None:
    client = ClientUnderTest()
    client.get(0)
    client.receive(5, Drop(((b"k", V2),)))
    client.get(6)
    assert [type(message) for message in client.out] == [Ask, Ack, Ask]


def test_absence_is_cached_under_a_lease_as_well() -> None:
    client = ClientUnderTest()
    client.get(0)
    client.answer(1, client.seq(), None)
    client.get(2)
    assert values(client) == [(1, None), (2, None)]
    assert len(client.out) == 1


def test_least_recently_used_goes_first_by_entries_and_by_bytes() -> None:
    client = ClientUnderTest(entries_max=2)
    for number in range(3):
        key = b"k%d" % number
        client.get(0, key)
        client.receive(1, Answer(client.seq(), (Item(key, b"v", V1, 1_000),)))
        client.get(2, b"k0")
    assert client.valid(3, b"k0")
    assert not client.valid(3, b"k1")
    assert client.valid(3, b"k2")
    small = ClientUnderTest(bytes_max=1_024)
    for number in range(4):
        key = b"k%d" % number
        small.get(0, key)
        small.receive(1, Answer(small.seq(), (Item(key, b"v" * 200, V1, 1_000),)))
    assert small.machine.entries.bytes <= 1_024
    assert len(small.machine.entries) == 2


def test_unanswered_writes_end_in_unknown_outcome() -> None:
    client = ClientUnderTest()
    client.put(0)
    client.feed(1_000, c.Tick())
    client.put(2_000)
    client.feed(2_001, c.Lost())
    codes = [effect.code for effect in client.effects if isinstance(effect, c.Fail)]
    assert codes == [Code.UNKNOWN, Code.UNKNOWN]


def test_a_stopping_authority_makes_clients_drop_everything() -> None:
    client = ClientUnderTest()
    client.get(0)
    client.answer(1, client.seq())
    client.receive(2, Drop(()))
    assert client.out[-1] == Release()
    assert not client.valid(2)


def test_schedule_12_a_leap_of_the_clock_ends_every_lease() -> None:
    client = ClientUnderTest()
    client.get(0)
    client.answer(1, client.seq())
    assert not client.valid(60_000)


def test_unrequested_answers_are_ignored() -> None:
    client = ClientUnderTest()
    client.answer(0, 99)
    client.receive(0, Outcome(99, Code.OK, ABSENT))
    assert client.effects == []
    assert not client.valid(0)


def holding(client: ClientUnderTest, *, used: bool = True) -> None:
    client.get(0)
    client.answer(1, client.seq())
    if used:
        client.get(2)


def test_a_callback_on_a_used_value_requests_the_new_one_and_counts_from_there() -> None:
    client = ClientUnderTest()
    holding(client)
    client.receive(100, Drop(((b"k", V2),)))
    ack = client.out[-1]
    assert isinstance(ack, Ack)
    assert ack.hits == (1,)
    client.receive(400, Refill(((ack.seq, Item(b"k", b"v2", V2, 1_000)),)))
    assert client.valid(1_098)
    assert not client.valid(1_099)


def hits_in_acknowledgements(client: ClientUnderTest, times: int) -> list[tuple[int | None, ...]]:
    """Call the value back `times` times, with a refill each time; returns the hits in the acknowledgements."""
    found = []
    for now_ms in range(100, 100 + 10 * times, 10):
        client.receive(now_ms, Drop(((b"k", V2),)))
        ack = client.out[-1]
        assert isinstance(ack, Ack)
        found.append(ack.hits)
        client.receive(now_ms + 1, Refill(((ack.seq, Item(b"k", b"v2", V2, 1_000)),)))
    return found


def test_a_value_in_use_is_refilled_twice_without_use() -> None:
    client = ClientUnderTest()
    holding(client)
    assert hits_in_acknowledgements(client, 4) == [(1,), (0,), (0,), ()]
    assert not client.valid(140)


def test_a_value_that_was_read_once_is_refilled_once() -> None:
    client = ClientUnderTest()
    holding(client, used=False)
    assert hits_in_acknowledgements(client, 2) == [(0,), ()]


def test_no_reader_joins_a_refill_because_it_waits_for_the_writer() -> None:
    client = ClientUnderTest()
    holding(client)
    client.receive(100, Drop(((b"k", V2),)))
    waiter = client.get(101)
    assert isinstance(client.out[-1], Ask)
    client.answer(102, client.seq(), b"v1", term_ms=0)
    assert values(client)[-1] == (waiter, b"v1")
    assert not client.valid(103)


def test_a_refill_is_void_after_another_callback_and_after_an_own_write() -> None:
    for trouble in ("callback", "write"):
        client = ClientUnderTest()
        holding(client)
        client.receive(100, Drop(((b"k", V2),)))
        ack = client.out[-1]
        assert isinstance(ack, Ack)
        if trouble == "callback":
            client.receive(101, Drop(((b"k", Version(1, 3)),)))
            again = client.out[-1]
            assert isinstance(again, Ack)
            assert (again.seq, again.hits) == (ack.seq + 1, (0,)), "it still wants it, by a request of its own"
        else:
            client.put(101)
        client.receive(102, Refill(((ack.seq, Item(b"k", b"v2", V2, 1_000)),)))
        assert not client.valid(103), trouble


def test_an_unanswered_refill_is_forgotten_and_not_repeated() -> None:
    client = ClientUnderTest()
    holding(client)
    client.receive(100, Drop(((b"k", V2),)))
    sent = len(client.out)
    client.feed(700, c.Tick())
    assert len(client.out) == sent
    assert client.machine.next_wake_ms() is None


def test_a_silent_connection_is_left() -> None:
    """An authority that is stopped keeps its connections open (found with SIGSTOP on a real one)."""
    client = ClientUnderTest()
    client.get(0)
    client.feed(500, c.Tick())
    assert c.Leave() not in client.effects
    client.feed(1_000, c.Tick())
    assert c.Leave() in client.effects


def test_a_connection_that_says_anything_is_kept() -> None:
    client = ClientUnderTest()
    client.get(0)
    for number in range(1, 9):
        client.feed(number * 500, c.Tick())
        client.receive(number * 500 + 1, Drop(((b"other", V2),)))
    assert c.Leave() not in client.effects


def outcome(client: ClientUnderTest, now_ms: int, seq: int, term_ms: int = 1_000) -> None:
    client.receive(now_ms, Outcome(seq, Code.OK, V2, "", term_ms))


def test_the_lease_on_a_written_value_counts_from_the_sending_of_the_write() -> None:
    client = ClientUnderTest()
    holding(client)
    client.put(100)
    write = client.out[-1]
    assert isinstance(write, Write)
    assert write.hits == 1
    outcome(client, 400, write.seq)
    entry = client.machine.entries.valid(1_098, b"k")
    assert entry is not None
    assert (entry.value, entry.version) == (b"new", V2)
    assert not client.valid(1_099)


def test_a_written_value_is_not_kept_after_a_callback_another_write_or_a_stop() -> None:
    for trouble in (Drop(((b"k", V2),)), Drop(()), None):
        client = ClientUnderTest()
        holding(client)
        client.put(100)
        first = client.seq()
        if trouble is not None:
            client.receive(101, trouble)
        else:
            client.put(101)
            second = client.seq()
        outcome(client, 102, first)
        assert not client.valid(103), trouble
        if trouble is None:
            outcome(client, 104, second)
            assert not client.valid(105), "two concurrent writes: their order of arrival is unknown"


def test_a_writer_that_never_read_does_not_keep_its_value() -> None:
    client = ClientUnderTest()
    client.put(100)
    assert isinstance(client.out[-1], Write)
    assert client.out[-1].hits is None
    outcome(client, 101, client.seq(), term_ms=0)
    assert not client.valid(102)


def test_refills_that_never_come_are_bounded() -> None:
    """The authority answers none where a lease does not pay."""
    client = ClientUnderTest(entries_max=2)
    for number in range(5):
        key = b"k%d" % number
        for now_ms in (0, 1):
            client.get(now_ms, key)
            if now_ms == 0:
                client.receive(0, Answer(client.seq(), (Item(key, b"v", V1, 1_000),)))
        client.receive(2, Drop(((key, V2),)))
    assert len(client.machine.entries) == 2
    assert not any(client.valid(3, b"k%d" % number) for number in range(5))
