"""The table of planted bugs in docs/proof.md is that of `tests/planted.py`; `make proof` runs the searches."""

from __future__ import annotations

import re

from tests.planted import NOT_CAUGHT, PAGE, Planted, forged, planted_bugs, row, simulated, verdict


def shown() -> str:
    return PAGE.read_text().partition("<!-- planted -->")[2].partition("<!-- /planted -->")[0]


def test_the_docs_show_every_planted_bug_and_count_those_caught() -> None:
    rows = re.findall(
        r"^\| `([^`]+)` \| (.+) \| ([^|]+) \| ([^|]+) \| (?:[\d,]+|all states) \|$", shown(), re.MULTILINE
    )
    described = [(bug.name, bug.effect, bug.instrument) for bug in planted_bugs()]
    assert [row[:3] for row in rows] == described, "docs/proof.md shows another run: python -m tests.planted --write"
    caught = sum(found_as != NOT_CAUGHT for *_, found_as in rows)
    assert f"**{verdict(caught, len(rows))}**" in shown()


def test_a_search_names_the_promise_and_the_number_of_seeds() -> None:
    assert (found := simulated("no-skip", 0, 1)) is not None
    assert (found.promise, found.searched) == ("P2", "1")
    assert (found := forged("any-range", 10)) is not None
    assert found.promise == "access"


def test_a_bug_that_is_not_caught_stands_out() -> None:
    bug = Planted("simulator", "harmless", "none", lambda _: None)
    assert row(bug, bug.search(7), 7).endswith("| **not caught** | 7 |")
