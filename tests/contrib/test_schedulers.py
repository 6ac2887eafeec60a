"""Three processes of one scheduler, killed, frozen, and with a frozen etcd: one of them schedules."""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import redis

import leasehold.sync
from leasehold.mvcc.model import SortOrder, SortTarget, prefix_end
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.process import wait_until
from leasehold.testing.redis import RedisProcess

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]
TTL_S = 4
INTERVAL_S = 1.0
COMMANDS = {
    "celery": [
        *(sys.executable, "-m", "celery", "-A", "beat_app", "beat"),
        *("--pidfile=", "--scheduler", "leasehold.contrib.celery:Scheduler"),
    ],
    "apscheduler": [sys.executable, str(PROGRAMS / "apscheduler_ticks.py")],
    "apscheduler4": [
        str(ROOT / ".cache" / "apscheduler4" / "bin" / "python"),
        str(PROGRAMS / "apscheduler4_ticks.py"),
    ],
}


@dataclass(frozen=True)
class Arrived:
    """A tick that had an effect or would have had one: the token, its scheduled time, and when it arrived."""

    token: int
    scheduled_s: float
    arrived_s: float


class Fleet:
    """Three processes of one scheduler and the list into which their jobs write."""

    def __init__(self, kind: str, folder: Path, etcd: EtcdCluster, broker: RedisProcess) -> None:
        note = ROOT / ".cache" / "apscheduler4.missing"
        if kind == "apscheduler4" and (note.exists() or not Path(COMMANDS[kind][0]).exists()):
            reason = note.read_text().strip() if note.exists() else "run scripts/framework-suites"
            pytest.fail(f"APScheduler 4 was not tested: {reason}", pytrace=False)
        self.kind, self.folder, self.name = kind, folder, f"fleet-{kind}"
        self.server = redis.Redis.from_url(broker.url)
        self.store = leasehold.sync.connect(etcd.url)
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(PROGRAMS),
            "TEST_BROKER": f"{broker.url}/0",
            "TEST_STORE": etcd.url,
            "TEST_NAME": self.name,
            "TEST_TTL": str(TTL_S),
            "TEST_INTERVAL": str(INTERVAL_S),
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        self.arrivals: dict[int, float] = {}

    def start(self) -> None:
        log = (self.folder / f"{self.kind}-{len(self.processes)}-{time.time_ns()}.log").open("wb")
        self.processes.append(
            subprocess.Popen(COMMANDS[self.kind], env=self.environment, cwd=self.folder, stdout=log, stderr=log)
        )

    def leader(self) -> subprocess.Popen[bytes] | None:
        """The process whose candidacy is the oldest in the store."""
        prefix = f"/leasehold/singleton/{self.name}/leader/".encode()
        found = self.store.get(
            prefix, prefix_end(prefix), limit=1, sort_order=SortOrder.ASCEND, sort_target=SortTarget.CREATE
        ).kvs
        pid = int(found[0].value.rpartition(b":")[2]) if found else 0
        return next((each for each in self.processes if each.pid == pid), None)

    def ticks(self) -> list[Arrived]:
        """All ticks, in the order of their arrival."""
        if self.kind != "celery":
            rows = [row.decode().split() for row in self._rows("ticks")]
            return [Arrived(int(token), float(at), float(arrived)) for token, at, arrived in rows]
        messages = [json.loads(row) for row in reversed(self._rows("celery"))]  # kombu pushes to the left
        for number, _ in enumerate(messages):
            self.arrivals.setdefault(number, time.time())
        headers = [message["headers"] for message in messages]
        assert all(base64.b64decode(message["body"]) for message in messages)
        return [
            Arrived(each["leasehold_fencing_token"], each["leasehold_scheduled_time"], self.arrivals[number])
            for number, each in enumerate(headers)
        ]

    def _rows(self, key: str) -> list[bytes]:
        rows = self.server.lrange(key, 0, -1)
        assert isinstance(rows, list)
        return [row for row in rows if isinstance(row, bytes)]

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        self.store.close()
        self.server.close()


@contextmanager
def fleet(kind: str, folder: Path, etcd: EtcdCluster) -> Iterator[Fleet]:
    with RedisProcess(folder / "redis") as broker:
        opened = Fleet(kind, folder, etcd, broker)
        try:
            for _ in range(3):
                opened.start()
            yield opened
        finally:
            opened.close()


def with_effect(ticks: list[Arrived]) -> list[Arrived]:
    """The ticks that a resource with fencing accepts: none with a lower token than the highest before."""
    accepted: list[Arrived] = []
    for tick in ticks:
        if not accepted or tick.token >= max(each.token for each in accepted[-50:]):
            accepted.append(tick)
    return accepted


def check(ticks: list[Arrived], outages: list[tuple[float, float]]) -> tuple[int, float]:
    """No tick has an effect twice; none is late by more than the TTL plus an interval, outages of etcd not counted.

    Returns the number of ticks that were refused, and the longest gap.
    """
    accepted = with_effect(ticks)
    scheduled = sorted(tick.scheduled_s for tick in accepted)
    close = [(one, two) for one, two in pairwise(scheduled) if two - one < INTERVAL_S / 2]
    assert close == [], f"scheduled twice with effect: {close}"
    worst_s = 0.0
    arrived = sorted(tick.arrived_s for tick in accepted)
    for before_s, after_s in pairwise(arrived):
        paused_s = sum(max(0.0, min(after_s, end) - max(before_s, begin)) for begin, end in outages)
        worst_s = max(worst_s, after_s - before_s - paused_s)
    assert worst_s <= TTL_S + INTERVAL_S, f"no tick for {worst_s:.2f} s"
    return len(ticks) - len(accepted), worst_s


def test_the_check_finds_a_tick_with_two_effects_and_a_gap() -> None:
    """A check that finds nothing would prove nothing."""
    good = [Arrived(1 + n // 5, float(n), float(n)) for n in range(10)]
    assert check(good, []) == (0, 1.0)
    with pytest.raises(AssertionError, match="twice"):
        check([*good, Arrived(2, 9.1, 9.1)], [])
    with pytest.raises(AssertionError, match="no tick for"):
        check([*good, Arrived(2, 20.0, 20.0)], [])
    assert check([*good, Arrived(2, 20.0, 20.0)], [(10.0, 18.0)]) == (0, 3.0)
    assert check([*good, Arrived(1, 9.1, 9.1)], []) == (1, 1.0)  # the fence refuses it


@pytest.mark.parametrize("kind", ["celery", "apscheduler"])
def test_a_killed_leader_is_replaced(kind: str, tmp_path: Path, etcd: EtcdCluster) -> None:
    with fleet(kind, tmp_path, etcd) as running:
        wait_until(lambda: len(running.ticks()) >= 2, "two ticks", 60)
        leader = running.leader()
        assert leader is not None
        count = len(running.ticks())
        leader.kill()
        leader.wait()
        wait_until(lambda: len(running.ticks()) >= count + 3, "ticks of a successor", 60)
        tokens = [tick.token for tick in running.ticks()]
        assert tokens == sorted(tokens)
        assert len(set(tokens)) == 2
        scheduled = [tick.scheduled_s for tick in running.ticks()]
        assert all(two - one >= INTERVAL_S / 2 for one, two in pairwise(scheduled))


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", sorted(COMMANDS))
def test_200_ticks_under_faults(kind: str, tmp_path: Path) -> None:
    chance = random.Random(16)
    outages: list[tuple[float, float]] = []
    faults = {"kill": 0, "freeze": 0, "freeze etcd": 0}
    with EtcdCluster(1) as etcd, fleet(kind, tmp_path, etcd) as running:
        wait_until(lambda: len(running.ticks()) >= 2, "two ticks", 60)
        count = 0
        while len(with_effect(running.ticks())) < 200:
            calm_until_s = time.time() + 4 + 4 * chance.random()
            while time.time() < calm_until_s:
                running.ticks()  # notes the times of arrival
                time.sleep(0.02)
            fault = ("kill", "freeze", "freeze etcd")[count % 3]
            count += 1
            faults[fault] += 1
            if fault == "freeze etcd":
                began_s = time.time()
                etcd.nodes[0].freeze()
                _watch(running, chance.choice([TTL_S / 3, TTL_S + 1]))
                etcd.nodes[0].thaw()
                outages.append((began_s, time.time()))
                continue
            leader = running.leader()
            if leader is None:
                continue
            if fault == "kill":
                leader.kill()
                leader.wait()
                running.processes.remove(leader)
                running.start()
            else:
                os.kill(leader.pid, signal.SIGSTOP)
                _watch(running, TTL_S + 2)
                os.kill(leader.pid, signal.SIGCONT)
        refused, worst_s = check(running.ticks(), outages)
        print(f"{kind}: {len(running.ticks())} ticks, {refused} refused, longest gap {worst_s:.2f} s, {faults}")


def _watch(running: Fleet, seconds: float) -> None:
    end_s = time.time() + seconds
    while time.time() < end_s:
        running.ticks()
        time.sleep(0.02)
