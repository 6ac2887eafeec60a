"""What users import from the recipes: complete, importable, and the same names in both faces."""

from __future__ import annotations

import leasehold.concurrency
import leasehold.concurrency.sync


def test_everything_exported_is_there_and_sorted() -> None:
    assert sorted(leasehold.concurrency.__all__) == list(leasehold.concurrency.__all__)
    for name in leasehold.concurrency.__all__:
        assert getattr(leasehold.concurrency, name) is not None


def test_every_recipe_has_a_synchronous_face() -> None:
    recipes = (
        "Barrier",
        "DoubleBarrier",
        "Election",
        "Mutex",
        "PriorityQueue",
        "Queue",
        "RWLock",
        "Semaphore",
        "Session",
    )
    for name in (*recipes, "Stm", "stm"):
        assert name in leasehold.concurrency.__all__
        assert hasattr(leasehold.concurrency.sync, name)
