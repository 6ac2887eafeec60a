"""Two nodes with the same name: the second is rejected while the first runs, and only then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeGroup, NodeProcess
from leasehold.testing.process import wait_until


def test_a_second_node_with_the_same_name_is_rejected_while_the_first_runs(
    pair: NodeGroup, etcd: EtcdCluster, tmp_path: Path
) -> None:
    first = pair.primary()
    status = first.status()
    command = [sys.executable, "-m", "leasehold", "node", "--name", status.name, "--cluster", status.cluster]
    command += ["--coord", etcd.url, "--rpc", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert (
        f"name = '{status.name}': another node with this name runs at {first.admin} (pid {status.pid})" in done.stderr
    )
    assert first.is_primary()


def test_a_dead_node_may_be_started_elsewhere_immediately(pair: NodeGroup, etcd: EtcdCluster, tmp_path: Path) -> None:
    died = pair.standbys()[0]
    name, cluster = died.status().name, died.status().cluster
    died.kill_host()  # its registration exists until its lease expires
    with NodeProcess(etcd.url, name, cluster=cluster, data_dir=tmp_path / "elsewhere") as node:
        wait_until(node.is_standby, "it is ready")
