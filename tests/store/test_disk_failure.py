"""A full disk: `leasehold store` reports it and exits, and restarts with everything that it acknowledged."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from leasehold.base.errors import Unavailable, UnknownOutcome
from leasehold.coord.api import Coord
from leasehold.coord.connect import connect

PIPE = asyncio.subprocess.PIPE


async def store(data: Path, *before: str) -> tuple[asyncio.subprocess.Process, str]:
    words = (sys.executable, "-m", "leasehold", "store", "--listen", "127.0.0.1:0", "--data", str(data))
    process = await asyncio.create_subprocess_exec(*before, *words, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    printed = (await process.stdout.readline()).decode()
    return process, printed.partition("serves ")[2].partition(",")[0]


async def test_a_full_disk_ends_the_store_and_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    """It used to stay up and refuse every call: alive for a port check, and dead for its clients."""
    process, url = await store(tmp_path, "bash", "-c", 'ulimit -f 64; exec "$@"', "-")
    answered: list[bytes] = []

    async def put_forever(coord: Coord) -> None:
        for number in range(10**6):
            await coord.put(b"k%d" % number, b"x" * 1000)
            answered.append(b"k%d" % number)

    async with await connect(url, timeout_s=30) as coord:
        with pytest.raises((UnknownOutcome, Unavailable)):
            await put_forever(coord)
    assert len(answered) > 50  # to the last: the zeros that are written ahead give way
    assert await asyncio.wait_for(process.wait(), 60) == 1
    assert process.stderr is not None
    printed = (await process.stderr.read()).decode()
    assert (
        "leasehold: the disk failed ([Errno 27] File too large): free space or repair it, and start the store"
        in printed
    )
    assert "Traceback" not in printed

    process, url = await store(tmp_path)
    async with await connect(url) as coord:
        found = await coord.get(b"k", b"l", keys_only=True)
        assert {kv.key for kv in found.kvs} >= set(answered)
        assert found.count <= len(answered) + 1
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


async def test_in_ones_own_process_the_store_refuses_and_says_why(tmp_path: Path) -> None:
    """There the program is not ours to end."""
    script = (
        "import asyncio, leasehold\n"
        "async def main():\n"
        f"    async with await leasehold.connect('embedded://{tmp_path}') as coord:\n"
        "        for n in range(1000):\n"
        "            try: await coord.put(b'k%d' % n, b'x' * 1000)\n"
        "            except leasehold.LeaseholdError as error: print(type(error).__name__, error)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", 'ulimit -f 64; exec "$@"', "-", sys.executable, "-c", script, stdout=PIPE
    )
    lines = (await process.communicate())[0].decode().splitlines()
    assert lines[0].startswith("UnknownOutcome the disk failed while this was written")
    assert lines[-1].startswith("StoreFailed the disk failed ([Errno 27] File too large): free space or repair it")
