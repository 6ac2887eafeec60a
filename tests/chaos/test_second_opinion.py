"""Porcupine and our own checker agree on good and bad histories."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.chaos.replicated_register import BUGS, Register

from leasehold.testing.chaos.history import Call, Extent, HostLoss, operations
from leasehold.testing.chaos.judge import losses
from leasehold.testing.checkers import Operation
from leasehold.testing.second_opinion import export, first_opinion, load, second_opinion, why_missing

SEEDS = 40


@pytest.fixture(autouse=True)
def porcupine() -> None:
    if (reason := why_missing()) is not None:
        pytest.skip(f"NOT RUN: {reason}")


def both(registers: dict[str, list[Operation]], path: Path) -> dict[str, str]:
    """The common verdicts; the checkers must agree on every key. The file must keep everything."""
    export(path, registers)
    assert load(path) == {key: sorted(history, key=lambda each: each.called) for key, history in registers.items()}
    ours, theirs = first_opinion(registers), second_opinion(path)
    assert ours == theirs, {key: (ours[key], theirs[key]) for key in ours if ours[key] != theirs[key]}
    return {**ours}


def test_histories_of_a_correct_protocol_are_linearizable(tmp_path: Path) -> None:
    verdicts = both({str(seed): Register(seed).history for seed in range(SEEDS)}, tmp_path / "history.jsonl")
    assert set(verdicts.values()) == {"Ok"}


@pytest.mark.parametrize("bug", BUGS)
def test_both_checkers_find_a_planted_bug_in_the_same_histories(bug: str, tmp_path: Path) -> None:
    verdicts = both({str(seed): Register(seed, bug).history for seed in range(SEEDS)}, tmp_path / "history.jsonl")
    found = sum(verdict == "Illegal" for verdict in verdicts.values())
    print(f"{bug}: {found} of {SEEDS} histories are not linearizable")
    assert found >= 3


def test_calls_of_a_chaos_run_with_a_lost_storage_host(tmp_path: Path) -> None:
    place = (Extent("passing:1", 4096, 100),)
    written = Call("c", "k", "upsert", 0, 10, "ok", "v1", placed_ns=1, extents=place)
    put = Call("c", "other", "put", 0, 10, "ok", "v1")
    read = Call("c", "k", "read", 20, 30, "ok")
    missing = [written, put, read, Call("c", "other", "read", 20, 30, "ok")]
    lost = losses(missing, [HostLoss("passing:1", 15, 18)])
    assert both(operations([*missing, *lost]), tmp_path / "a.jsonl") == {"k": "Ok", "other": "Illegal"}
    assert both(operations(missing), tmp_path / "b.jsonl") == {"k": "Illegal", "other": "Illegal"}


def test_random_registers_good_and_bad(tmp_path: Path) -> None:
    """Random operations with random answers: most are not linearizable, and the verdicts are the same."""
    chance = random.Random(11)
    registers: dict[str, list[Operation]] = {}
    for number in range(600):
        history = []
        for at in range(chance.randint(2, 6)):
            called = chance.randint(0, 20)
            returned = None if chance.random() < 0.2 else called + chance.randint(0, 12)
            what = chance.choice(("read", "write", "cas"))
            seen = chance.choice((None, *(f"v{place}" for place in range(at + 1))))
            if what == "write":
                history.append(Operation(called, returned, what, f"v{at}"))
            elif what == "read" and returned is not None:
                history.append(Operation(called, returned, what, None, seen))
            elif what == "cas":
                done = returned is not None and chance.random() < 0.7
                history.append(Operation(called, returned, what, (seen, f"v{at}"), done))
        registers[str(number)] = history or [Operation(0, 1, "read")]
    verdicts = both(registers, tmp_path / "history.jsonl")
    assert {"Ok", "Illegal"} == set(verdicts.values())
