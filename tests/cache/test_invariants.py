"""Each part of the authority and of the client detects a broken invariant."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leasehold.base.errors import InvariantBroken
from leasehold.cache import events as e
from leasehold.cache.authority_machine import AuthorityMachine
from leasehold.cache.callback_rounds import CallbackRounds
from leasehold.cache.client_events import Get, Put
from leasehold.cache.client_machine import ClientMachine
from leasehold.cache.model import ABSENT, Ask, Subscribe, Write
from leasehold.cache.settings import AuthoritySettings, ClientSettings


def authority() -> AuthorityMachine:
    """One holder of a key, and a write of it that waits for the lease."""
    machine = AuthorityMachine(0, AuthoritySettings(term_ms=1_000, drift_ppm=0), 7)
    machine.handle(0, e.Received("h", [Ask(1, (b"k",)), Subscribe(2, b"k")]))
    machine.handle(0, e.Loaded(b"k", None, ABSENT))
    machine.handle(1, e.Received("w", [Write(1, b"k", b"v", "wait")]))
    machine.check(1)
    return machine


AUTHORITY_DAMAGE: dict[str, Callable[[AuthorityMachine], object]] = {
    "a lease outlives the pending write": lambda machine: machine.grants.table.grant(b"k", "h", 5_000, 9),
    "holders and keys disagree": lambda machine: machine.grants.table._keys_of.clear(),
    "the list of pending writes is wrong": lambda machine: machine.writes._pending.clear(),
    "an alarm is lost": lambda machine: machine.alarms._heap.clear(),
    "a write is pending on an unknown value": lambda machine: machine.keys.touch(1, b"k").start_load(),
    "subscriptions are miscounted": lambda machine: machine.subscriptions._clients.clear(),
    "an effect was left behind": lambda machine: machine.effects.add(e.SettleTerm()),
}


@pytest.mark.parametrize("broken", AUTHORITY_DAMAGE)
def test_the_authority_detects(broken: str) -> None:
    machine = authority()
    AUTHORITY_DAMAGE[broken](machine)
    with pytest.raises(InvariantBroken, match=broken):
        machine.check(1)


CLIENT_DAMAGE: dict[str, Callable[[ClientMachine], object]] = {
    "reads in flight disagree": lambda machine: machine._reads.by_key.clear(),
    "writes in flight are miscounted": lambda machine: machine._writes.count_by_key.clear(),
    "the bytes of the cache are miscounted": lambda machine: machine.entries.by_key.clear(),
}


@pytest.mark.parametrize("broken", CLIENT_DAMAGE)
def test_the_client_detects(broken: str) -> None:
    machine = ClientMachine(ClientSettings())
    machine.entries.keep(b"kept", b"v", ABSENT, 1_000)
    machine.handle(0, Get((b"k",), 1, 100))
    machine.handle(0, Put(b"w", b"v", 2, "callback", 100))
    machine.check()
    CLIENT_DAMAGE[broken](machine)
    with pytest.raises(InvariantBroken, match=broken):
        machine.check()


def test_rounds_detect_a_callback_for_no_write() -> None:
    rounds: CallbackRounds[str] = CallbackRounds(10)
    rounds.add("h", "w")
    rounds.check()
    rounds._writes_queued = 0
    with pytest.raises(InvariantBroken, match="queued for no write"):
        rounds.check()
