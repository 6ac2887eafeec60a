"""A fuzzer on the port: no crash, no leak, no answer to the wrong request."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.wire.fuzz import fuzz

from leasehold.testing.mooncake import OwnNode, StandaloneMaster
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
    deadline = time.monotonic() + 60
    while descriptors(pid) > wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    assert descriptors(pid) <= wanted


async def attack(master: StandaloneMaster | OwnNode, frames: int, seed: int, growth_mib: float) -> None:
    """Throw `frames` at the port; a good client's object outlives them, and `growth_mib` is all that may stay."""
    pid = master.worker_pid if isinstance(master, OwnNode) else master.pid
    async with Client(master.rpc, tenant="probe") as client:
        await client.mount_segment(Segment(b"p" * 16, "p", 1 << 40, 1 << 20, "127.0.0.1:1", "tcp"))
        await client.put_start("here", 10)
        await client.put_end("here")
        quiet, sizes, tallies = descriptors(pid), [], []
        for number in range(ROUNDS):
            tallies.append(await fuzz(master.rpc_port, frames // ROUNDS, seed + number))
            await client.batch_remove(["nothing"])
            sizes.append(resident_mib(pid))
        assert await client.exist_key("here")
        wait_for_descriptors(pid, quiet)
    assert "this is a bug" not in master.log_path.read_text(), master.log_tail(60)
    assert sum(tally.frames for tally in tallies) >= frames
    assert {err for tally in tallies for err in tally.errors} >= {Err.OK, Err.INVALID_ARGUMENT, Err.NOT_REGISTERED}
    # What good requests put there may stay; damaged ones must not pile up.
    assert sizes[-1] - sizes[0] < growth_mib, sizes


async def test_fifty_thousand_mutated_frames() -> None:
    with StandaloneMaster("--client-ttl", "1h") as master:
        await attack(master, 50_000, seed=3, growth_mib=42)


async def test_mutated_frames_at_a_whole_node() -> None:
    """Guardian, worker and journal too: the process that was attacked is the one that serves at the end."""
    with OwnNode("--client-ttl", "1h") as node:
        worker = node.worker_pid
        await attack(node, 6_000, seed=4, growth_mib=42)
        assert node.worker_pid == worker


@pytest.mark.proof
@pytest.mark.timeout(3600)
async def test_a_million_mutated_frames() -> None:
    with StandaloneMaster("--client-ttl", "1h") as master:
        await attack(master, 1_000_000, seed=1, growth_mib=90)


@pytest.mark.proof
@pytest.mark.timeout(3600)
async def test_a_million_mutated_frames_at_a_whole_node() -> None:
    """The store is in the same process: up to its bound the journal's history is there too."""
    with OwnNode("--client-ttl", "1h") as node:
        worker = node.worker_pid
        await attack(node, 1_000_000, seed=2, growth_mib=400)
        assert node.worker_pid == worker
