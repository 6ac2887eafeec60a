"""A handler that omits the record, the kind of reply or the outbox does not type-check."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parent.parent.parent
HANDLERS = Path(__file__).parent / "handlers"
REJECTED = {
    "omits_record.py": ("call-arg", 'Missing positional argument "after"'),
    "omits_kind.py": ("type-var", '"execute" of "Serving" cannot be "tuple[bool, int]"'),
    "bypasses_outbox.py": ("return-value", 'got "bytes"'),
}
ERROR = re.compile(r"^(?P<file>[^:]+):\d+: error: (?P<text>.*?)\s+\[(?P<code>[a-z-]+)\]$", re.MULTILINE)


@pytest.fixture(scope="module")
def errors() -> dict[str, list[tuple[str, str]]]:
    """Every error of one strict run, as (code, text), by file name."""
    files = sorted(str(path) for path in HANDLERS.glob("*.py"))
    out, problems, _ = api.run(["--config-file", str(ROOT / "pyproject.toml"), "--strict", *files])
    assert not problems
    found: dict[str, list[tuple[str, str]]] = {Path(file).name: [] for file in files}
    for match in ERROR.finditer(out):
        found[Path(match["file"]).name].append((match["code"], match["text"]))
    return found


def test_a_correct_handler_is_accepted(errors: dict[str, list[tuple[str, str]]]) -> None:
    assert errors["correct.py"] == []
    assert errors.keys() == {"correct.py", *REJECTED}


@pytest.mark.parametrize("name", REJECTED)
def test_a_handler_that_leaves_out_what_it_must_state_is_rejected(
    name: str, errors: dict[str, list[tuple[str, str]]]
) -> None:
    code, text = REJECTED[name]
    assert any(code == found and text in message for found, message in errors[name]), errors[name]
