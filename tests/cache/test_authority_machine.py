"""The authority's decisions, step by step, and the schedules that broke earlier drafts."""

from __future__ import annotations

from typing import Any

from leasehold.base import limits
from leasehold.cache import events as e
from leasehold.cache.authority_machine import AuthorityMachine
from leasehold.cache.model import (
    ABSENT,
    Ack,
    Answer,
    Ask,
    Code,
    Drop,
    FromAuthority,
    Hello,
    Outcome,
    Refill,
    Release,
    Subscribe,
    Version,
    Write,
)
from leasehold.cache.settings import AuthoritySettings

TERM_MS = 1_000


class AuthorityUnderTest:
    """A machine with a store; records the messages sent to each client."""

    def __init__(self, *, stores: bool = True, term_before_ms: int = 0, **settings: Any) -> None:
        chosen = AuthoritySettings(term_ms=TERM_MS, drift_ppm=0, **settings)
        self.machine = AuthorityMachine(0, chosen, 7, term_before_ms=term_before_ms)
        self.stores = stores
        self.sent: list[tuple[str, FromAuthority]] = []
        self.held_back: list[e.Store] = []
        self.effects: list[e.Effect] = []
        self.kept: dict[bytes, tuple[bytes | None, Version]] = {}

    def feed(self, now_ms: int, event: e.Event) -> None:
        effects = self.machine.handle(now_ms, event)
        self.machine.check(now_ms)
        for effect in effects:
            self.effects.append(effect)
            match effect:
                case e.Send(client, message):
                    self.sent.append((client, message))
                case e.CallBack(holders, drop):
                    self.sent += [(holder, drop) for holder in holders]
                case e.Refilled(requests, item):
                    self.sent += [(client, Refill(((seq, item),))) for client, seq in requests.items()]
                case e.Load(key):
                    self.feed(now_ms, e.Loaded(key, *self.kept.get(key, (None, ABSENT))))
                case e.Store(key, value, token) if self.stores:
                    self.kept[key] = (value, token)
                    self.feed(now_ms, e.Stored(key, token))
                case e.Store():
                    self.held_back.append(effect)

    def send(self, now_ms: int, client: str, message: Ask | Write | Ack | Hello | Release | Subscribe) -> None:
        self.feed(now_ms, e.Received(client, [message]))

    def read(self, now_ms: int, client: str, key: bytes = b"k", seq: int = 1) -> tuple[bytes | None, int]:
        """The value and the term of the lease that came with it."""
        self.send(now_ms, client, Ask(seq, (key,)))
        answer = self.sent.pop()[1]
        assert isinstance(answer, Answer)
        assert answer.items[0].code is Code.OK
        return answer.items[0].value, answer.items[0].term_ms

    def outcomes(self, client: str) -> list[Code]:
        return [message.code for name, message in self.sent if name == client and isinstance(message, Outcome)]

    def drops(self, client: str) -> tuple[tuple[bytes, Version], ...]:
        """Take the keys that the client was sent callbacks for."""
        found = [m for name, m in self.sent if name == client and isinstance(m, Drop)]
        self.sent = [(name, m) for name, m in self.sent if not (name == client and isinstance(m, Drop))]
        return tuple(pair for drop in found for pair in drop.keys)


def put(seq: int, value: bytes, mode: str = "callback", key: bytes = b"k", timeout_ms: int = 10_000) -> Write:
    return Write(seq, key, value, mode, None, timeout_ms)


def test_schedule_6a_no_lease_on_reads_while_holders_are_called_back() -> None:
    authority = AuthorityUnderTest()
    authority.send(0, "w", put(1, b"v1"))
    assert authority.read(0, "h") == (b"v1", TERM_MS)
    assert authority.read(0, "g") == (b"v1", TERM_MS)
    authority.send(1, "w", put(2, b"v2"))
    authority.send(2, "h", Ack(authority.drops("h")))
    assert authority.read(3, "h", seq=2) == (b"v1", 0)
    assert authority.outcomes("w") == [Code.OK]
    authority.send(4, "g", Ack(authority.drops("g")))
    assert authority.outcomes("w") == [Code.OK, Code.OK]
    assert authority.read(5, "h", seq=3) == (b"v2", TERM_MS)


def test_wait_mode_sends_no_callback_and_caps_new_leases_at_the_latest_end() -> None:
    authority = AuthorityUnderTest()
    authority.send(0, "w", put(1, b"v1"))
    authority.read(0, "h")
    authority.send(100, "w", put(2, b"v2", mode="wait"))
    assert authority.drops("h") == ()
    assert authority.read(400, "g") == (b"v1", 600)
    authority.feed(999, e.Tick())
    assert authority.outcomes("w") == [Code.OK]
    authority.feed(1_000, e.Tick())
    assert authority.outcomes("w") == [Code.OK, Code.OK]


def test_fail_mode_changes_nothing_while_a_lease_is_out() -> None:
    authority = AuthorityUnderTest()
    authority.send(0, "w", put(1, b"v1"))
    authority.read(0, "h")
    authority.send(1, "w", put(2, b"v2", mode="fail"))
    assert authority.outcomes("w") == [Code.OK, Code.BUSY]
    assert authority.read(2, "g") == (b"v1", TERM_MS)
    authority.send(1_002, "w", put(3, b"v2", mode="fail"))
    assert authority.outcomes("w")[-1] is Code.OK


def test_a_write_is_never_starved_by_readers_and_waits_no_longer_than_the_latest_lease() -> None:
    for mode in ("callback", "wait"):
        authority = AuthorityUnderTest()
        authority.send(0, "w", put(1, b"v1"))
        authority.read(0, "dead")
        authority.send(10, "w", put(2, b"v2", mode=mode))
        for now_ms in range(20, 1_000, 20):
            authority.read(now_ms, f"r{now_ms}")
        authority.feed(1_000, e.Tick())
        assert authority.outcomes("w") == [Code.OK, Code.OK], mode


def test_schedule_22a_a_load_that_a_write_waits_behind_gives_no_lease_on_the_old_value() -> None:
    """A read waits for the load, then a write arrives: the loaded value is old, and must not be leased."""
    key, held = b"k", AuthorityMachine(0, AuthoritySettings(term_ms=TERM_MS, drift_ppm=0), 7)
    sent: list[tuple[str, FromAuthority]] = []

    def feed(now_ms: int, event: e.Event) -> list[e.Effect]:
        effects = held.handle(now_ms, event)
        sent.extend((effect.client, effect.message) for effect in effects if isinstance(effect, e.Send))
        return effects

    assert feed(0, e.Received("r", [Ask(1, (key,))])) == [e.Load(key)]
    assert feed(1, e.Received("w", [put(1, b"v2")])) == []  # it begins only when the value is known
    effects = feed(2, e.Loaded(key, b"v1", Version(6, 1)))
    store = next(effect for effect in effects if isinstance(effect, e.Store))
    answer = next(message for name, message in sent if name == "r")
    assert isinstance(answer, Answer)
    assert (answer.items[0].value, answer.items[0].term_ms) == (b"v1", 0)
    feed(3, e.Stored(key, store.token))
    assert [type(message) for name, message in sent if name == "w"] == [Outcome]
    assert held.grants.table.live_holders(key, 4) == []


def test_schedule_22f_untracked_holders_are_sticky() -> None:
    authority = AuthorityUnderTest(holders_per_key_max=1)
    authority.send(0, "w", put(1, b"v1"))
    authority.read(0, "h")
    authority.read(50, "untracked")
    authority.send(100, "w", put(2, b"v2"))
    authority.send(101, "h", Ack(authority.drops("h")))
    assert authority.outcomes("w") == [Code.OK]
    authority.feed(1_050, e.Tick())
    assert authority.outcomes("w") == [Code.OK, Code.OK]


def test_a_late_write_does_not_override_the_lease_that_its_writer_requested_afterwards() -> None:
    authority = AuthorityUnderTest()
    authority.send(0, "w", put(1, b"v1"))
    authority.read(0, "w", seq=9)
    authority.send(1, "w", put(5, b"late"))
    assert authority.outcomes("w") == [Code.OK]
    authority.send(2, "w", Ack(authority.drops("w")))
    assert authority.outcomes("w") == [Code.OK, Code.OK]


def test_the_writer_itself_is_not_called_back() -> None:
    authority = AuthorityUnderTest()
    authority.send(0, "w", put(1, b"v1"))
    authority.read(0, "w", seq=2)
    authority.send(1, "w", put(3, b"v2"))
    assert authority.outcomes("w") == [Code.OK, Code.OK]


def test_schedule_9_after_a_restart_reads_immediately_and_writes_after_the_old_maximum_term() -> None:
    authority = AuthorityUnderTest(term_before_ms=5_000)
    assert authority.read(0, "r") == (None, TERM_MS)
    authority.send(10, "w", put(1, b"v1"))
    authority.feed(4_999, e.Tick())
    assert authority.outcomes("w") == []
    authority.feed(5_001, e.Tick())
    assert authority.outcomes("w") == [Code.OK]
    assert any(isinstance(effect, e.SettleTerm) for effect in authority.effects)


def test_schedule_h13_after_an_unknown_store_no_lease_until_a_newer_token_stands() -> None:
    authority = AuthorityUnderTest(stores=False)
    for mode in ("callback", "wait"):
        key = mode.encode()
        authority.send(0, "w", put(1, b"v2", mode=mode, key=key))
        first = authority.held_back.pop()
        authority.feed(100, e.StoreUnknown(key, first.token, "timed out"))
        assert authority.read(101, "r", key) == (None, 0)
        authority.feed(200, e.Tick())
        second = authority.held_back.pop()
        assert second.token > first.token
        authority.feed(201, e.Stored(key, first.token))  # the late answer to the first attempt proves nothing now
        assert authority.read(202, "r", key) == (None, 0)
        authority.feed(210, e.Stored(key, second.token))
        assert authority.read(211, "r", key) == (b"v2", TERM_MS)


def test_a_refused_token_ends_the_term() -> None:
    authority = AuthorityUnderTest(stores=False)
    authority.send(0, "w", put(1, b"v2"))
    authority.feed(5, e.StoreRefused(b"k", authority.held_back[0].token))
    assert authority.outcomes("w") == [Code.NOT_SERVING]
    assert any(isinstance(effect, e.Deposed) for effect in authority.effects)
    authority.sent.clear()
    authority.send(6, "r", Ask(1, (b"k",)))
    assert authority.sent == []


def test_schedule_22d_versions_are_never_used_twice() -> None:
    authority = AuthorityUnderTest()
    authority.send(0, "w", put(1, b"v1"))
    old = authority.kept[b"k"][1]
    authority.send(1, "w", Write(2, b"k", None))
    authority.send(2, "w", put(3, b"v1"))
    authority.send(3, "w", Write(4, b"k", b"v9", "callback", old))
    assert authority.outcomes("w") == [Code.OK, Code.OK, Code.OK, Code.CONFLICT]


def test_the_leader_lease_is_checked_before_every_answer() -> None:
    authority = AuthorityUnderTest()
    authority.feed(0, e.LeaderLease(500))
    assert authority.read(499, "r") == (None, TERM_MS)
    authority.send(500, "r", Ask(2, (b"k",)))
    message = authority.sent[-1][1]
    assert isinstance(message, Answer)
    assert message.items[0].code is Code.NOT_SERVING
    authority.send(501, "w", put(1, b"x"))
    assert authority.outcomes("w") == [Code.NOT_SERVING]


def test_late_acks_and_those_of_other_clients_change_nothing() -> None:
    authority = AuthorityUnderTest()
    authority.send(0, "w", put(1, b"v1"))
    authority.read(0, "h")
    authority.send(1, "w", put(2, b"v2"))
    dropped = authority.drops("h")
    authority.send(2, "stranger", Ack(dropped))
    authority.send(2, "h", Ack(((b"k", Version(1, 1)),)))
    authority.send(2, "h", Ack(((b"unknown key", Version(1, 1)),)))
    assert authority.outcomes("w") == [Code.OK]
    assert authority.machine.writes.acks_ignored == 3


def test_callbacks_are_repeated_to_a_client_that_reconnects() -> None:
    authority = AuthorityUnderTest()
    authority.send(0, "w", put(1, b"v1"))
    authority.read(0, "h")
    authority.send(1, "w", put(2, b"v2"))
    first = authority.drops("h")
    authority.send(2, "h", Hello("h"))
    assert authority.drops("h") == first


def test_a_client_that_leaves_is_not_waited_for() -> None:
    authority = AuthorityUnderTest()
    authority.send(0, "w", put(1, b"v1"))
    authority.read(0, "h")
    authority.send(1, "w", put(2, b"v2"))
    authority.send(2, "h", Release())
    assert authority.outcomes("w") == [Code.OK, Code.OK]


def test_clean_stop_only_when_no_lease_is_live() -> None:
    authority = AuthorityUnderTest()
    authority.read(0, "h")
    authority.feed(1, e.Stop())
    assert not any(isinstance(effect, e.RecordCleanStop) for effect in authority.effects)
    authority.send(2, "h", Release())
    assert any(isinstance(effect, e.RecordCleanStop) for effect in authority.effects)


def test_a_write_whose_time_runs_out_while_leases_are_out_has_not_happened() -> None:
    authority = AuthorityUnderTest()
    authority.send(0, "w", put(1, b"v1"))
    authority.read(0, "h")
    authority.send(1, "w", put(2, b"v2", timeout_ms=100))
    authority.feed(101, e.Tick())
    assert authority.outcomes("w") == [Code.OK, Code.EXPIRED]
    assert authority.read(2_000, "r") == (b"v1", TERM_MS)


def test_bad_input_is_refused_and_changes_nothing() -> None:
    authority = AuthorityUnderTest()
    bad = [
        put(1, b"x", key=b""),
        put(1, b"x", key=b"k" * (limits.cache_key_bytes_max + 1)),
        put(1, b"x" * (limits.cache_value_bytes_max + 1)),
        put(1, b"x", mode="sometimes"),
        put(1, b"x", timeout_ms=0),
        put(1, b"x", timeout_ms=10**15),
    ]
    for write in bad:
        authority.send(0, "w", write)
    assert authority.outcomes("w") == [Code.BAD_REQUEST] * len(bad)
    assert authority.kept == {}
    authority.send(0, "r", Ask(1, (b"",)))
    message = authority.sent[-1][1]
    assert isinstance(message, Answer)
    assert message.items[0].code is Code.BAD_REQUEST


def test_subscribers_are_notified_only_of_changes_that_took_effect() -> None:
    authority = AuthorityUnderTest()
    authority.send(0, "s", Subscribe(1, b"conf/"))
    authority.send(1, "w", put(1, b"x", key=b"conf/a"))
    authority.send(1, "w", put(2, b"x", key=b"other"))
    received = [type(message).__name__ for name, message in authority.sent if name == "s"]
    assert received == ["Outcome", "Changed"]


def test_adaptive_terms_follow_the_benefit_factor() -> None:
    authority = AuthorityUnderTest(adaptive=True)
    assert authority.read(0, "r")[1] == TERM_MS  # nothing written yet: a lease always pays
    for now_ms in range(1, 200):
        authority.send(now_ms, "w", put(now_ms, b"x"))
        authority.send(now_ms, "r", Ack(authority.drops("r")))
    assert authority.read(201, "r", seq=9) == (b"x", 0)


def items(authority: AuthorityUnderTest, client: str) -> list[tuple[int, bytes | None, int]]:
    """The refills that acknowledgements requested: request, value, lease term."""
    refills = [message for name, message in authority.sent if name == client and isinstance(message, Refill)]
    return [(seq, item.value, item.term_ms) for refill in refills for seq, item in refill.items]


def called_back(authority: AuthorityUnderTest, now_ms: int, client: str, seq: int, hits: int | None = 3) -> None:
    drops = authority.drops(client)
    authority.send(now_ms, client, Ack(drops, seq, (hits,) * len(drops)))


def test_a_refill_is_sent_when_the_write_has_taken_effect() -> None:
    authority = AuthorityUnderTest()
    authority.send(0, "w", put(1, b"v1"))
    authority.read(0, "h")
    authority.read(0, "g")
    authority.send(1, "w", put(2, b"v2"))
    called_back(authority, 2, "h", seq=5)
    assert items(authority, "h") == []
    called_back(authority, 3, "g", seq=6, hits=None)  # it did not use the value: it gets no refill
    assert items(authority, "h") == [(5, b"v2", TERM_MS)]
    assert items(authority, "g") == []
    authority.send(4, "w", put(3, b"v3"))
    assert [key for key, _ in authority.drops("h")] == [b"k"]  # a refilled value is called back like any other
    assert authority.drops("g") == ()


def test_a_refill_waits_for_the_writes_behind_it_too() -> None:
    authority = AuthorityUnderTest()
    authority.send(0, "w", put(1, b"v1"))
    authority.read(0, "h")
    authority.read(0, "g")
    authority.send(1, "w", put(2, b"v2"))
    authority.send(1, "g", put(9, b"v3"))
    called_back(authority, 2, "h", seq=5)
    called_back(authority, 3, "g", seq=8)  # sent before its own write: it keeps nothing of that
    assert items(authority, "h") == [(5, b"v3", TERM_MS)]
    assert items(authority, "g") == []


def test_no_refill_for_a_client_that_disconnected_or_was_not_called_back() -> None:
    authority = AuthorityUnderTest()
    authority.send(0, "w", put(1, b"v1"))
    authority.read(0, "h")
    authority.read(0, "g")
    authority.send(1, "w", put(2, b"v2"))
    authority.send(1, "stranger", Ack(((b"k", Version(7, 2)),), 4, (1,)))
    called_back(authority, 2, "h", seq=5)
    authority.feed(3, e.Disconnected("h"))
    called_back(authority, 4, "g", seq=6)
    assert items(authority, "h") == items(authority, "stranger") == []
    assert authority.machine.grants.table.live_holders(b"k", 5) == ["g"]


def test_no_refill_while_the_store_has_not_answered() -> None:
    authority = AuthorityUnderTest(stores=False)
    authority.read(0, "h")
    authority.send(1, "w", put(2, b"v2"))
    called_back(authority, 2, "h", seq=5)
    assert items(authority, "h") == []
    authority.feed(3, e.StoreUnknown(b"k", authority.held_back[0].token, "no answer"))
    assert items(authority, "h") == []
    authority.feed(60, e.Tick())
    authority.feed(61, e.Stored(b"k", authority.held_back[1].token))
    assert items(authority, "h") == [(5, b"v2", TERM_MS)]


def terms(authority: AuthorityUnderTest, client: str) -> list[int]:
    return [message.term_ms for name, message in authority.sent if name == client and isinstance(message, Outcome)]


def test_a_writer_that_used_its_copy_keeps_its_value_and_is_called_back_like_any_holder() -> None:
    authority = AuthorityUnderTest()
    authority.send(0, "w", Write(1, b"k", b"v1", hits=3))
    authority.send(0, "x", Write(1, b"other", b"v1"))  # it never read: it gets no lease
    assert (terms(authority, "w"), terms(authority, "x")) == ([TERM_MS], [0])
    authority.send(1, "x", put(2, b"v2"))
    assert authority.outcomes("x") == [Code.OK]
    called_back(authority, 2, "w", seq=2)
    assert authority.outcomes("x") == [Code.OK, Code.OK]


def test_a_writer_keeps_nothing_while_another_write_waits_or_after_it_disconnected() -> None:
    authority = AuthorityUnderTest(stores=False)
    authority.send(0, "w", Write(1, b"k", b"v1", hits=3))
    authority.send(0, "x", Write(1, b"k", b"v2", hits=3))
    authority.feed(1, e.Disconnected("x"))
    for store in (0, 1):
        authority.feed(2, e.Stored(b"k", authority.held_back[store].token))
    assert (terms(authority, "w"), terms(authority, "x")) == ([0], [0])
    assert authority.machine.grants.table.live_holders(b"k", 3) == []


def test_one_alarm_for_a_key_however_often_it_is_written() -> None:
    """Each write set two alarms for its end and its deadline: at a thousand writes a second, a heap of 40,000."""
    authority = AuthorityUnderTest()
    for now_ms in range(0, 1_000, 10):
        authority.send(now_ms, "w", put(now_ms + 1, b"x"))
        authority.read(now_ms, "w", seq=now_ms + 2)
    assert len(authority.machine.alarms) <= 2


def test_an_alarm_that_rang_early_is_set_again() -> None:
    authority = AuthorityUnderTest()
    # The alarm of the first write rings at 300, when a later write waits for a lease.
    authority.send(0, "w", put(1, b"v1", timeout_ms=300))
    authority.read(10, "h")
    authority.send(20, "w", put(2, b"v2"))
    for now_ms in (300, 1_009):
        authority.feed(now_ms, e.Tick())
    assert authority.outcomes("w") == [Code.OK]
    assert authority.machine.next_wake_ms() == 1_010
    authority.feed(1_010, e.Tick())
    assert authority.outcomes("w") == [Code.OK, Code.OK]
