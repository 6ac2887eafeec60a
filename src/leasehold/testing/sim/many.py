"""Runs many seeds on all cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.pool import Pool

from leasehold.runtime.signals import blocked
from leasehold.testing.sim.run import Outcome, run_seed


def _one(job: tuple[int, int, frozenset[str]]) -> Outcome:
    seed, events, bugs = job
    return run_seed(seed, events=events, bugs=bugs)


def _pool(jobs: int) -> Pool:
    """Workers that ignore Ctrl-C, which reaches the whole process group: their parent ends them by SIGTERM."""
    resource_tracker.ensure_running()  # starting it resets the signal mask
    with blocked(signal.SIGINT, signal.SIGTERM):
        return multiprocessing.get_context("spawn").Pool(jobs, initializer=_loaded)


def _loaded() -> None:
    """In a worker: accept SIGTERM only now, or it could be ended while it still reads its parent's data."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))


def run_many(
    seeds: range | list[int], *, events: int, bugs: frozenset[str] = frozenset(), jobs: int = 0
) -> Iterator[Outcome]:
    """The outcome of every seed, in the order of the seeds."""
    work = [(seed, events, bugs) for seed in seeds]
    jobs = jobs or len(os.sched_getaffinity(0))
    if jobs == 1 or len(work) == 1:
        yield from map(_one, work)
        return
    # spawn: a forked copy of a process with threads (gRPC's, say) may hang
    with _pool(jobs) as pool:
        yield from pool.imap(_one, work, chunksize=4)
