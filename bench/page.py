"""docs/benchmarks.md: one section for each benchmark, replaced by the run that measured it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from bench.result import ROOT, Result

PAGE = ROOT / "docs" / "benchmarks.md"
FOLDER = ROOT / "bench"


def write(result: Result, printed: dict[str, str], page: Path = PAGE) -> None:
    """Replace the sections of the benchmarks that were run. Sections are sorted by name."""
    head, sections = read(page.read_text())
    for name, text in printed.items():
        sections[name] = section(name, text, result)
    page.write_text(head + "".join(sections[name] for name in sorted(sections)))


def read(page: str) -> tuple[str, dict[str, str]]:
    """The text before the first section, and the sections by name."""
    head, *parts = re.split(r"^(?=<!-- bench:\w+ -->$)", page, flags=re.MULTILINE)
    return head, {part.partition(":")[2].partition(" ")[0]: part for part in parts}


def section(name: str, printed: str, result: Result) -> str:
    """The purpose of the benchmark, the environment, and its output."""
    purpose = ast.get_docstring(ast.parse((FOLDER / f"bench_{name}.py").read_text())) or ""
    versions = ", ".join(f"{package} {version}" for package, version in result.peers.items())
    where = f"`python -m bench {name}`, {result.started_at[:10]}, commit {result.commit}, Python {result.python}"
    lines = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
    return (
        f"<!-- bench:{name} -->\n\n## {name}\n\n{purpose}\n\n"
        f"{where}, {result.cores} cores ({result.cpu}); {versions}.\n\n"
        f"```text\n{lines}\n```\n\n"
    )
