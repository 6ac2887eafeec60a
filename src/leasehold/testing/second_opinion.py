"""A second opinion on recorded histories: Porcupine, an independent linearizability checker, through Go.

    export(path, operations(calls))        one JSON line for each operation
    verdicts = second_opinion(path)        the verdict of each key; needs Go on PATH, and the sources of this project

`python -m leasehold.testing.second_opinion HISTORY.jsonl` prints the keys on which the two checkers differ.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from leasehold.testing.checkers import Operation, by_key, check_register
from leasehold.testing.process import MissingServer

Opinion = Literal["Ok", "Illegal", "Unknown"]
_ROOT = Path(__file__).resolve().parents[3]
_SOURCE = _ROOT / "scripts" / "porcupine"
_BINARY = _ROOT / ".cache" / "porcupine"
_BUILD_S = 300


class Line(Struct, frozen=True):
    """One operation in a file."""

    key: str
    called: int
    returned: int | None
    what: str
    argument: Any
    result: Any
    process: str


class _Verdict(Struct, frozen=True):
    key: str
    verdict: Opinion


def export(path: Path, registers: Mapping[str, Sequence[Operation]]) -> None:
    """Write the histories of all keys as JSON lines."""
    encoder = msgspec.json.Encoder()
    path.write_bytes(
        b"".join(
            encoder.encode(Line(key, each.called, each.returned, each.what, each.argument, each.result, each.process))
            + b"\n"
            for key, history in registers.items()
            for each in history
        )
    )


def load(path: Path) -> dict[str, list[Operation]]:
    """The histories in an exported file."""
    decoder = msgspec.json.Decoder(Line)
    lines = [decoder.decode(line) for line in path.read_bytes().splitlines()]
    return by_key(
        (
            line.key,
            Operation(
                line.called,
                line.returned,
                line.what,
                tuple(line.argument) if line.what == "cas" else line.argument,
                line.result,
                line.process,
            ),
        )
        for line in lines
    )


def why_missing() -> str | None:
    """Why Porcupine cannot run here, or None if it can."""
    if shutil.which("go") is None and not _BINARY.exists():
        return "no Go toolchain on PATH, so Porcupine cannot be built"
    return None


def second_opinion(path: Path, *, seconds: float = 60) -> dict[str, Opinion]:
    """Porcupine's verdict on each key of an exported file. `seconds` bounds the search for one key."""
    if (reason := why_missing()) is not None:
        raise MissingServer(reason)
    done = subprocess.run([str(_built()), str(path), str(seconds)], capture_output=True, check=True)
    found = [msgspec.json.decode(line, type=_Verdict) for line in done.stdout.splitlines()]
    return {each.key: each.verdict for each in found}


def _built() -> Path:
    source = _SOURCE / "main.go"
    if not _BINARY.exists() or _BINARY.stat().st_mtime < source.stat().st_mtime:
        _BINARY.parent.mkdir(exist_ok=True)
        subprocess.run(["go", "build", "-o", str(_BINARY), "."], cwd=_SOURCE, check=True, timeout=_BUILD_S)
    return _BINARY


def first_opinion(registers: Mapping[str, Sequence[Operation]]) -> dict[str, Opinion]:
    """The verdicts of our own checker, in the same words."""
    verdicts = {key: check_register(history) for key, history in registers.items()}
    return {key: "Ok" if one else "Illegal" if one.proven else "Unknown" for key, one in verdicts.items()}


def main() -> int:
    path = Path(sys.argv[1])
    ours, theirs = first_opinion(load(path)), second_opinion(path)
    differing = [key for key in ours if ours[key] != theirs[key]]
    for key in differing:
        print(f"{key}: {ours[key]} by leasehold.testing.checkers, {theirs[key]} by Porcupine")
    bad = sum(verdict == "Illegal" for verdict in theirs.values())
    print(f"{len(ours)} keys: {len(ours) - len(differing)} verdicts agree, {bad} not linearizable by Porcupine")
    return 1 if differing or bad else 0


if __name__ == "__main__":
    sys.exit(main())
