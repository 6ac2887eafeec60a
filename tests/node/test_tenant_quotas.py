"""Tenant quotas over the admin port, with the answers of the C++ master; they survive a failover."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from uuid import uuid4

from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeGroup, NodeProcess
from leasehold.testing.workload import Lender, Putter

PATH = "/api/v1/tenant_quotas"


def _send(node: NodeProcess, method: str, query: str = "", body: object = None) -> tuple[int, dict[str, Any]]:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"http://{node.admin}{PATH}{query}", data=data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


async def test_a_quota_is_set_enforced_and_survives_a_failover(etcd: EtcdCluster, tmp_path: Path) -> None:
    cluster = f"c{uuid4().hex[:8]}"
    with NodeGroup(etcd.url, 2, cluster=cluster, folder=tmp_path, arguments=["--tenant-quotas", "true"]) as group:
        async with Lender(",".join(group.addresses), size=1 << 20):
            primary, tenant = group.primary(), "?tenant_id=default"
            putter = Putter(",".join(group.addresses), "k", size=4096)
            await putter.put_batch(1)
            assert putter.results.failures == [f"put_start {putter.key(0)}: -1701"]
            assert _send(primary, "GET") == (200, {"success": True, "data": []})
            assert _send(primary, "GET", tenant)[0] == 404
            status, answer = _send(primary, "PUT", tenant, {"requested_quota_bytes": 16384})
            assert (status, answer) == (
                200,
                {
                    "success": True,
                    "data": {
                        "tenant_id": "default", "requested_quota_bytes": 16384, "effective_quota_bytes": 16384,
                        "charged_bytes": 0, "admission_closed": False, "over_quota": False, "has_explicit_policy": True,
                    },
                },
            )  # fmt: skip
            await putter.put_batch(4)
            assert len(putter.results.acknowledged) == 4
            assert _send(primary, "DELETE", tenant)[1]["error_code"] == -1702
            primary.kill_worker()
            successor = group.primary()
            data = _send(successor, "GET", tenant)[1]["data"]
            assert (data["requested_quota_bytes"], data["charged_bytes"]) == (16384, 16384)
            for key in sorted(putter.results.acknowledged):
                await putter.remove(key)
            await putter.put_batch(5)
            assert putter.results.failures[-1].endswith(": -1700"), putter.results.failures
            for key in sorted(putter.results.acknowledged):
                await putter.remove(key)
            putter.close()
            assert _send(group.primary(), "DELETE", tenant)[1]["data"]["admission_closed"]


def test_bad_requests_and_quotas_that_are_off(etcd: EtcdCluster, tmp_path: Path) -> None:
    node = NodeProcess("memory://", "n1", data_dir=tmp_path / "n1")
    node.start()
    try:
        group = NodeGroup("memory://", 0, cluster="x", folder=tmp_path)
        group.nodes.append(node)
        group.primary()
        assert _send(node, "PUT", "?tenant_id=a", {"requested_quota_bytes": 1})[0] == 409
        assert _send(node, "PUT", "", {"requested_quota_bytes": 1})[0] == 400
        assert _send(node, "PUT", "?tenant_id=a", {"requested_quota_bytes": 0})[0] == 400
        status, answer = _send(node, "PUT", "?tenant_id=a", [])
        assert (status, answer["error_code"]) == (400, -600)
        assert answer["error_message"].startswith("Invalid JSON body")
    finally:
        node.stop()
