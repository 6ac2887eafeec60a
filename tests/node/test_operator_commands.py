"""The operator's commands on a running cluster, with their exit codes and their trail in the history."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.node.commands import answer, leasehold
from tests.node.test_doctor import FEW_CONNECTIONS, storage_host

from leasehold.pool.pool import Pool
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeGroup
from leasehold.testing.process import wait_until


@pytest.fixture(scope="module")
def nodes(etcd: EtcdCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeGroup]:
    folder = tmp_path_factory.mktemp("nodes")
    cluster = f"c{uuid4().hex[:8]}"
    arguments = [*FEW_CONNECTIONS, "--lease-ttl", "10m"]  # so that a lease outlives a slow test
    with NodeGroup(etcd.url, 2, cluster=cluster, folder=folder, arguments=arguments) as group:
        yield group


def admin(nodes: NodeGroup) -> list[str]:
    return ["--admin", ",".join(node.admin for node in nodes.nodes)]


def orders(nodes: NodeGroup) -> list[str]:
    return [line.sentence for line in nodes.primary().history() if line.role == "order"]


async def _put(nodes: NodeGroup, count: int) -> None:
    async with Pool(",".join(nodes.addresses)) as pool:
        for number in range(count):
            await pool.put(f"k/{number}", b"value")
        await pool.put("removed", b"value")
        await pool.remove("removed")
        assert await pool.get("k/1") == b"value"


def test_objects_and_hosts(nodes: NodeGroup, tmp_path: Path) -> None:
    nodes.revive()
    at = admin(nodes)
    with storage_host(",".join(nodes.addresses), tmp_path) as port:
        name = f"127.0.0.1:{port}"
        wait_until(lambda: nodes.primary().status().index.segments == 1, "the host's segment is mounted")
        asyncio.run(_put(nodes, 7))
        # by pages: every object once
        seen, after = [], ""
        while True:
            page = answer("objects", "list", "--prefix", "k/", "--limit", "3", "--after", after, *at)
            seen += [each["key"] for each in page["objects"]]
            if not (after := page["next"]):
                break
        assert sorted(seen) == [f"k/{number}" for number in range(7)]
        assert len(answer("objects", "list", *at)["objects"]) == 7
        assert leasehold("objects", "list", "--after", "nonsense", *at).returncode == 1

        shown = answer("objects", "show", "k/1", *at)
        assert (shown["size"], shown["state"], shown["replicas"][0]["segment"]) == (5, "readable", name)
        assert shown["lease_left_ms"] > 0
        assert leasehold("objects", "show", "removed", *at).returncode == 5
        assert "a lease protects it" in leasehold("objects", "why", "k/1", *at).stdout
        gone = leasehold("objects", "why", "removed", *at)
        assert (gone.returncode, "it was removed (remove)" in gone.stdout) == (5, True)
        assert leasehold("objects", "why", "never", *at).returncode == 5

        (host,) = answer("hosts", "list", *at)["hosts"]
        assert (host["name"], host["state"]) == (name, "mounted")
        refused = leasehold("hosts", "remove", name, *at)
        assert (refused.returncode, "still has objects" in refused.stderr) == (1, True)
        unknown = leasehold("hosts", "drain", "unknown", *at)
        assert (unknown.returncode, "SEGMENT_NOT_FOUND" in unknown.stderr) == (5, True)
        job = answer("hosts", "drain", name, *at)
        assert answer("hosts", "list", *at)["hosts"][0]["state"] == "draining"
        assert answer("hosts", "cancel", job["job_id"], *at)["status_name"] == "CANCELED"
        assert answer("hosts", "remove", name, "--force", *at)["done"]
        assert answer("hosts", "list", *at)["hosts"] == []
        assert "its segment was unmounted" in leasehold("objects", "why", "k/1", *at).stdout
    trail = " | ".join(orders(nodes))
    for order in ("hosts remove {", "drain_jobs {", "drain_jobs cancel job_id="):
        assert order in trail


def test_settings_and_log_level(nodes: NodeGroup, tmp_path: Path) -> None:
    nodes.revive()
    at = admin(nodes)
    file = tmp_path / "leasehold.toml"
    file.write_text('[index]\nlease_ttl = "7s"\n[wire]\nconnections_max = 100\n[guardian]\nheld_connections_max = 32\n')
    assert answer("config", "diff", *at) == []
    (found,) = [
        each for each in answer("config", "diff", "--file", str(file), *at, exits=(3,)) if "lease" in each["name"]
    ]
    assert found["values"] == {"n1": "10m", "n2": "10m", "file": "7s"}
    changed = {each["name"] for each in answer("config", "show", "--changed", "--node", "n2", *at)["settings"]}
    assert {"node.name", "wire.connections_max"} <= changed
    assert "index.client_ttl" not in changed
    file.write_text('[node]\ncoord = "etcd://127.0.0.1:2379"\n')
    assert leasehold("config", "check", str(file)).returncode == 0
    file.write_text('[ha]\ndurability = "async"\n[node]\ncoord = "etcd://127.0.0.1:2379"\n')
    assert leasehold("config", "check", str(file)).returncode == 3
    file.write_text('[ha]\nleader_ttl = "1s"\n')
    assert leasehold("config", "check", str(file)).returncode == 2
    file.write_text("[ha]\nleader_tlt = 1\n")
    assert "leader_ttl" in leasehold("config", "check", str(file)).stderr

    assert [each["level"] for each in answer("log", "level", *at)] == ["info", "info"]
    assert answer("log", "level", "debug", "--node", "n1", *at) == [
        {"node": "n1", "level": "debug", "configured": "info"}
    ]
    assert answer("log", "level", "info", *at)[0]["level"] == "info"
    assert leasehold("log", "level", "loud", *at).returncode == 2
    assert leasehold("log", "level", "debug", "--node", "unknown", *at).returncode == 5


def test_restart_and_reinit_of_nodes(nodes: NodeGroup) -> None:
    nodes.revive()
    at = admin(nodes)
    primary, standby = nodes.primary(), nodes.standbys()[0]
    refused = leasehold("nodes", "reinit", primary.node_name, "--yes", *at)
    assert (refused.returncode, "switch over first" in refused.stderr) == (1, True)
    assert leasehold("nodes", "reinit", standby.node_name, *at).returncode == 1, "there is no terminal for its question"
    before = standby.status().run
    assert answer("nodes", "reinit", standby.node_name, "--yes", *at)["done"]
    wait_until(lambda: standby.status().run != before and standby.is_standby(), "it has another worker")

    before = primary.status().run
    assert answer("nodes", "restart", primary.node_name, *at)["done"]
    wait_until(standby.is_primary, "the other node leads")
    wait_until(lambda: primary.status().run != before and primary.is_standby(), "it is a standby now")
    assert primary.running, "its guardian was not restarted"
    assert {each["state"] for each in answer("nodes", "list", *at)} == {"primary", "standby"}
    trail = " | ".join(orders(nodes))
    assert "reinit, ordered by" in trail
    assert "restart {" in trail


def test_a_dead_node_is_removed_and_a_leader_is_forced(nodes: NodeGroup) -> None:
    nodes.revive()
    victim, survivor = nodes.primary(), nodes.standbys()[0]
    at = ["--admin", survivor.admin]
    assert leasehold("failover", "--force", "--yes", *at).returncode == 1, "a node leads"
    assert leasehold("failover", *at).returncode == 2
    assert leasehold("pause", *at).returncode == 0
    victim.kill_host()
    wait_until(lambda: survivor.cluster_status().leader == "", "the leader key expires")
    assert leasehold("status", *at).returncode == 4
    assert leasehold("objects", "list", *at).returncode == 1
    assert leasehold("failover", "--force", *at).returncode == 1, "there is no terminal for its question"
    assert answer("failover", "--force", "--yes", *at)["done"]
    assert leasehold("resume", *at).returncode == 0
    wait_until(survivor.is_primary, "the survivor leads")
    wait_until(lambda: bool(survivor.cluster_status().dead), "the registration expires")
    listed = {each["name"]: each["state"] for each in answer("nodes", "list", *at, exits=(3,))}
    assert listed == {victim.node_name: "dead", survivor.node_name: "primary"}
    refused = leasehold("nodes", "remove", survivor.node_name, *at)
    assert (refused.returncode, "stop it first" in refused.stderr) == (1, True)
    refused = leasehold("nodes", "restart", survivor.node_name, *at)
    assert (refused.returncode, "no other node is ready" in refused.stderr) == (1, True)
    assert answer("nodes", "remove", victim.node_name, *at)["done"]
    assert [each["name"] for each in answer("nodes", "list", *at)] == [survivor.node_name]
    names = {order.split(",")[0].split(" {")[0] for order in orders(nodes)}
    assert names >= {"pause", "resume", "force", "nodes remove", "restart"}
