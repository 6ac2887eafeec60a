"""When callbacks leave: immediately for a single write, together for concurrent writes, never much later."""

from __future__ import annotations

from leasehold.cache.callback_rounds import CallbackRounds

DELAY_MS = 10


def called(rounds: CallbackRounds[str], now_ms: int, write: object, *holders: str) -> None:
    for holder in holders:
        rounds.add(holder, write)
    rounds.due_ms(now_ms)
    rounds.check()


def test_a_write_that_comes_alone_does_not_wait() -> None:
    rounds: CallbackRounds[str] = CallbackRounds(DELAY_MS)
    assert rounds.due_ms(5) is None
    called(rounds, 5, "w1", "a", "b")
    assert rounds.due_ms(5) == 5
    assert rounds.begin(5) == ["a", "b"]
    assert rounds.due_ms(5) is None


def test_callbacks_wait_until_the_round_before_is_acknowledged_by_all() -> None:
    rounds: CallbackRounds[str] = CallbackRounds(DELAY_MS)
    called(rounds, 0, "w1", "a", "b")
    rounds.begin(0)
    called(rounds, 1, "w2", "a", "c")
    assert rounds.due_ms(1) == 1 + DELAY_MS
    rounds.acknowledged(2, "a")
    assert rounds.due_ms(2) == 1 + DELAY_MS
    rounds.acknowledged(3, "b")
    assert rounds.due_ms(3) == 6, "the first writer may come again: it is waited for as long as its round took"
    called(rounds, 4, "w3", "b")
    assert rounds.due_ms(4) == 4, "and it has come"
    assert rounds.begin(4) == ["a", "c", "b"]


def test_further_writes_are_not_expected_for_long() -> None:
    rounds: CallbackRounds[str] = CallbackRounds(DELAY_MS)
    for write in ("w1", "w2"):
        called(rounds, 0, write, "a")
    rounds.begin(0)
    rounds.acknowledged(2, "a")
    called(rounds, 3, "w3", "a")
    assert rounds.due_ms(3) == 4
    rounds.begin(4)
    rounds.acknowledged(4, "a")
    called(rounds, 50, "w4", "a")
    assert rounds.due_ms(50) == 50, "the writers of a while ago are not waited for"


def test_a_silent_holder_delays_one_round_and_no_other_until_it_acknowledges() -> None:
    rounds: CallbackRounds[str] = CallbackRounds(DELAY_MS)
    called(rounds, 0, "w1", "a", "dead")
    rounds.begin(0)
    rounds.acknowledged(1, "a")
    called(rounds, 1, "w2", "a", "dead")
    assert rounds.due_ms(1) == 1 + DELAY_MS
    assert rounds.begin(11) == ["a", "dead"], "it is called back nevertheless"
    rounds.acknowledged(12, "a")
    called(rounds, 12, "w3", "a", "dead")
    called(rounds, 12, "w4", "a", "dead")
    assert rounds.due_ms(12) == 12
    rounds.acknowledged(13, "dead")
    rounds.begin(13)
    rounds.acknowledged(14, "a")
    called(rounds, 14, "w5", "a")
    assert rounds.due_ms(14) == 14 + DELAY_MS, "it has answered, so it is waited for again"


def test_a_disconnected_holder_is_neither_called_back_nor_waited_for() -> None:
    rounds: CallbackRounds[str] = CallbackRounds(DELAY_MS)
    called(rounds, 0, "w1", "a", "b")
    rounds.begin(0)
    rounds.acknowledged(1, "a")
    called(rounds, 1, "w2", "a", "b")
    rounds.remove(1, "b")
    called(rounds, 1, "w3", "a")
    assert rounds.due_ms(1) == 1
    assert rounds.begin(1) == ["a"]
