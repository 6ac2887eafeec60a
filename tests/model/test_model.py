"""The model of election, leader lease, promotion and prepared space: spin searches all of its states.

docs/proof.md shows the number of states and the planted bugs; `--rewrite` writes them there.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

MODEL = Path(__file__).with_name("leadership.pml")
PAGE = Path(__file__).parents[2] / "docs" / "proof.md"
# planted bug -> the broken rule, and the promise
BUGS = {
    "NO_FENCE": ("journal writes are not fenced", "P4"),
    "NO_LEASE": ("a primary ignores its leader lease", "P4"),
    "NO_WAIT": ("a successor does not wait for the old leader lease", "P4"),
    "LEASE_FROM_RECEIPT": ("the leader lease counts from the answer of a write", "P4"),
    "KEEP_ALIVE_EXTENDS": ("a keep-alive extends the leader lease", "P4"),
    "GUARDIAN_TRUSTS_A_PIPE": ("a guardian gives up the key of a worker that is only stopped", "P4"),
    "MARKER_OF_ANOTHER_EPOCH": ("the end marker of an epoch that never began counts for an older leader", "P4"),
    "EARLY_PREPARE": ("space is given out before its Prepare record is durable", "P3"),
    "FREE_PREPARED": ("a successor takes prepared space for free", "P3"),
    "SNAPSHOT_WITHOUT_PREPARED": ("a snapshot lacks prepared space", "P3"),
    "RELEASE_FROM_OWN_SETTING": ("a successor quarantines prepared space for its own, shorter time", "P3"),
    "HANDOVER_UNFLUSHED": ("a hand-over frees prepared space that was given out", "P3"),
}


class Search:
    """The result of one exhaustive search."""

    def __init__(self, output: str) -> None:
        self.output = output
        self.errors = int(_number(r"errors: (\d+)", output))
        self.states = int(_number(r"(\d+) states, stored", output))
        self.complete = "search depth too small" not in output and "Search not completed" not in output


def _number(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, text
    return found[1]


def search(folder: Path, bug: str = "") -> Search:
    for tool in ("spin", "gcc"):
        assert shutil.which(tool) is not None, f"'{tool}' is missing: run scripts/system-deps as root"
    plant = [f"-DBUG_{bug}"] if bug else []
    subprocess.run(["spin", *plant, "-a", str(MODEL)], cwd=folder, check=True, capture_output=True, timeout=60)
    subprocess.run(["gcc", "-O1", "-w", "-DSAFETY", "-o", "pan", "pan.c"], cwd=folder, check=True, timeout=200)
    command = ["./pan", "-m300000", "-w22"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    return Search(done.stdout)


def test_no_run_of_the_model_breaks_a_promise(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    found = search(tmp_path)
    assert (found.errors, found.complete) == (0, True), found.output
    rows = [f"| `{_name(bug)}` | {rule} | {promise} |" for bug, (rule, promise) in BUGS.items()]
    lines = [
        f"spin searched all {found.states:,} states: no assertion fails.",
        f"{len(BUGS)} of {len(BUGS)} planted bugs are found:",
        "",
        "| planted bug | broken rule | found as |",
        "|---|---|---|",
        *rows,
    ]
    section = "\n".join(("<!-- model -->", "", *lines, "", "<!-- /model -->"))
    page = PAGE.read_text()
    written = re.sub(r"<!-- model -->.*<!-- /model -->", lambda _: section, page, flags=re.DOTALL)
    if request.config.getoption("--rewrite"):
        PAGE.write_text(written)
    else:
        assert written == page, "docs/proof.md shows another run: pytest tests/model --rewrite"


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, tmp_path: Path) -> None:
    found = search(tmp_path, bug)
    assert found.errors == 1, found.output
    broken = "writing_left" if BUGS[bug][1] == "P3" else r"\(written<=mine|assertion violated 0"
    assert re.search(f"assertion violated.*{broken}|{broken}", found.output), found.output


def test_every_planted_bug_of_the_model_is_listed() -> None:
    assert set(re.findall(r"#ifdef BUG_(\w+)", MODEL.read_text())) == set(BUGS)


def _name(bug: str) -> str:
    return bug.lower().replace("_", "-")
