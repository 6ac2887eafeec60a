"""The test kit's own servers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from leasehold.testing.certificates import CertificateAuthority
from leasehold.testing.etcd import EtcdBinary, EtcdCluster, etcd_binaries
from leasehold.testing.process import ServerFailed, ServerProcess, wait_until


@pytest.mark.parametrize("binary", etcd_binaries(), ids=str)
def test_every_etcd_at_hand_starts_is_killed_and_comes_back(binary: EtcdBinary) -> None:
    with EtcdCluster(1, binary=binary) as cluster:
        node = cluster.nodes[0]
        assert cluster.leader() is node
        node.kill()
        assert not node.running
        node.start()
        wait_until(node.healthy, "it answers again")


def test_a_frozen_node_answers_nothing_until_thawed(etcd: EtcdCluster) -> None:
    node = etcd.nodes[0]
    node.freeze()
    assert not node.healthy()
    node.thaw()
    wait_until(node.healthy, "it answers again")


def test_a_cluster_over_tls_demands_certificates() -> None:
    with EtcdCluster(1, authority=CertificateAuthority(), client_certificates=True) as cluster:
        assert cluster.url.startswith("etcds://")
        wait_until(cluster.nodes[0].healthy, "it answers to one who has them")


def test_a_server_that_exits_at_start_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    server = ServerProcess(
        "a server", ["/bin/sh", "-c", "echo no data here; exit 3"], log_path=tmp_path / "log", probe=lambda: False
    )
    with pytest.raises(ServerFailed, match="no data here"):
        server.start()


def test_ports_are_free_and_outside_the_range_of_outgoing_connections() -> None:
    from leasehold.testing.ports import free_ports

    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in free_ports(5):
        assert port < low
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # old connections may not be forgotten yet
            probe.bind(("127.0.0.1", port))
