"""`leasehold doctor` on real clusters: nothing on a healthy one, and each planted problem with its remedy."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import shutil
import socket
import sys
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

from tests.node.commands import answer, leasehold

from leasehold.coord.connect import connect
from leasehold.ha.keys import Keys, LeaderValue, pack
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeGroup, NodeProcess
from leasehold.testing.ports import free_ports, listens
from leasehold.testing.process import ServerProcess, wait_until
from leasehold.testing.proxy import TcpProxy
from leasehold.testing.waiting import until
from leasehold.wire.frame import request

# Below the limit of descriptors of every machine.
FEW_CONNECTIONS = ["--connections-max", "100", "--held-connections-max", "32"]


def findings(*admin: str) -> dict[str, dict[str, str]]:
    """The findings by kind; each must say why it matters and what to type."""
    found = answer("doctor", "--admin", ",".join(admin), exits=(0, 3))["findings"]
    for finding in found:
        assert all(finding[field] for field in ("what", "why", "remedy")), finding
    return {finding["check"]: finding for finding in found}


@contextlib.contextmanager
def storage_host(master: str, folder: Path, *arguments: str) -> Iterator[int]:
    """A storage host on a port of its own."""
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "leasehold", "host", "--segment", "16MiB", "--listen", f"127.0.0.1:{port}"]
    command += ["--master", master, *arguments]
    with ServerProcess("host", command, log_path=folder / f"host-{port}.log", probe=partial(listens, port)):
        yield port


def test_a_healthy_cluster_has_no_findings(etcd: EtcdCluster, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s" * 40)  # so that the host accepts a probe only with a capability
    secret = ["--cluster-secret-file", str(tmp_path / "secret")]
    arguments = [*FEW_CONNECTIONS, *secret]
    with (
        NodeGroup(etcd.url, 2, cluster=f"c{uuid4().hex[:8]}", folder=tmp_path, arguments=arguments) as nodes,
        storage_host(",".join(nodes.addresses), tmp_path, *secret),
    ):
        wait_until(lambda: nodes.primary().status().index.segments == 1, "the host's segment is mounted")
        for _ in range(2):  # the first one leaves no trace that the second finds
            done = leasehold("doctor", "--admin", ",".join(node.admin for node in nodes.nodes))
            assert (done.returncode, "no problems found" in done.stdout) == (0, True), done.stdout
        assert leasehold("status", "--admin", nodes.nodes[0].admin).returncode == 0


def test_planted_misconfigurations_of_nodes_are_found(etcd: EtcdCluster, tmp_path: Path) -> None:
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    assert library is not None, "libfaketime is missing: run scripts/system-deps as root"
    (tmp_path / "sitecustomize.py").write_text("import leasehold\nleasehold.__version__ = '0.0.9'\n")
    bad_env = {"PYTHONPATH": str(tmp_path), "LD_PRELOAD": str(library), "FAKETIME": "+3600s x1.2"}
    bad_times = ["--lease-ttl", "5s", "--leader-ttl", "1s", "--flush-interval", "200ms", "--leader-margin", "50ms"]
    cluster = f"c{uuid4().hex[:8]}"
    good = NodeProcess(etcd.url, "good", cluster=cluster, data_dir=tmp_path / "good", arguments=FEW_CONNECTIONS)
    bad = NodeProcess(
        etcd.url, "bad", cluster=cluster, data_dir=tmp_path / "bad", arguments=[*FEW_CONNECTIONS, *bad_times],
        env=bad_env,
    )  # fmt: skip
    with good:
        wait_until(good.is_primary, "the first node leads")
        with bad:
            wait_until(bad.is_standby, "the second node is ready", 120)
            found = findings(good.admin, bad.admin)
            assert found.keys() >= {"settings", "lease-times", "clock-drift", "wall-clock", "versions"}, found
            assert "longer than an election" in found["lease-times"]["what"]
            assert "leasehold config diff" in found["settings"]["remedy"]
            assert "docs/upgrade.md" in found["versions"]["remedy"]
            assert "360" in found["wall-clock"]["what"]
            assert "chrony" in found["wall-clock"]["remedy"]
            shown = leasehold("status", "--admin", good.admin)
            assert shown.returncode == 3
            assert "different values of index.lease_ttl" in " ".join(shown.stdout.split())
        wait_until(good.is_primary, "the first node leads, if it did not")
        _plant_on_a_running_node(good, tmp_path)


def _plant_on_a_running_node(node: NodeProcess, folder: Path) -> None:
    """Each problem is found when it is there. The other node was killed, so it is dead."""
    assert "no-standby" in findings(node.admin)
    wait_until(lambda: "dead-node" in findings(node.admin), "the registration of the dead node expires")
    resource.prlimit(node.worker_pid, resource.RLIMIT_NOFILE, (200, 200))
    shutil.rmtree(node.data_dir / "data")
    assert leasehold("pause", "--admin", node.admin).returncode == 0
    with socket.create_connection(("127.0.0.1", node.rpc_port), timeout=20) as client:
        client.sendall(request(7, 0x12345678, b"newer"))
        client.recv(1)
    with storage_host(node.rpc, folder, "--connections-max", "1") as port:
        wait_until(lambda: node.status().index.segments == 1, "the host's segment is mounted")
        with socket.create_connection(("127.0.0.1", port), timeout=20):
            wait_until(lambda: "storage-host" in findings(node.admin), "the host's only connection is taken")
            found = findings(node.admin)
        assert found.keys() >= {"file-descriptors", "disk-unwritable", "paused", "client-release"}, found
        assert "LimitNOFILE" in found["file-descriptors"]["remedy"]
        assert "leasehold nodes restart good" in found["disk-unwritable"]["remedy"]
        assert "leasehold resume" in found["paused"]["remedy"]
        assert "upgrade Leasehold" in found["client-release"]["remedy"]
        assert f"leasehold hosts drain 127.0.0.1:{port}" in found["storage-host"]["remedy"]
        wait_until(lambda: "storage-host" not in findings(node.admin), "the connection was closed")


async def test_planted_problems_of_the_store_are_found(tmp_path: Path) -> None:
    cluster = f"c{uuid4().hex[:8]}"
    async with EtcdCluster(1) as etcd, TcpProxy(etcd.nodes[0].endpoint) as proxy, await connect(etcd.url) as coord:
        node = NodeProcess(
            f"etcd://{proxy.endpoint}", "a", cluster=cluster, data_dir=tmp_path, arguments=FEW_CONNECTIONS
        )
        key = Keys(cluster).leader
        stranger = await coord.lease_grant(600)
        await coord.put(key, pack(LeaderValue("stranger", "run")), lease=stranger.id)
        await asyncio.to_thread(node.start)
        try:
            await until(lambda: asyncio.to_thread(_finds, node, "leader-key"))
            found = await asyncio.to_thread(findings, node.admin)
            assert "'stranger'" in found["leader-key"]["what"]
            assert f"etcdctl del {key.decode()}" in found["leader-key"]["remedy"]
            await coord.delete(key)
            await asyncio.to_thread(wait_until, node.is_primary, "the node leads")
            assert "leader-key" not in await asyncio.to_thread(findings, node.admin)

            proxy.delay(0.1)
            await until(lambda: asyncio.to_thread(_finds, node, "store-slow"))
            proxy.heal()

            await asyncio.to_thread(_switch_alarm, etcd, "ACTIVATE")
            found = await asyncio.to_thread(findings, node.admin)
            assert "etcdctl alarm disarm" in found["store-alarm"]["remedy"]
            await asyncio.to_thread(_switch_alarm, etcd, "DEACTIVATE")

            proxy.cut()
            found = await asyncio.to_thread(findings, node.admin)
            assert "etcdctl endpoint health" in found["store-unreachable"]["remedy"]
        finally:
            node.kill()


def _finds(node: NodeProcess, check: str) -> bool:
    return check in findings(node.admin)


def _switch_alarm(etcd: EtcdCluster, action: str) -> None:
    body = f'{{"action": "{action}", "memberID": 0, "alarm": "NOSPACE"}}'.encode()
    url = f"http://{etcd.nodes[0].endpoint}/v3/maintenance/alarm"
    with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=20) as done:
        assert done.status == 200


def test_no_answer_is_a_failure_and_not_a_finding() -> None:
    done = leasehold("doctor", "--admin", f"127.0.0.1:{free_ports(1)[0]}")
    assert (done.returncode, "no node answers" in done.stderr) == (1, True)


def test_wrong_usage() -> None:
    assert leasehold("doctor", "--admin", "nonsense").returncode == 2
