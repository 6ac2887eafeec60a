"""The programs in the pages about the adapters run as they are printed there."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs" / "adapters"


def program(page: str, replacements: dict[str, str]) -> str:
    """The program of a page, with the addresses of this test."""
    found = re.search(r"^<!-- program -->\n+```python\n(.*?)^```", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page} has no program"
    text = found[1]
    for shown, real in replacements.items():
        assert shown in text, f"{page}: the program does not have {shown!r}"
        text = text.replace(shown, real)
    return text


def run(text: str, folder: Path) -> str:
    """Run a program in a process of its own; returns what it printed."""
    file = folder / f"program_{uuid.uuid4().hex}.py"
    file.write_text(text)
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_singleton(url: str, name: str, tmp_path: Path) -> None:
    text = program("singleton.md", {"etcd://127.0.0.1:2379": url, '"nightly"': f'"{name}"'})
    output = run(text, tmp_path)
    assert "report written with fencing token" in output
    assert "None" in output.splitlines()
    assert "migrating under token" in output


def test_etcd3(url: str, tmp_path: Path) -> None:
    port = url.rpartition(":")[2]
    output = run(program("etcd3.md", {"port=2379": f"port={port}"}), tmp_path)
    assert output.splitlines()[:2] == ["b'100' 1", "b'200'"]
    assert "held, fencing token" in output


def test_tooz(url: str, name: str, tmp_path: Path) -> None:
    real = {"leasehold://127.0.0.1:2379": f"{url.replace('etcd://', 'leasehold://')}/{name}"}
    output = run(program("tooz.md", real), tmp_path)
    assert "{b'host-1'}" in output
    assert "this member leads b'workers'" in output
    assert "True" in output
