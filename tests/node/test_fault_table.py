"""The fault table in the docs names tests: each exists, and is marked `chaos` if the table shows it."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
TABLE = TESTS.parents[1] / "docs" / "testing.md"


def decorators_of(name: str) -> str:
    """The decorators of a test, as they are written."""
    for path in TESTS.glob("test_*.py"):
        found = re.search(rf"((?:^@.*\n(?:^[ )].*\n)*)*)^(?:async )?def {name}\(", path.read_text(), re.MULTILINE)
        if found:
            return found[1]
    raise AssertionError(f"docs/testing.md names {name}, which is not in tests/node")


def test_every_row_of_the_fault_table_names_a_test() -> None:
    section = TABLE.read_text().partition("## Failures on real processes")[2]
    rows = [line for line in section.splitlines() if "`test_" in line]
    assert len(rows) >= 20
    for row in rows:
        for name in re.findall(r"`(test_\w+)`", row):
            assert ("chaos" in decorators_of(name)) == ("*chaos*" in row), f"{name}: is it part of `make chaos`?"
