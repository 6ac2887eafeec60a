"""The queries of the Grafana board and of the alerts, on a real Prometheus that scrapes a cluster under load."""

from __future__ import annotations

import asyncio
import json
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml  # type: ignore[import-untyped]  # its types are a separate package

from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.load import Burst
from leasehold.testing.node import NodeGroup
from leasehold.testing.ports import free_ports
from leasehold.testing.process import MissingServer, ServerProcess, wait_until
from leasehold.testing.waiting import until
from leasehold.testing.workload import Lender
from leasehold.wire.client import Client
from leasehold.wire.schema import Failed

ROOT = Path(__file__).parents[1]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
BOARD = ROOT / "deploy" / "grafana" / "leasehold.json"
SEGMENT = 8 << 20

# Queries without a value while nothing is wrong: counters that appear with their first failure.
MAY_BE_EMPTY = ("leasehold_store_failures_total", "leasehold_refused_total")


class Prometheus(ServerProcess):
    """Scrapes the nodes several times a second, and evaluates the alerts."""

    def __init__(self, nodes: NodeGroup, folder: Path) -> None:
        program = shutil.which("prometheus")
        if program is None:
            raise MissingServer("no prometheus: install the Debian package (scripts/system-deps)")
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        config = {
            "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms", "evaluation_interval": "250ms"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [
                {"job_name": "leasehold", "static_configs": [{"targets": [node.admin for node in nodes.nodes]}]}
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        argv = [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        argv += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
        super().__init__("prometheus", argv, log_path=folder / "prometheus.log", probe=self._ready)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an expression. A wrong one is an error of HTTP."""
        found: list[dict[str, Any]] = self.get("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))[
            "result"
        ]
        return found


@pytest.fixture
def nodes(etcd: EtcdCluster, tmp_path: Path) -> Iterator[NodeGroup]:
    with NodeGroup(etcd.url, 2, cluster=f"c{uuid4().hex[:8]}", folder=tmp_path) as group:
        yield group


def board_queries() -> list[str]:
    board = json.loads(BOARD.read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


async def test_a_cluster_under_load_answers_every_query_of_the_board(nodes: NodeGroup, tmp_path: Path) -> None:
    folder = tmp_path / "prometheus"
    folder.mkdir()
    master = ",".join(nodes.addresses)
    with Prometheus(nodes, folder) as prometheus:
        async with Lender(master, size=SEGMENT), Burst(master, writers=2, batch=20):
            primary = await asyncio.to_thread(nodes.primary)
            await until(lambda: primary.status().index.evicted > 0, "the pool is full and evicts", poll_s=0.1)
            async with Client(master) as client:
                assert isinstance((await client.batch_get_replica_list(["absent"]))[0], Failed)
            unanswered: list[str] = []

            def every_query_has_a_value() -> bool:
                queries = [query for query in board_queries() if not any(name in query for name in MAY_BE_EMPTY)]
                unanswered[:] = [query for query in queries if not prometheus.query(query)]
                return not unanswered

            await asyncio.to_thread(wait_until, every_query_has_a_value, lambda: f"values for {unanswered}")
            for query in board_queries():
                prometheus.query(query)  # raises for one that Prometheus does not understand
        alerts = {rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]}
        rules = prometheus.get("/api/v1/rules")["groups"]
        assert {rule["name"] for group in rules for rule in group["rules"]} == alerts
        broken = [rule["lastError"] for group in rules for rule in group["rules"] if rule["health"] == "err"]
        assert broken == []
        # Two failovers and a worker that died: the counters of the guardian outlive the worker.
        for _ in range(2):
            victim = await asyncio.to_thread(nodes.primary)
            await asyncio.to_thread(victim.kill_worker)
            await asyncio.to_thread(nodes.settle)
        restarts = 'sum(leasehold_worker_restarts_total{job="leasehold"}) >= 2'
        await asyncio.to_thread(wait_until, lambda: bool(prometheus.query(restarts)), "both restarts are counted")
