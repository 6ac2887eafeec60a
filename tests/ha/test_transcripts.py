"""Schedules as readable transcripts: commands and their output. `--rewrite` updates the output."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold.testing.sim.script import rewrite

FILES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    now = rewrite(text)
    assert "BROKEN" not in now, now
    if request.config.getoption("--rewrite"):
        path.write_text(now)
    else:
        assert now == text, "the output has changed: read it, then run pytest with --rewrite"
