"""Mooncake's real client with our metadata server: what the table survives, and who may register."""

from __future__ import annotations

import os
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from uuid import uuid4

import pytest

from leasehold.testing import mooncake
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeGroup, NodeProcess
from leasehold.testing.ports import free_ports
from leasehold.testing.process import wait_until

pytestmark = [pytest.mark.xdist_group("real_client"), pytest.mark.usefixtures("wheel")]

CLIENT = Path(__file__).parent / "clients" / "metadata.py"
OBJECTS = 30
BAD_SETUP = -600  # of the real client, also with the real master


class Client:
    """One real client process. `code` is the result of its setup."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.code = int(self._answer())

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def ask(self, line: str) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return int(self._answer())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def client(node: NodeProcess, name: str, master: str, segment_mib: int) -> Iterator[Client]:
    url = f"http://127.0.0.1:{node.metadata_port}/metadata"
    process = subprocess.Popen(
        [str(mooncake.venv() / "bin" / "python"), str(CLIENT), name, url, master, str(segment_mib)],
        env={**os.environ, **mooncake.client_environment()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield Client(process)
    finally:
        process.kill()
        process.wait()


def entry(node: NodeProcess, kind: str, name: str) -> int:
    """The HTTP status of one of the two keys of a transfer engine."""
    key = urllib.parse.quote(f"mooncake/{kind}/{name}", safe="")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{node.metadata_port}/metadata?key={key}", timeout=20) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_a_reader_that_starts_after_kill_9_reads_every_object(etcd: EtcdCluster, tmp_path: Path) -> None:
    """The table used to die with the worker: objects existed, and no new process could read them."""
    lender_port, first_port, second_port = free_ports(3)
    arguments = ["--client-ttl", "4s"]
    name = f"127.0.0.1:{lender_port}"
    with (
        NodeGroup(
            etcd.url, 2, cluster=f"c{uuid4().hex[:8]}", folder=tmp_path, arguments=arguments, metadata=True
        ) as nodes,
        client(nodes.nodes[0], name, nodes.nodes[0].rpc, 64) as lender,
    ):
        assert (lender.code, lender.ask(f"put k {OBJECTS}")) == (0, OBJECTS)
        victim = nodes.primary()
        victim.kill_worker()
        wait_until(lambda: nodes.primary() is not victim, "the other node leads")
        nodes.settle()
        successor = nodes.primary()
        with client(successor, f"127.0.0.1:{first_port}", successor.rpc, 0) as reader:
            assert (reader.code, reader.ask(f"get k {OBJECTS}")) == (0, OBJECTS)
        with client(victim, f"127.0.0.1:{second_port}", successor.rpc, 0) as reader:  # every node serves the table
            assert (reader.code, reader.ask(f"get k {OBJECTS}")) == (0, OBJECTS)
        lender.kill()
        wait_until(lambda: entry(victim, "rpc_meta", name) == 404, "the address of the dead client is deleted")
        assert entry(successor, "ram", name) == 404


def test_a_second_process_is_refused_and_a_restarted_one_gets_in(etcd: EtcdCluster, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    name = f"127.0.0.1:{port}"
    with NodeGroup(
        etcd.url, 2, cluster=f"c{uuid4().hex[:8]}", folder=tmp_path, arguments=["--client-ttl", "60s"], metadata=True
    ) as nodes:
        primary, standby = nodes.primary(), nodes.standbys()[0]
        with client(primary, name, primary.rpc, 64) as owner:
            assert owner.code == 0
            for node in (primary, standby):
                with client(node, name, primary.rpc, 64) as second:
                    assert second.code == BAD_SETUP
                assert entry(node, "rpc_meta", name) == 200, "the refused process deletes this key: not with us"
            assert owner.ask("put k 1") == 1
            owner.kill()
            with client(standby, name, primary.rpc, 64) as restarted:  # long before the client TTL
                assert (restarted.code, restarted.ask("put l 1"), restarted.ask("get l 1")) == (0, 1, 1)
