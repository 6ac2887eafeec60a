"""One instance of a fleet: elections in the background, claimed ticks, the decorator and the block."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import leasehold.sync
from leasehold.base.errors import InvalidArgument, NotHeld, SessionLost
from leasehold.concurrency import Held, Locked, WaitTimeout
from leasehold.contrib.fencing import fencing_token
from leasehold.contrib.only_one import TooSoon, only_one
from leasehold.contrib.singleton import Singleton
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.process import wait_until

TTL_S = 2


def test_one_leads_and_the_next_follows_immediately(url: str, name: str) -> None:
    first = Singleton(name, store=url, ttl_s=30)
    held = first.wait()
    assert held is not None
    with Singleton(name, store=url, ttl_s=30) as second:
        assert second.wait(timeout_s=0.2) is None
        assert second.held() is None
        first.close()
        first.close()
        successor = second.wait()
        assert successor is not None
        assert successor.token > held.token
        assert first.held() is None


def test_a_lost_leadership_ends_locally_and_the_instance_campaigns_again(url: str, name: str) -> None:
    with Singleton(name, store=url, ttl_s=30) as singleton, leasehold.sync.connect(url) as store:
        before = singleton.wait()
        assert before is not None
        lease = int(before.key.rpartition(b"/")[2], 16)
        store.lease_revoke(lease)
        wait_until(lambda: (held := singleton.held()) is not None and held.token > before.token, "campaign again", 30)
        with pytest.raises(NotHeld):
            before.check()


def test_a_tick_is_claimed_once(url: str, name: str) -> None:
    with Singleton(name, store=url, ttl_s=30) as first, Singleton(name, store=url, ttl_s=30) as second:
        held = first.wait()
        assert held is not None
        assert first.ticks.claim(held, "report", 100.0)
        assert not first.ticks.claim(held, "report", 100.0)
        assert first.ticks.claim(held, "report", 101.5)
        first.close()
        successor = second.wait()
        assert successor is not None
        # It has not loaded the record yet, so its comparison fails and it learns the last tick.
        assert not second.ticks.claim(successor, "report", 101.0)
        last = second.ticks.last("report")
        assert last is not None
        assert (last.at, last.token) == (101.5, held.token)
        assert second.ticks.load()["report"] == last
        assert second.ticks.claim(successor, "report", 102.0)
        second.ticks.forget("report")
        assert second.ticks.load() == {}


def test_a_deposed_leader_claims_nothing(url: str, name: str) -> None:
    with Singleton(name, store=url, ttl_s=30) as singleton, leasehold.sync.connect(url) as store:
        held = singleton.wait()
        assert held is not None
        store.delete(held.key)  # in the store another instance may lead now, before this one can know
        assert not singleton.ticks.claim(held, "report", 1.0)
        assert store.get_one(f"{singleton.prefix}ticks/report".encode()) is None


def _child_sees(singleton: Singleton, answers: multiprocessing.SimpleQueue[bool]) -> None:
    answers.put(singleton.held() is None and singleton.wait(timeout_s=5) is None)
    singleton.close()


def test_a_forked_child_does_not_hold_its_parents_name(etcd: EtcdCluster, name: str) -> None:
    with Singleton(name, store=etcd.url, ttl_s=30) as singleton:
        assert singleton.wait() is not None
        context = multiprocessing.get_context("fork")
        answers: multiprocessing.SimpleQueue[bool] = context.SimpleQueue()
        child = context.Process(target=_child_sees, args=(singleton, answers))
        child.start()
        assert answers.get()
        child.join()
        assert singleton.held() is not None


def test_only_one_block_runs_at_a_time(url: str, name: str) -> None:
    with only_one(name, store=url) as held:
        assert fencing_token() == held.token
        with pytest.raises(Locked), only_one(name, store=url):
            pass
        with pytest.raises(WaitTimeout), only_one(name, store=url, wait_s=0.1):
            pass
    with only_one(name, store=url) as next_held:
        assert next_held.token > held.token
    with pytest.raises(NotHeld):
        fencing_token()


def test_a_function_is_skipped_while_another_instance_has_the_name(url: str, name: str) -> None:
    entered, leave = threading.Event(), threading.Event()

    @only_one(name, store=url)
    def work(number: int) -> int:
        entered.set()
        leave.wait(30)
        return number * 2

    results: list[int | None] = []
    first = threading.Thread(target=lambda: results.append(work(21)))
    first.start()
    assert entered.wait(30)
    assert work(1) is None
    leave.set()
    first.join()
    assert results == [42]
    assert work(2) == 4


async def test_a_coroutine_function_waits_for_its_turn(url: str, name: str) -> None:
    inside = 0
    most = 0

    @only_one(name, store=url, wait_s=None)
    async def work() -> int:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.05)
        inside -= 1
        return fencing_token()

    tokens = await asyncio.gather(work(), work(), work())
    assert most == 1
    assert len(set(tokens)) == 3


async def test_a_coroutine_is_cancelled_when_its_lease_is_lost(etcd: EtcdCluster, name: str) -> None:
    async def lose_it() -> None:
        async with await leasehold.connect(etcd.url) as coord, only_one(name, store=etcd.url) as held:
            await coord.lease_revoke(int(held.key.rpartition(b"/")[2], 16))
            await asyncio.sleep(60)

    with pytest.raises(SessionLost):
        await lose_it()


def test_a_plain_function_reports_at_its_end_that_it_lost_its_lease(etcd: EtcdCluster, name: str) -> None:
    def lose_it() -> None:
        with leasehold.sync.connect(etcd.url) as store, only_one(name, store=etcd.url) as held:
            store.lease_revoke(int(held.key.rpartition(b"/")[2], 16))
            wait_until(lambda: _lost(held), "the session is lost", 30)

    with pytest.raises(SessionLost):
        lose_it()


def _lost(held: Held) -> bool:
    try:
        held.check()
    except NotHeld:
        return True
    return False


def test_at_most_every(url: str, name: str) -> None:
    every_hour = only_one(name, store=url, at_most_every_s=3600)
    with every_hour:
        pass
    with pytest.raises(TooSoon), every_hour:
        pass
    assert every_hour(lambda: "ran")() is None
    time.sleep(0.002)
    with only_one(name, store=url, at_most_every_s=0.001):
        pass


@pytest.mark.parametrize(
    "bad",
    [
        lambda: only_one(""),
        lambda: only_one("a/b"),
        lambda: only_one("a", ttl_s=0),
        lambda: only_one("a", ttl_s=1.5),  # type: ignore[arg-type]
        lambda: only_one("a", wait_s=-1),
        lambda: only_one("a", at_most_every_s=-1),
        lambda: Singleton("a", store="http://127.0.0.1"),
    ],
)
def test_bad_arguments_are_refused(bad: object) -> None:
    with pytest.raises(InvalidArgument):
        bad()  # type: ignore[operator]


def test_without_a_store_the_message_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEASEHOLD_COORD", raising=False)
    with pytest.raises(InvalidArgument, match="LEASEHOLD_COORD"), only_one("a"):
        pass


HOLDER = """
import sys, time
from leasehold.contrib.singleton import Singleton
singleton = Singleton(sys.argv[2], store=sys.argv[1], ttl_s=int(sys.argv[3]))
leads = None
while True:
    held = singleton.held()
    now = held.token if held else None
    if now != leads:
        leads = now
        print('leads', now, flush=True)
    time.sleep(0.01)
"""


class _Instance:
    """A process that prints the token when it begins to lead, and None when it ends."""

    def __init__(self, folder: Path, url: str, name: str) -> None:
        command = [sys.executable, "-c", HOLDER, url, name, str(TTL_S)]
        self.output = folder / f"{time.time_ns()}.txt"
        with self.output.open("w") as output:
            self.process = subprocess.Popen(command, stdout=output)

    def lines(self) -> list[str]:
        return re.findall(r"^leads (\w+)$", self.output.read_text(), re.MULTILINE)

    def leads(self) -> bool:
        return self.lines()[-1:] not in ([], ["None"])


def test_a_killed_and_a_frozen_leader_are_replaced(tmp_path: Path, url: str, name: str) -> None:
    instances = [_Instance(tmp_path, url, name) for _ in range(2)]
    try:
        wait_until(lambda: any(each.leads() for each in instances), "one leads", 60)
        frozen = next(each for each in instances if each.leads())
        other = next(each for each in instances if each is not frozen)
        os.kill(frozen.process.pid, signal.SIGSTOP)
        wait_until(other.leads, "the other leads", 60)
        os.kill(frozen.process.pid, signal.SIGCONT)
        wait_until(lambda: frozen.lines()[-1] == "None", "the woken instance notices", 60)
        other.process.kill()
        wait_until(frozen.leads, "it leads again", 60)
        tokens = [int(line) for each in instances for line in each.lines() if line != "None"]
        assert len(tokens) == len(set(tokens)) == 3
        assert int(frozen.lines()[-1]) == max(tokens)
    finally:
        for each in instances:
            each.process.kill()
            each.process.wait()
