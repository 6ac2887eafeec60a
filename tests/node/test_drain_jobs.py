"""Drain jobs over the admin port, with the answers of the C++ master; a successor goes on with them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from uuid import uuid4

from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeGroup, NodeProcess
from leasehold.testing.process import wait_until
from leasehold.testing.workload import Lender, Putter


def _send(node: NodeProcess, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"http://{node.admin}/api/v1/{path}", data=data)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


async def test_a_job_is_started_shown_resumed_and_cancelled(etcd: EtcdCluster, tmp_path: Path) -> None:
    with NodeGroup(etcd.url, 2, cluster=f"c{uuid4().hex[:8]}", folder=tmp_path) as group:
        master = ",".join(group.addresses)
        async with Lender(master, segments=2) as lender:
            one, two = (segment.name for segment in lender.segments)
            primary = group.primary()
            assert _send(primary, "drain_jobs", {"segments": []})[0] == 400
            assert _send(primary, "drain_jobs", {"segments": ["none"]})[1]["error_code"] == -101
            assert _send(primary, "drain_jobs/query?job_id=x")[0] == 400
            assert _send(primary, "drain_jobs/query?job_id=1-2")[1]["error_code"] == -1402

            status, started = _send(primary, "drain_jobs", {"segments": [one], "max_concurrency": 1})
            assert (status, started["success"], started["status"]) == (200, True, "CREATED")
            query = f"drain_jobs/query?job_id={started['job_id']}"
            wait_until(lambda: _send(primary, query)[1].get("status_name") == "SUCCEEDED", lambda: "it is empty")
            assert _send(primary, f"segments/status?segment={one}")[1]["status_name"] == "DRAINED"
            assert _send(primary, "drain_jobs", {"segments": [one]})[0] == 409

            putter = Putter(master, "k")
            await putter.put_batch(3)  # all on the other segment
            job = _send(primary, "drain_jobs", {"segments": [two], "max_concurrency": 1})[1]["job_id"]
            primary.kill_worker()
            successor = group.primary()
            shown = _send(successor, f"drain_jobs/query?job_id={job}")[1]
            assert (shown["status_name"], shown["segments"], shown["type_name"]) == ("RUNNING", [two], "DRAIN")
            assert _send(successor, f"segments/status?segment={two}")[1]["status_name"] == "DRAINING"
            assert _send(successor, f"drain_jobs/cancel?job_id={job}", {})[1]["status"] == "CANCELED"
            assert _send(successor, f"segments/status?segment={two}")[1]["status_name"] == "OK"
            putter.close()
