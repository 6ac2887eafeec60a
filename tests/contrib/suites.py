"""Run a framework's own test suite, as obtained by `scripts/framework-suites`, against one of our adapters."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = Path(__file__).parent / "suite_plugins"
PAGES = ROOT / "docs" / "adapters"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one run: names of tests."""

    passed: frozenset[str]
    failed: Mapping[str, str] = field(default_factory=dict)  # test -> the end of its traceback
    skipped: frozenset[str] = frozenset()

    def counts(self) -> str:
        return f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"


def source(name: str, version: str) -> Path:
    """The unpacked source of a framework. Fails, with the reason, if it could not be obtained."""
    folder = ROOT / ".cache" / "suites" / f"{name}-{version}"
    note = folder.with_name(f"{folder.name}.missing")
    if note.exists():
        pytest.fail(f"the suite of {name} {version} was not run: {note.read_text().strip()}", pytrace=False)
    if not folder.exists():
        pytest.fail(f"the suite of {name} {version} is missing: run scripts/framework-suites", pytrace=False)
    return folder


def run_suite(
    folder: Path,
    tests: Sequence[str],
    plugin: str,
    environment: Mapping[str, str],
    *,
    arguments: Sequence[str] = (),
    timeout_s: float = 600,
) -> Outcome:
    """Run tests with pytest in a process of its own; `plugin` puts our adapter in place of the framework's."""
    with tempfile.TemporaryDirectory(prefix="leasehold-suite-") as reports:
        report = Path(reports) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", plugin, f"--junitxml={report}", "--timeout=60"]
        command += ["-c", os.devnull, f"--rootdir={folder}", "--import-mode=prepend", "-p", "no:cacheprovider"]
        command += ["-p", "no:randomly", *arguments, *tests]
        path = os.pathsep.join([str(PLUGINS), str(folder)])
        env = {**os.environ, **environment, "PYTHONPATH": path}
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert report.exists(), f"the suite did not run:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return read_report(report)


def read_report(report: Path) -> Outcome:
    """Read a report in JUnit's format."""
    passed, failed, skipped = set(), {}, set()
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{(case.get('classname') or '').rpartition('.')[2]}::{case.get('name')}"
        problem = case.find("failure") if case.find("failure") is not None else case.find("error")
        if problem is not None:
            failed[name] = (problem.text or problem.get("message") or "")[-1500:]
        elif case.find("skipped") is not None:
            skipped.add(name)
        else:
            passed.add(name)
    return Outcome(frozenset(passed - set(failed)), failed, frozenset(skipped))


def section(page: str, run: str) -> str:
    """The section of a page about one run."""
    text = (PAGES / page).read_text()
    found = re.search(rf"^### {re.escape(run)}\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/adapters/{page} has no section '{run}'"
    return found[1]


def explained(page: str, run: str) -> set[str]:
    """The failures that the page explains, in its table for this run."""
    return set(re.findall(r"^\| `([^`]+)` \|", section(page, run), re.MULTILINE))


def check_explained(outcome: Outcome, page: str, run: str) -> None:
    """Each failure is explained on its page, nothing explained passes, and the page has the counts of this run."""
    known = explained(page, run)
    surprising = {name: text for name, text in outcome.failed.items() if name not in known}
    assert not surprising, "\n\n".join(f"{name}\n{text}" for name, text in surprising.items())
    assert known <= set(outcome.failed), f"these pass: {known - set(outcome.failed)}"
    assert outcome.counts() in section(page, run), f"docs/adapters/{page} has other counts: {outcome.counts()}"
