"""`leasehold adopt`: the pool of a real `mooncake_master`, with real clients and their bytes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from tests.node.adopting import PoolUser, pool_user, run_adopt

from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.mooncake import MooncakeMaster
from leasehold.testing.node import NodeProcess
from leasehold.testing.process import wait_until
from leasehold.wire.sync import SyncClient

pytestmark = [pytest.mark.xdist_group("real_client"), pytest.mark.usefixtures("wheel")]

CLIENT_TTL_S = 60  # of the old master: long enough for a listing on a busy machine


def _old(master: MooncakeMaster) -> list[str]:
    return ["--from", master.rpc, "--from-admin", f"127.0.0.1:{master.admin_port}"]


def _target(etcd: EtcdCluster, cluster: str, folder: Path) -> list[str]:
    return ["--coord", etcd.url, "--cluster", cluster, "--data-dir", str(folder / "data")]


@contextmanager
def _adopted(
    etcd: EtcdCluster, cluster: str, folder: Path, master: MooncakeMaster, users: list[PoolUser]
) -> Iterator[NodeProcess]:
    """A node with the adopted index, at the old master's address. The users are stopped while it is adopted."""
    arguments = ["--rpc", master.rpc, "--client-ttl", "30s"]
    with NodeProcess(etcd.url, "a", cluster=cluster, data_dir=folder, arguments=arguments) as node:
        wait_until(node.is_primary, "the node leads")
        for user in users:
            os.kill(user.pid, signal.SIGCONT)
        wait_until(lambda: users[0].read("a", 1) == (1, 0, 0), "the clients have mounted their segments again")
        yield node


def _adopt_and_read(
    etcd: EtcdCluster, folder: Path, objects: int, cluster: str, flags: list[str], address: str
) -> None:
    """Fill a pool, adopt it under a trickle of writes and with an unfinished put, and read everything back."""
    more = ["--no-standbys"] if flags else []
    with MooncakeMaster(f"--client_ttl={CLIENT_TTL_S}", *flags) as master:
        entry = address or master.rpc
        with pool_user(entry, 128, cluster) as first, pool_user(entry, 128, cluster) as second:
            assert first.fill("a", objects) == objects
            SyncClient(master.rpc).put_start("unfinished", 1_000)
            assert second.ask("trickle t") == "ok"
            code, dry, errors = run_adopt(*_old(master), "--dry-run")
            assert (code, dry["adopted"]) == (0, False), errors
            assert dry["objects"] >= objects
            assert dry["unaligned"] > objects / 10
            target = _target(etcd, cluster, folder)
            end = ["--cut-over", "--pid", str(master.pid), *more]
            code, _, errors = run_adopt(*_old(master), *target, *end, "--wait", "1")
            assert code == 1
            assert "clients still reach the old master" in errors
            close = f"kill -STOP {first.pid} {second.pid}"
            code, done, errors = run_adopt(*_old(master), *target, *end, "--close", close)
            assert (code, done["calls_by_others"]) == (0, {}), errors
            assert done["objects"] + sum(done["dropped"].values()) == done["listed"]
            # The unfinished put, and perhaps one of the trickle that was stopped in the middle.
            assert sum(one["unlisted_bytes"] for one in done["segments"]) >= 1_000
            with _adopted(etcd, cluster, folder, master, [first, second]) as node:
                trickled = int(second.ask("halt"))
                acknowledged = objects + trickled
                for user in (first, second):
                    right, missing, wrong = map(
                        sum, zip(user.read("a", objects), user.read("t", trickled), strict=True)
                    )
                    assert (right + missing, wrong) == (acknowledged, 0)
                    assert right >= 0.995 * acknowledged, (right, acknowledged, done["dropped"])
                # Objects of the trickle that the new master acknowledged are not among the listed ones.
                assert right >= done["objects"]
                assert first.ask("put more-0") == "0"
                assert second.read("more", 1) == (1, 0, 0)
                line = node.history()[0]
                assert line.role == "adopt"
                assert f"adopted {done['objects']} of" in line.sentence


def test_every_object_is_adopted_with_its_bytes(etcd: EtcdCluster, tmp_path: Path) -> None:
    _adopt_and_read(etcd, tmp_path, 400, f"c{uuid4().hex[:8]}", [], "")


@pytest.mark.chaos
@pytest.mark.parametrize("op_log", [False, True])
def test_twenty_thousand_objects_are_adopted(etcd: EtcdCluster, tmp_path: Path, op_log: bool) -> None:
    cluster = f"c{uuid4().hex[:8]}"
    ha = ["--enable_ha=true", f"--etcd_endpoints={etcd.url.removeprefix('etcd://')}", f"--cluster_id={cluster}"]
    flags = [*ha, "--enable_oplog=true"] if op_log else []
    _adopt_and_read(etcd, tmp_path, 20_000, cluster, flags, etcd.url if op_log else "")


def test_a_stopped_master_is_not_dead(etcd: EtcdCluster, tmp_path: Path) -> None:
    """It would wake up and hand out the same memory."""
    cluster = f"c{uuid4().hex[:8]}"
    with MooncakeMaster() as master:
        target = [*_old(master), *_target(etcd, cluster, tmp_path), "--wait", "1"]
        code, _, errors = run_adopt(*target, "--cut-over", "--stop", f"kill -STOP {master.pid}")
        os.kill(master.pid, signal.SIGCONT)
        assert code == 1
        assert "not proven dead" in errors
        assert "--assume-dead" in errors
        assert not list(tmp_path.rglob("*.lsnap"))
        code, numbers, errors = run_adopt(*target, "--assume-dead", "--unverified")
        assert code == 0
        assert len(numbers["overrides"]) == 2
        assert "warning" in errors
        assert "gives up P3" in errors


def test_helpful_refusals(etcd: EtcdCluster, tmp_path: Path) -> None:
    with MooncakeMaster() as master:
        code, _, errors = run_adopt("--from", master.rpc, "--from-admin", master.rpc, "--dry-run")
        assert code == 1
        assert "--from-admin" in errors
        code, _, errors = run_adopt(*_old(master), "--data-dir", str(tmp_path), "--cut-over")
        assert code == 2
        assert "--pid" in errors
        code, _, errors = run_adopt(*_old(master))
        assert code == 2
        assert "--data-dir" in errors
    code, _, errors = run_adopt(*_old(master), "--dry-run")
    assert code == 1
    assert "does not answer" in errors
