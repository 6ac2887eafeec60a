"""Many seeds on all cores."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator

from leasehold.testing.sim.run import Outcome, run_seed


def _one(job: tuple[int, int, frozenset[str]]) -> Outcome:
    seed, events, bugs = job
    return run_seed(seed, events=events, bugs=bugs)


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
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(_one, work, chunksize=4)
