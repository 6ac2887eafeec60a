"""Every schedule that broke an earlier draft has a test that names it, and the table in the docs tells where."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCHEDULES = [*map(str, range(1, 24)), *(f"H{number}" for number in range(1, 14))]


def table() -> dict[str, list[str]]:
    """Of `docs/testing.md`: schedule -> tests."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in (ROOT / "docs" / "testing.md").read_text().splitlines():
        row = re.fullmatch(r"\| (H?\d+) \| `(tests/[^`]+)` \|", line)
        if row:
            found[row[1]].append(row[2])
    return found


def test_the_table_has_all_36_and_no_other() -> None:
    assert sorted(table()) == sorted(SCHEDULES)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_is_named_by_every_test_that_the_table_gives_for_it(schedule: str) -> None:
    for place in table()[schedule]:
        assert re.search(rf"(?i)(?:\b|_)0?{schedule}[a-h]?(?:\b|_)", words_of(place)), (
            f"{place} does not name {schedule}"
        )


def words_of(place: str) -> str:
    """Name and docstring of a test; name and first line of a transcript. It fails if there is none."""
    path, _, name = place.partition("::")
    text = (ROOT / path).read_text()
    if not name:
        return f"{Path(path).name} {text.splitlines()[0]}"
    tests = [
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    ]
    assert len(tests) == 1, f"{place} is not there"
    return f"{name} {ast.get_docstring(tests[0])}"
