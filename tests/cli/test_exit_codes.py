"""The table of exit codes in the docs is the one in the code."""

from __future__ import annotations

import re
from pathlib import Path

from leasehold.cli import exit_codes
from leasehold.cli.exit_codes import ExitCode
from leasehold.cli.main import CHAPTERS

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"


def test_the_table_in_the_docs_is_the_table_in_the_code() -> None:
    source = Path(exit_codes.__file__).read_text()
    in_code = {int(code): text for code, text in re.findall(r"^    [A-Z_]+ = (\d+)  # (.*)$", source, re.MULTILINE)}
    in_docs = {int(code): text for code, text in re.findall(r"^\| (\d) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)}
    assert in_code == in_docs
    assert set(in_code) == {int(code) for code in ExitCode}


def test_the_page_has_the_output_of_every_operators_command() -> None:
    """Made by scripts/draw-commands."""
    blocks = re.findall(r"<!-- output:(\w+) -->(.*?)<!-- /output -->", PAGE.read_text(), re.DOTALL)
    assert all("```console\n$ leasehold " in text for _, text in blocks)
    shown = set(re.findall(r"^\$ leasehold ([a-z]+)", "".join(text for _, text in blocks), re.MULTILINE))
    elsewhere = {"adopt", "export", "feature-level", "import", "journal", "top"}  # they have pages of their own
    assert shown >= set(CHAPTERS["Inspect and operate"]) - elsewhere
