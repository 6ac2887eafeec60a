"""A configuration service in three processes: a change is never seen late.

    python examples/config_service/run.py

It starts the authority (`leasehold cache serve`), a reader that reads in a loop, and an operator that changes the
value. Then it checks whether any read that began after a change had finished returned an older value. None does: when
`put` returns, no cache can return the old value any more.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
CHANGES = 10


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)


def lines(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.read().splitlines()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="leasehold-config-") as folder:
        store = f"sqlite:///{folder}/config.db"
        authority = start("-m", "leasehold", "cache", "serve", "--listen", "127.0.0.1:0", "--store", store)
        try:
            address = first_line(authority).removeprefix("serving on ")
            reader = start(str(HERE / "reader.py"), address, "3")
            first_line(reader)
            operator = start(str(HERE / "change.py"), address, str(CHANGES))
            done = {int(number): int(at) for number, at in (line.split() for line in lines(operator))}
            seen = [line.split() for line in lines(reader)]
        finally:
            authority.terminate()
            authority.wait()
    reads = late = 0
    for value, _, last_ns, count in seen:
        reads += int(count)
        newer = done.get(int(value) + 1) if value != "-" else done.get(1)
        late += newer is not None and int(last_ns) > newer
    print(f"{len(done)} changes, {reads} reads, {len(seen)} different values seen, {late} seen late")
    return 1 if late or len(done) != CHANGES else 0


if __name__ == "__main__":
    sys.exit(main())
