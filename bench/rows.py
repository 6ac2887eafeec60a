"""Figures of a benchmark as rows: what `python -m bench` writes as JSON and `make bench-compare` compares.

A benchmark prints its tables for people, and records each of our own figures with `record`. A row's name must stay
the same from commit to commit: it identifies the figure in comparisons.

This module imports next to nothing: every imported module makes the garbage collector slower in the measured process.
"""

from __future__ import annotations

from msgspec import Struct

PER_SECOND = "1/s"


class Row(Struct, frozen=True):
    """One figure."""

    bench: str
    row: str
    value: float
    unit: str
    higher_is_better: bool


_recorded: list[tuple[str, float, str]] = []


def record(row: str, value: float, unit: str) -> None:
    """Record a figure of the benchmark in this process. Rates have the unit "1/s": more is better."""
    _recorded.append((row, value, unit))


def recorded(bench: str) -> list[Row]:
    return [Row(bench, row, value, unit, unit == PER_SECOND) for row, value, unit in _recorded]
