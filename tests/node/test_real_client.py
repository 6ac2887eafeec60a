"""Must-show 1 and 2 of the hot standby, with the unmodified C++ client of Mooncake."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from leasehold.testing import mooncake
from leasehold.testing.node import NodeGroup, NodeProcess

pytestmark = pytest.mark.xdist_group("real_client")  # its processes are shared by the module

# A call fails on each connection that died: one a thread, and those of the client's own ping and task loops, which the
# next caller may find in its pool.
FAILURES_MAX = 8 + 2
BURST = Path(__file__).parent / "clients" / "burst.py"


class Outcome(msgspec.Struct):
    acknowledged: int
    lost: list[str]
    removed: int
    back: list[str]
    stale: list[str]
    failed: list[list[int]]
    gap_s: float
    longest_call_s: float


def run_burst(
    nodes: NodeGroup, master: str, mode: str, seconds: float, harm: Callable[[NodeProcess], None], after_s: float
) -> Outcome:
    """A real client at work; `after_s` into it the primary is harmed."""
    process = subprocess.Popen(
        [str(mooncake.venv() / "bin" / "python"), str(BURST), master, mode, str(seconds)],
        env={**os.environ, **mooncake.client_environment(), "MC_STORE_CLUSTER_ID": nodes.cluster},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # it tells every failed call there; what counts is in its answer
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        time.sleep(after_s)
        harm(nodes.primary())
        return msgspec.json.decode(process.stdout.readlines()[-1], type=Outcome)
    finally:
        process.kill()
        process.wait()


@pytest.mark.alone
@pytest.mark.usefixtures("wheel")
@pytest.mark.parametrize("mode", ["put", "upsert"])
def test_nothing_acknowledged_is_lost_stale_or_back_after_kill_9(pair: NodeGroup, mode: str) -> None:
    outcome = run_burst(pair, pair.primary().rpc, mode, 4.0, NodeProcess.kill_worker, 1.5)
    assert outcome.acknowledged >= 4_000
    assert (outcome.lost, outcome.stale, outcome.back) == ([], [], [])
    failures = [code for failed in outcome.failed for code in failed]
    assert -200 not in failures, "there is space at once"
    if mode == "put":
        assert len(failures) <= FAILURES_MAX, outcome.failed


@pytest.mark.alone
@pytest.mark.usefixtures("wheel")
def test_a_real_client_goes_on_within_half_a_second_after_kill_9(pair: NodeGroup) -> None:
    outcome = run_burst(pair, pair.primary().rpc, "exist", 2.5, NodeProcess.kill_worker, 0.7)
    failures = [code for failed in outcome.failed for code in failed]
    print(f"real client: gap {outcome.gap_s * 1000:.0f} ms, failed calls {outcome.failed}")
    assert 0 not in failures, "no false miss"
    assert len(failures) <= FAILURES_MAX, outcome.failed
    assert outcome.gap_s <= 0.5


@pytest.mark.chaos
@pytest.mark.usefixtures("wheel")
def test_ten_kills_of_the_worker_under_a_real_client(pair: NodeGroup) -> None:
    """Must-show 2, the figures: median and worst of ten."""
    gaps = []
    for _ in range(10):
        pair.revive()
        outcome = run_burst(pair, pair.primary().rpc, "exist", 2.0, NodeProcess.kill_worker, 0.5)
        assert all(0 not in failed for failed in outcome.failed), "no false miss"
        gaps.append(outcome.gap_s)
    print(f"real client, ten kills: median {sorted(gaps)[5] * 1000:.0f} ms, worst {max(gaps) * 1000:.0f} ms")
    assert max(gaps) <= 0.5
