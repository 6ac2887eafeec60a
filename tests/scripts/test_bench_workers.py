"""Workers of a benchmark: they start together, and the parent fails when one dies."""

from __future__ import annotations

import os
import signal

import pytest
from bench.workers import Start, WorkerDied, run_workers


def square(number: int, start: Start, offset: int) -> int:
    start.wait()
    return number * number + offset


def raise_in_one(number: int, start: Start) -> int:
    if number == 1:
        raise ValueError("no such server")
    start.wait()
    return number


def kill_one(number: int, start: Start, after_start: bool) -> int:
    if after_start:
        start.wait()
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if not after_start:
        start.wait()
    return number


def test_all_results_arrive() -> None:
    started: list[str] = []
    assert sorted(run_workers(square, 3, (10,), lambda: started.append("yes"))) == [10, 11, 14]
    assert started == ["yes"]


def test_an_error_in_a_worker_fails_the_parent() -> None:
    with pytest.raises(WorkerDied, match="no such server"):
        run_workers(raise_in_one, 2, (), lambda: None)


@pytest.mark.parametrize("after_start", [False, True])
def test_a_killed_worker_fails_the_parent(after_start: bool) -> None:
    with pytest.raises(WorkerDied, match="exit code -9"):
        run_workers(kill_one, 2, (after_start,), lambda: None)
