"""`leasehold demo`: its figures are the cluster's, its checks find planted errors, and it leaves nothing behind."""

from __future__ import annotations

import itertools
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.cli.processes import Command, family, running, runs

from leasehold.admin.status import HistoryLine
from leasehold.cli.demo.client import HeldLeases, Ledger, Prober
from leasehold.cli.demo.cluster import DemoCluster
from leasehold.cli.demo.report import DemoReport
from leasehold.cli.operate import opened
from leasehold.pool import Pool
from leasehold.testing.process import wait_until

pytestmark = pytest.mark.timeout(300)


def read_report(command: Command) -> DemoReport:
    command.wait_for("{")
    while not command.output.endswith("\n}\n"):
        command.wait_for("}")
    return msgspec.json.decode(command.output, type=DemoReport)


def metric(admin: str, name: str) -> float:
    with opened(admin, "/metrics", timeout_s=10) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split(" ")[1]) for line in lines if line.startswith(f"{name} "))


def history(admin: list[str]) -> list[HistoryLine]:
    command = [sys.executable, "-m", "leasehold", "history", "--json", "--limit", "1000", "--admin", ",".join(admin)]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    return msgspec.json.decode(done.stdout, type=list[HistoryLine])


def test_its_figures_agree_with_the_history_and_the_metrics() -> None:
    with running("demo", "--json", "--keep-running") as command:
        report = read_report(command)
        assert report.ok, report
        assert len(report.scenes) == 5
        promoted = {line.epoch: line for line in history(report.admin) if line.role == "primary"}
        assert sorted({scene.epoch for scene in report.scenes}) == [scene.epoch for scene in report.scenes]
        for scene, after in itertools.pairwise(
            report.scenes
        ):  # not the last: after a frozen store the primary may go on
            line = promoted[scene.epoch]
            assert line.node == scene.leader
            # before a switchover, the order itself takes a while: there may be a longer wait before it
            until_us = after.fault_wall_us if scene.name == "switch over" else scene.answer_wall_us
            assert scene.fault_wall_us <= line.wall_us <= until_us, scene.name
        (leader,) = [admin for admin in report.admin if metric(admin, "leasehold_may_serve")]
        assert metric(leader, "leasehold_objects") == report.objects
        assert metric(leader, "leasehold_epoch") == report.scenes[-1].epoch
        assert metric(leader, "leasehold_pool_total_bytes") == report.pool_bytes
        pids = family(command.process.pid)
        assert len(pids) >= 8
        folder = folder_of(pids)
        assert folder.exists()
        assert command.send(signal.SIGINT)[0] == 0, command.output
        wait_until(lambda: not any(map(runs, pids)), "every process exits")
    assert not folder.exists()


def folder_of(pids: list[int]) -> Path:
    """The demo's directory, from the command line of its store."""
    for pid in pids:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        if "store" in words:
            return Path(words[words.index("--data") + 1]).parents[1]
    raise AssertionError("its store was not found")


def is_frozen(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def frozen(command: Command) -> Callable[[], bool]:
    return lambda: sum(map(is_frozen, family(command.process.pid))) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind(number: signal.Signals) -> None:
    with running("demo") as command:
        if number is signal.SIGINT:
            command.wait_for("as when their machine dies")
            wait_until(frozen(command), "worker and guardian of the primary are stopped")
        else:
            command.wait_for("objects of real bytes")
        pids = family(command.process.pid)
        folder = folder_of(pids)
        code, _ = command.send(number)
        assert code == (-number if number is signal.SIGKILL else 128 + number), command.output
        assert "Traceback" not in command.output
        wait_until(lambda: not any(map(runs, pids)), "every process exits")
    if number is signal.SIGKILL:
        shutil.rmtree(folder)
    assert not folder.exists()


async def test_its_checks_find_planted_errors(tmp_path: Path) -> None:
    """A demo that could not fail would show nothing."""
    cluster = DemoCluster(tmp_path)
    try:
        await cluster.start(lambda _: None)
        ledger = Ledger()
        prober = Prober(cluster.masters, ledger)
        async with Pool(cluster.masters) as pool:
            await ledger.fill(pool, 32, lambda _: None)
            leases = HeldLeases(pool, ["object/1", "object/2", "object/3"])
            await leases.take()
            assert await leases.check() == (3, 0)
            await pool.remove("object/2", force=True)
            await pool.put("object/2", b"other bytes")
            assert await leases.check() == (3, 1)
            await pool.remove("object/7", force=True)
            compared = await ledger.compare(pool, lambda _: None)
            assert (compared.keys, compared.lost) == (32, 2)
            await prober.pool.client.put_start("probe/9", 1024)  # its answer was lost, in a manner of speaking
            ledger.unknown.add("probe/9")
            await prober.settle()
            leader, _ = await cluster.leader()
            assert await cluster.metric(leader, "leasehold_unfinished_puts") == 0
            prober.version = 5
            await pool.put("tally", b"4")
            assert not await prober.is_fresh(pool)
            assert prober.stale == 1
        prober.pool.close()
    finally:
        cluster.kill()
