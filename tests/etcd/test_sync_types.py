"""The synchronous interfaces have full type annotations: a type checker rejects wrong calls."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import leasehold.sync
from leasehold.coord.api import Coord
from leasehold.wire.client import Client

USER = """
import leasehold.sync

def use(store: leasehold.sync.SyncCoord, master: leasehold.sync.Client) -> None:
    reveal_type(store.get(b"key", limit=1))
    reveal_type(store.lease_grant(5))
    reveal_type(master.exist_key("key"))
    store.get("text")
    store.put(b"key", b"value", leese=1)
    master.exist_key(1)
    master.no_such_call()
"""
SEEN = [
    'Revealed type is "leasehold.mvcc.model.RangeResult"',
    'Revealed type is "leasehold.mvcc.model.LeaseGrantResult"',
    'Revealed type is "bool"',
    'has incompatible type "str"; expected "bytes"',
    'Unexpected keyword argument "leese"',
    'has incompatible type "int"; expected "str | bytes"',
    '"SyncClient" has no attribute "no_such_call"',
]


def test_a_type_checker_sees_the_signatures(tmp_path: Path) -> None:
    program = tmp_path / "user.py"
    program.write_text(USER)
    check = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(program)]
    reported = subprocess.run(check, check=False, capture_output=True, text=True, timeout=120).stdout.splitlines()
    assert len(reported) == len(SEEN), reported
    for line, expected in zip(reported, SEEN, strict=True):
        assert expected in line


def test_no_call_is_missing() -> None:
    for core, face in ((Coord, leasehold.sync.SyncCoord), (Client, leasehold.sync.Client)):
        calls = [name for name, member in vars(core).items() if inspect.iscoroutinefunction(member)]
        assert [name for name in calls if not name.startswith("_") and not hasattr(face, name)] == []
