"""The plan, the report, and a short run on real processes."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from leasehold.testing.chaos.faults import FaultInjector
from leasehold.testing.chaos.figures import Answers, by_kind, count_by_group, recoveries
from leasehold.testing.chaos.history import Call, FaultLine
from leasehold.testing.chaos.judge import judge
from leasehold.testing.chaos.options import Options
from leasehold.testing.chaos.plan import KINDS, Group, faults
from leasehold.testing.chaos.report import is_good, render
from leasehold.testing.chaos.roles import RoleSample
from leasehold.testing.chaos.run import Finished
from leasehold.testing.etcd import etcd_binary

S = 1_000_000_000
RESOURCE = re.compile(r"""(?:src|href)\s*=|url\(|@import|<(?:script|link|img|iframe)\b""", re.IGNORECASE)


def test_the_plan_comes_from_the_seed_and_has_every_kind() -> None:
    first, again = (list(itertools.islice(faults(7), 200)) for _ in range(2))
    assert first == again
    assert first != list(itertools.islice(faults(8), 200))
    assert {fault.kind for fault in first[: len(KINDS)]} == set(KINDS), "each kind comes once before any comes twice"
    assert "clock-jump" not in {fault.kind for fault in itertools.islice(faults(7, frozenset({"clock-jump"})), 200)}


def test_every_kind_of_the_plan_can_be_carried_out() -> None:
    for name, kind in KINDS.items():
        method = "_cut" if kind.group is Group.CUT else f"_{name.replace('-', '_')}"
        assert hasattr(FaultInjector, method), name


def finished(calls: list[Call]) -> Finished:
    lines = [
        FaultLine(0, "kill-worker", "n1", 1 * S, 1 * S + 1, 3 * S),
        FaultLine(1, "freeze-etcd", "<node0>", 5 * S, 6 * S, 7 * S, "a remark"),
    ]
    roles = [RoleSample(0, "n1", "primary", 5), RoleSample(2 * S, "n2", "primary", 9), RoleSample(2 * S, "n1", "")]
    verdict = judge(calls, [], lambda _: True)
    return Finished(Options(7, 0.1), 0, 8 * S, calls, lines, roles, verdict, True, ["a kind: why"], "etcd-1.2.3", ["c"])


def test_the_report_is_one_file_without_external_resources() -> None:
    calls = [
        Call("c", "k", "read", at * S // 10, at * S // 10 + 5_000_000, "ok") for at in range(80) if at not in (11, 12)
    ]
    good = finished(calls)
    page = render(good, "0.1")
    assert is_good(good)
    assert "leasehold chaos --seed 7 --minutes 0.1" in page
    assert "kill-worker" in page
    assert "&lt;node0&gt;" in page
    assert "a kind: why" in page
    assert page.count("<svg") == 2
    assert RESOURCE.search(page) is None
    lost = finished([*calls, Call("c", "k", "upsert", 1, 2, "ok", "v")])
    assert not is_good(lost)
    assert "1 lost" in render(lost, "0.1")


def test_figures_of_a_run() -> None:
    calls = [Call("c", "k", "read", at * S // 10, at * S // 10 + 5_000_000, "ok") for at in (5, 14, 60)]
    run = finished(calls)
    kill, freeze = recoveries(run.calls, run.faults, run.roles)
    assert (kill.any_ms, kill.clients_ms, kill.leader_changed) == (405.0, (405.0,), True)
    assert (freeze.any_ms, freeze.leader_changed) == (1005.0, False)
    assert [each.kind for each in by_kind([kill, freeze])] == ["kill-worker", "freeze-etcd"]
    assert count_by_group(run.faults)[Group.PAUSE] == 1
    assert count_by_group(run.faults)[Group.STORE] == 1
    slow = Call("c", "k", "read", 2 * S, 9 * S, "ok")
    assert Answers([slow, Call("c", "k", "read", 3 * S, 4 * S, "ok")]).next_ms(2 * S) == 2000.0


def test_a_short_run_breaks_no_promise_and_leaves_nothing(tmp_path: Path) -> None:
    """A few faults of one seed, on real processes; `make chaos` runs for 20 minutes."""
    etcd_binary(survives_kills=True)  # names the package if there is none
    report, history = tmp_path / "report.html", tmp_path / "history.jsonl"
    command = [sys.executable, "-m", "leasehold", "chaos", "--minutes", "0.3", "--seed", "5"]
    command += ["--out", str(report), "--history", str(history)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=None, cwd=tmp_path)
    print(done.stdout)
    if "run it as root" in done.stderr or "unshare" in done.stderr:
        pytest.fail(f"namespaces are needed, as root or where users may create them: {done.stderr}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost, 0 stale, 0 leases broken" in done.stdout
    assert len(history.read_text().splitlines()) > 500
    assert RESOURCE.search(report.read_text()) is None
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
