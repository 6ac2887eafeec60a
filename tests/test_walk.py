"""The paths of a put and of a standby's apply stay short, and docs/architecture.md shows them as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leasehold.testing.walk import Path as Walked
from leasehold.testing.walk import walk_apply, walk_put

PUT_ENTRIES_MAX = 18
APPLY_ENTRIES_MAX = 10
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"


async def test_a_durable_put_enters_few_packages(request: pytest.FixtureRequest) -> None:
    start, end = await walk_put()
    assert len(start.entries) <= PUT_ENTRIES_MAX, str(start)
    assert len(end.entries) <= PUT_ENTRIES_MAX, str(end)
    assert start.entries[0].package == end.entries[0].package == "wire"
    _is_in_the_docs("put", [start, end], rewrite=request.config.getoption("--rewrite"))


async def test_a_standby_applies_a_batch_with_few_entries(request: pytest.FixtureRequest) -> None:
    (path,) = await walk_apply()
    assert len(path.entries) <= APPLY_ENTRIES_MAX, str(path)
    assert "index" in [entry.package for entry in path.entries]
    _is_in_the_docs("apply", [path], rewrite=request.config.getoption("--rewrite"))


def _is_in_the_docs(name: str, paths: list[Walked], *, rewrite: bool) -> None:
    """`pytest tests/test_walk.py --rewrite` writes the page again."""
    page = PAGE.read_text()
    shown = "\n".join(map(str, paths))
    block = f"<!-- walk:{name} -->\n\n```text\n{shown}\n```\n\n<!-- /walk -->"
    found = re.search(rf"<!-- walk:{name} -->.*?<!-- /walk -->", page, re.DOTALL)
    assert found is not None
    if rewrite:
        PAGE.write_text(page.replace(found[0], block))
    else:
        assert found[0] == block
