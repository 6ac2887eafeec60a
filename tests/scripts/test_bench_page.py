"""docs/benchmarks.md: a run replaces its own sections and keeps all others."""

from __future__ import annotations

from pathlib import Path

from bench import page
from bench.result import Result

HEAD = "# Benchmarks\n\nHow to read them.\n\n"


def result(commit: str) -> Result:
    return Result("2026-11-18T00:00:00+00:00", commit, "3.11.2", "a processor", 2, {}, {"etcd": "3.5.1"}, [])


def test_a_run_replaces_only_the_sections_of_its_benchmarks(tmp_path: Path) -> None:
    file = tmp_path / "benchmarks.md"
    file.write_text(HEAD)
    page.write(result("first"), {"journal": "1,000/s  \n", "calls": "old"}, file)
    page.write(result("second"), {"calls": "## not a heading"}, file)
    head, sections = page.read(file.read_text())
    assert head == HEAD
    assert list(sections) == ["calls", "journal"]
    assert "commit first" in sections["journal"]
    assert "```text\n1,000/s\n```" in sections["journal"]
    assert "commit second" in sections["calls"]
    assert "old" not in sections["calls"]


def test_a_section_names_its_purpose_and_the_versions(tmp_path: Path) -> None:
    text = page.section("journal", "figures", result("abc"))
    assert text.startswith("<!-- bench:journal -->\n\n## journal\n\nThe journal without a network")
    assert (
        "`python -m bench journal`, 2026-11-18, commit abc, Python 3.11.2, 2 cores (a processor); etcd 3.5.1." in text
    )
