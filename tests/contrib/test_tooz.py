"""The tooz driver: what tooz's own tests do not cover, and these tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import tooz
from tests.contrib.suites import check_explained, explained, run_suite
from tooz import coordination

from leasehold.base.errors import SessionLost
from leasehold.contrib.tooz import LeaseholdDriver, LeaseholdLock
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.ports import free_ports
from leasehold.testing.process import wait_until
from leasehold.testing.store import StoreProcess


def coordinator(url: str, member: str, **options: object) -> LeaseholdDriver:
    opened = coordination.get_coordinator(url.replace("etcd://", "leasehold://"), member.encode(), **options)
    assert isinstance(opened, LeaseholdDriver)
    opened.start()
    return opened


@pytest.fixture
def driver(url: str) -> Iterator[LeaseholdDriver]:
    opened = coordinator(url, "first", timeout=30)
    yield opened
    if opened.is_started:
        opened.stop()


def revoke_session(driver: LeaseholdDriver) -> None:
    """Revoke the lease, as the store does when that of a frozen member expires."""
    lease = driver.run(driver.session).lease_id
    driver.store.lease_revoke(lease)


def test_a_lost_lock_is_reported_and_not_taken_again(driver: LeaseholdDriver, name: str) -> None:
    lock: LeaseholdLock = driver.get_lock(name.encode())
    losses: list[SessionLost] = []
    reported = threading.Event()
    lock.on_lost(lambda loss: (losses.append(loss), reported.set()))  # type: ignore[arg-type,func-returns-value]
    assert lock.acquire()
    first_token = lock.token
    assert lock.is_still_owner()
    revoke_session(driver)
    assert reported.wait(30)
    assert not lock.is_still_owner()
    assert not lock.release()
    assert lock.acquire(blocking=False)
    assert lock.token > first_token
    assert lock.release()
    assert len(losses) == 1


def test_after_a_lost_session_the_heartbeat_joins_the_groups_again(driver: LeaseholdDriver, name: str) -> None:
    group = name.encode()
    driver.join_group_create(group, {"weight": 3})
    revoke_session(driver)
    wait_until(lambda: driver.get_members(group).get() == set(), "the member has left", 30)
    wait_until(lambda: bool(driver.heartbeat()) and driver.get_members(group).get() == {b"first"}, "it is back", 30)
    assert driver.get_member_capabilities(group, b"first").get() == {"weight": 3}


def test_a_leader_that_lost_its_session_is_replaced(driver: LeaseholdDriver, url: str, name: str) -> None:
    group = name.encode()
    driver.create_group(group).get()
    second = coordinator(url, "second", timeout=30)
    try:
        elected: list[bytes] = []
        driver.watch_elected_as_leader(group, lambda event: elected.append(event.member_id))
        second.watch_elected_as_leader(group, lambda event: elected.append(event.member_id))
        driver.run_watchers()
        second.run_watchers()
        revoke_session(driver)
        second.run_watchers()
        driver.run_watchers()
        assert elected == [b"first", b"second"]
        assert driver.get_leader(group).get() == b"second"
        assert not driver.stand_down_group_leader(group)
        assert second.stand_down_group_leader(group)
    finally:
        second.stop()


def test_an_acquire_ends_after_its_timeout(driver: LeaseholdDriver, url: str, name: str) -> None:
    second = coordinator(url, "second", timeout=30)
    try:
        assert driver.get_lock(name.encode()).acquire()
        began = time.monotonic()
        assert second.get_lock(name.encode()).acquire(timeout=0.2) is False
        assert second.get_lock(name.encode()).acquire(blocking=0.2) is False
        assert time.monotonic() - began >= 0.4
    finally:
        second.stop()


def test_a_stopped_store_is_a_connection_error(name: str) -> None:
    with StoreProcess() as store:
        driver = coordinator(store.url, "first", timeout=2)
        lock = driver.get_lock(name.encode())
        store.kill()
        with pytest.raises(coordination.ToozConnectionError):
            lock.acquire(blocking=False)
        with pytest.raises(coordination.ToozConnectionError):
            driver.get_groups().get()
        store.start()
        wait_until(lambda: lock.acquire(blocking=False), "it works again", 30)
        driver.stop()


@pytest.mark.parametrize("bad", ["timeout=soon", "timeout=1.5"])
def test_a_bad_option_is_refused(bad: str) -> None:
    with pytest.raises(tooz.ToozError, match="timeout"):
        coordination.get_coordinator(f"leasehold://127.0.0.1:{free_ports(1)[0]}?{bad}", b"member")


SUITES = ["tooz/tests/test_coordination.py", "tooz/tests/test_partitioner.py"]
PACKAGE = Path(tooz.__file__).parents[1]  # the package contains its tests


def environment(url: str) -> dict[str, str]:
    return {"TOOZ_TEST_URL": url.replace("etcd://", "leasehold://")}


def test_a_part_of_toozs_own_tests(url: str) -> None:
    """The rest takes a minute: `make chaos`."""
    part = ["-k", "group or leader or election or shared"]
    outcome = run_suite(PACKAGE, SUITES, "no:cacheprovider", environment(url), arguments=part)
    assert len(outcome.passed) >= 40, outcome.failed
    assert set(outcome.failed) <= explained("tooz.md", "On etcd 3.5.1")


@pytest.mark.chaos
@pytest.mark.parametrize("run", ["On etcd 3.5.1", "On leasehold store"])
def test_toozs_own_tests(run: str) -> None:
    with EtcdCluster(1) if "etcd" in run else StoreProcess() as server:
        # One of the tests waits without end for a timeout that does not happen here.
        outcome = run_suite(PACKAGE, SUITES, "no:cacheprovider", environment(server.url), arguments=["--timeout=20"])
    check_explained(outcome, "tooz.md", run)
