"""The docs are true: links resolve; named flags, commands, modules and tests exist; pictures are up to date."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from leasehold.cli.main import COMMANDS, leasehold

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
PACKAGES = sorted(path.parent.name for path in (ROOT / "src" / "leasehold").glob("*/__init__.py"))
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\(([^)#]*)#([^)]+)\)")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CALL = re.compile(r"\bleasehold ([a-z]+)\b([^`\n|]*)")


@EACH_PAGE
def test_links_lead_to_a_file(page: Path) -> None:
    targets = [target for target in LINK.findall(page.read_text()) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@EACH_PAGE
def test_links_lead_to_a_heading(page: Path) -> None:
    dead = []
    for target, anchor in ANCHOR.findall(page.read_text()):
        if "://" not in target and anchor not in anchors_of(page.parent / target if target else page):
            dead.append(f"{target}#{anchor}")
    assert dead == []


def anchors_of(page: Path) -> set[str]:
    """The ids of its headings, as mkdocs makes them, and the explicit ones."""
    text = page.read_text()
    plain = (
        re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    )
    return {re.sub(r"\s+", "-", heading) for heading in plain} | set(re.findall(r'<a id="([^"]+)">', text))


def test_the_first_page_links_to_every_page() -> None:
    first = ROOT / "docs" / "index.md"
    linked = {(first.parent / target).resolve() for target in LINK.findall(first.read_text()) if "://" not in target}
    pages = {page for page in PAGES if page.is_relative_to(first.parent)}
    assert {str(page.relative_to(ROOT)) for page in pages - linked - {first}} == set()


@EACH_PAGE
def test_python_in_the_docs_is_python(page: Path) -> None:
    for language, block in BLOCK.findall(page.read_text()):
        if language == "python":
            # a block may show the inside of a coroutine
            ast.parse("async def inside():\n" + textwrap.indent(block, "    "))


@EACH_PAGE
def test_imports_in_the_docs_exist(page: Path) -> None:
    for language, block in BLOCK.findall(page.read_text()):
        if language != "python":
            continue
        for node in ast.walk(ast.parse("async def inside():\n" + textwrap.indent(block, "    "))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("leasehold"):
                module = importlib.import_module(node.module or "")
                absent = [name.name for name in node.names if not hasattr(module, name.name)]
                assert [name for name in absent if importlib.util.find_spec(f"{node.module}.{name}") is None] == []
            elif isinstance(node, ast.Import):
                for name in node.names:
                    importlib.import_module(name.name)


@EACH_PAGE
def test_commands_in_the_docs_exist_with_their_flags(page: Path) -> None:
    for name, rest in CALL.findall(re.sub(r"\\\n\s*", "", page.read_text())):
        if name not in COMMANDS:
            continue  # a sentence about Leasehold, not a command
        flags = set(re.findall(r"(?<= )--[a-z][a-z-]*", rest.partition(" -- ")[0].partition(" | ")[0]))
        assert flags <= known_flags(name), f"leasehold {name}: {flags - known_flags(name)}"


@EACH_PAGE
def test_modules_and_tests_in_the_docs_exist(page: Path) -> None:
    """`ha/promotion.py` is a module of the package; `tests/...` is a test, a transcript, or a folder of them."""
    prose = BLOCK.sub("", page.read_text())
    packages = "|".join(PACKAGES)
    modules = re.findall(rf"`((?:{packages})/[\w/]*(?:\.py|/))`", prose)
    missing = [name for name in modules if not (ROOT / "src" / "leasehold" / name).exists()]
    tests = [name for name in re.findall(r"`(tests/[^`]+)`", prose) if "..." not in name]
    missing += [name for name in tests if not (ROOT / name.partition("::")[0]).exists()]
    assert missing == []


def test_tests_named_in_the_test_kit_exist() -> None:
    defined = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    named = re.findall(r"(?:`|::)(test_\w+)`", (ROOT / "docs" / "testing.md").read_text())
    assert [name for name in named if name not in defined] == []


def test_the_map_lists_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    listed = re.findall(r"^\| `([a-z0-9/]+)` \|", page.partition("## The packages")[2], re.MULTILINE)
    parts = [f"node/{path.parent.name}" for path in (ROOT / "src" / "leasehold" / "node").glob("*/__init__.py")]
    assert sorted(listed) == sorted(PACKAGES + parts)


def known_flags(name: str) -> set[str]:
    command = leasehold.get_command(click.Context(leasehold), name)
    assert command is not None
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return {flag for each in (command, *inner) for option in each.params for flag in option.opts} | {"--help"}


def test_pictures_are_up_to_date() -> None:
    subprocess.run([sys.executable, str(ROOT / "scripts" / "draw-pictures"), "--check"], check=True)


def _strings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "\0".join(str(part.value) if isinstance(part, ast.Constant) else "" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_messages_in_the_troubleshooting_table_are_real() -> None:
    """An operator searches this page for the line in the log: reworded messages must be reworded there too."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    rows = re.findall(r"^\| (?!message|---)(.+?) \| ", page[page.index("## By message") :], flags=re.MULTILINE)
    sources = (path for path in (ROOT / "src" / "leasehold").rglob("*.py") if "pb" not in path.parts)
    texts = [text for path in sources for text in _strings(ast.parse(path.read_text()))]
    stale = [
        (part, message)
        for message in rows
        for part in map(str.strip, re.split(r"\.\.\.|\bN\b|;|:|\(.*?\)|`[^`]*`|\b[A-Z]{2,}\b|'[^']*'", message))
        if len(part) >= 6 and not any(part in text for text in texts)
    ]
    assert len(rows) >= 10
    assert stale == []
