"""A fuzzer on the port: no crash, no leak, no answer to the wrong request."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.wire.fuzz import fuzz

from leasehold.testing.mooncake import StandaloneMaster
from leasehold.wire.client import Client
from leasehold.wire.frame import Err
from leasehold.wire.messages import Segment

ROUNDS = 4


def resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def wait_for_descriptors(pid: int, wanted: int) -> None:
    """A closed connection is noticed a moment later."""
    deadline = time.monotonic() + 10
    while descriptors(pid) > wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    assert descriptors(pid) <= wanted


async def attack(frames: int, seed: int) -> None:
    with StandaloneMaster("--client-ttl", "1h") as master:
        async with Client(master.rpc, tenant="probe") as client:
            await client.mount_segment(Segment(b"p" * 16, "p", 1 << 40, 1 << 20, "127.0.0.1:1", "tcp"))
            await client.put_start("here", 10)
            await client.put_end("here")
            quiet, sizes, tallies = descriptors(master.pid), [], []
            for number in range(ROUNDS):
                tallies.append(await fuzz(master.rpc_port, frames // ROUNDS, seed + number))
                await client.batch_remove(["nothing"])
                sizes.append(resident_mib(master.pid))
            assert await client.exist_key("here")
            wait_for_descriptors(master.pid, quiet)
        assert "this is a bug" not in master.log_path.read_text(), master.log_tail(60)
        assert sum(tally.frames for tally in tallies) >= frames
        assert {err for tally in tallies for err in tally.errors} >= {Err.OK, Err.INVALID_ARGUMENT, Err.NOT_REGISTERED}
        # What good requests put there may stay; damaged ones must not pile up.
        assert sizes[-1] - sizes[0] < 40 + frames / 20_000, sizes


async def test_fifty_thousand_mutated_frames() -> None:
    await attack(50_000, seed=int(time.time()) % 1000)


@pytest.mark.proof
@pytest.mark.timeout(3600)
async def test_a_million_mutated_frames() -> None:
    await attack(1_000_000, seed=1)
