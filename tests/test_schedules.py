"""Citations resolve: every schedule and promise that is cited has an anchor in the docs and a test that names it.

Code cites in the form "(schedule 13)", "(H9)", "(P3)". A schedule's anchor is its heading in `docs/schedules.md`, a
promise's is in `docs/ha.md`. In the docs a citation is also a link.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCHEDULES = [*map(str, range(1, 24)), *(f"H{number}" for number in range(1, 14))]
PROMISES = [f"P{number}" for number in range(1, 8)]

CITED_FROM = ("src", "tests", "bench", "scripts", "docs", "deploy", "examples", "*.md", "Makefile", "pyproject.toml")
TEXT = {".py", ".md", ".txt", ".toml", ".yaml", ".yml", ".sh", ".service", ""}
# "schedule 7a", "schedules 6, 22, H13"; a line break in a comment may stand between the word and the number
SCHEDULE_CITED = re.compile(r"\b[Ss]chedules?[\s#]+(H?\d+[a-h]?(?:(?:, | and )H?\d+[a-h]?)*)\b")
RULE_CITED = re.compile(r"\b(?<!-)H\d+[a-h]?\b")
PROMISE_CITED = re.compile(r"\bP\d+\b")
LINK = re.compile(r"\[([^\]]*)\]\(([^)]*)\)")
GENERATED = re.compile(r"<!-- (parts:begin|walk:\w+) -->.*?<!-- (parts:end|/walk) -->", re.DOTALL)
ROW_OF_THE_TABLE = re.compile(r"^\| H?\d+ \| `tests/.*$", re.MULTILINE)
OUTSIDE = re.compile(r"(?i)\bthe design\b|\bdesign document|\b(?:design|coordination|performance)\.md|\bshared/\w+\.md")


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


def test_every_schedule_has_its_paragraph_and_there_is_no_other() -> None:
    assert sorted(sections()) == sorted(SCHEDULES)
    for schedule, text in sections().items():
        assert re.search(r"\*\*Rules?:\*\*", text), f"{schedule}: which rule prevents it?"
        assert re.search(r"\*\*Kept\s+in:\*\*", text), f"{schedule}: where is the rule kept?"


def test_every_promise_has_its_anchor() -> None:
    assert re.findall(r'<a id="p(\d)"></a>\*\*P\1 ', (ROOT / "docs" / "ha.md").read_text()) == list("1234567")


def test_every_citation_resolves() -> None:
    dangling = [f"{path}: {cited}" for path, text in texts() for cited in citations(text) if not resolves(cited)]
    assert dangling == []


def test_citations_in_the_docs_are_links() -> None:
    """Except in the table of tests, in generated text, and on the page of the schedules itself."""
    bare = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = GENERATED.sub("", ROW_OF_THE_TABLE.sub("", page.read_text()))
        for words, target in LINK.findall(text):
            for cited in citations(words):
                assert target.endswith((anchor_of(cited), "ha.md#the-promises")), f"{page.name}: [{words}]({target})"
        if page.name != "schedules.md":
            plain = re.sub(r"`[^`]*`", "", LINK.sub("", text))
            bare += [f"{page.name}: {cited}" for cited in citations(plain) if cited[0] != "P"]
            if any(cited[0] == "P" for cited in citations(plain)) and page.name != "ha.md":
                assert re.search(r"ha\.md#(the-promises|p[1-7])", text), f"{page.name} names promises without a link"
    assert bare == []


def test_nothing_refers_to_documents_outside_the_repository() -> None:
    found = [f"{path}: {match[0]}" for path, text in texts() for match in OUTSIDE.finditer(text)]
    assert found == []


@cache
def sections() -> dict[str, str]:
    """Of `docs/schedules.md`: schedule -> its paragraph."""
    parts = re.split(r"^## (?:Schedule )?(H?\d+)$", (ROOT / "docs" / "schedules.md").read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def texts() -> Iterator[tuple[str, str]]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--", *CITED_FROM],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix in TEXT and path.is_file() and path != Path(__file__):
            yield name, path.read_text()


def citations(text: str) -> list[str]:
    """The citations of a text: "13", "7a", "H9", "P3"."""
    schedules = [each for found in SCHEDULE_CITED.findall(text) for each in re.findall(r"H?\d+[a-h]?", found)]
    return [*schedules, *RULE_CITED.findall(text), *PROMISE_CITED.findall(text)]


def resolves(cited: str) -> bool:
    """There is a paragraph for it, and in it the case, if a letter names one: "(b)" of "20b"."""
    if cited[0] == "P":
        return cited in PROMISES
    section = sections().get(cited.rstrip("abcdefgh"))
    return section is not None and (not cited[-1].isalpha() or f"({cited[-1]})" in section)


def anchor_of(cited: str) -> str:
    number = cited.rstrip("abcdefgh").lower()
    if cited[0] == "P":
        return f"ha.md#{number}"
    return f"schedules.md#{number if cited[0] == 'H' else f'schedule-{number}'}"
