"""A cluster with mutual TLS on every port of ours: two nodes, store, storage host, cache, command line, metadata."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from leasehold.pool.pool import Pool
from leasehold.runtime.certificates import CertificateFolder
from leasehold.runtime.tls import Tls
from leasehold.testing.node import NodeProcess
from leasehold.testing.ports import free_ports, listens
from leasehold.testing.process import ServerProcess, wait_until
from leasehold.testing.store import StoreProcess
from leasehold.testing.waiting import until


def files(folder: Path, name: str) -> dict[str, str]:
    return {"cert": str(folder / f"{name}.pem"), "key": str(folder / f"{name}.key"), "ca": str(folder / "ca.pem")}


def flags(folder: Path, name: str) -> list[str]:
    return [word for kind, path in files(folder, name).items() for word in (f"--tls-{kind}", path)]


@dataclass
class Cluster:
    """Everything is on loopback, in processes of their own."""

    pki: Path
    nodes: list[NodeProcess]
    ports: dict[str, int]

    def primary(self) -> NodeProcess:
        found: list[NodeProcess] = []

        def there_is() -> bool:
            found[:] = [node for node in self.nodes if node.running and node.is_primary()]
            return bool(found)

        wait_until(there_is, lambda: "\n".join(node.log_tail(20) for node in self.nodes))
        return found[0]

    @property
    def secure_masters(self) -> str:
        return f"127.0.0.1:{self.ports['rpc 1']},127.0.0.1:{self.ports['rpc 2']}"

    def run(self, *arguments: str, name: str = "operator") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "leasehold", *arguments, *flags(self.pki, name)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    authority = CertificateFolder(folder)
    authority.make_authority()
    authority.issue("server", ["127.0.0.1", "localhost"], 2)
    for name in ("operator", "prometheus"):
        authority.issue(name, [], 2)
    authority.issue("expired", [], -1)
    return folder


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another authority, with the same names."""
    folder = tmp_path_factory.mktemp("foreign")
    authority = CertificateFolder(folder)
    authority.make_authority()
    authority.issue("operator", [], 2)
    return folder


@pytest.fixture(scope="module")
def cluster(pki: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    operator = Tls(**files(pki, "operator"))
    server = files(pki, "server")
    store_flags = ["--tls-cert", server["cert"], "--tls-key", server["key"], "--tls-client-ca", server["ca"]]
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(StoreProcess(data_dir=folder / "store", arguments=store_flags))
        coord = f"etcds://{store.endpoint}?ca={server['ca']}&cert={server['cert']}&key={server['key']}"
        ports: dict[str, int] = {"store": store.port}
        nodes = []
        name = f"c{uuid4().hex[:8]}"
        for number in (1, 2):
            rpc, door, metadata = free_ports(3)
            ports.update({f"rpc {number}": rpc, f"door {number}": door, f"metadata {number}": metadata})
            arguments = ["--rpc-tls", f"127.0.0.1:{rpc}", "--forward", f"127.0.0.1:{door}", *flags(pki, "server")]
            arguments += ["--metadata-server", f"127.0.0.1:{metadata}", "--tls-metadata", "true"]
            data = folder / f"n{number}"
            node = NodeProcess(coord, f"n{number}", cluster=name, data_dir=data, arguments=arguments, tls=operator)
            node.spawn()
            stack.callback(node.kill)
            ports[f"admin {number}"] = node.admin_port
            nodes.append(node)
        for node in nodes:
            node.wait_ready()
        found = Cluster(pki, nodes, ports)
        found.primary()
        ports["host"], ports["cache"] = free_ports(2)
        host = [
            "host",
            "--segment",
            "64MiB",
            "--listen",
            f"127.0.0.1:{ports['host']}",
            "--master",
            found.secure_masters,
        ]
        cache = ["cache", "serve", "--listen", f"127.0.0.1:{ports['cache']}"]
        for title, arguments in (("host", host), ("cache", cache)):
            command = [sys.executable, "-m", "leasehold", *arguments, *flags(pki, "server")]
            up = functools.partial(listens, ports[title])
            process = ServerProcess(title, command, log_path=folder / f"{title}.log", probe=up)
            stack.enter_context(process)
        wait_until(lambda: found.primary().status().index.segments == 1, "the host's segment is mounted")
        yield found


async def test_a_cluster_works_over_mutual_tls(cluster: Cluster) -> None:
    async with Pool(cluster.secure_masters, tls=Tls(**files(cluster.pki, "operator"))) as pool:
        await pool.put("key", b"value")
        assert await pool.get("key") == b"value"
    cache = ["--server", f"127.0.0.1:{cluster.ports['cache']}"]
    assert cluster.run("cache", "put", "k", "v", *cache).returncode == 0
    assert cluster.run("cache", "get", "k", *cache).stdout == "v\n"
    admin = ["--admin", cluster.nodes[0].admin]
    shown = cluster.run("status", *admin, name="prometheus")
    assert (shown.returncode, "does not answer" in shown.stdout) == (0, False), shown.stdout + shown.stderr
    watched = cluster.run("top", "--once", *admin, name="prometheus")
    assert (watched.returncode, " leads, epoch " in watched.stdout) == (0, True), watched.stdout + watched.stderr
    refused = cluster.run("pause", *admin, name="prometheus")
    assert (refused.returncode, "'prometheus' has only 'read'" in refused.stderr) == (1, True)
    assert cluster.run("pause", *admin).returncode == 0
    assert cluster.run("resume", *admin).returncode == 0
    assert "ordered by operator from" in cluster.nodes[0].history()[-1].sentence


async def test_a_standby_forwards_over_tls(cluster: Cluster) -> None:
    """Plain clients may connect to any node; between the nodes their bytes are encrypted."""
    standby = next(node for node in cluster.nodes if node is not cluster.primary())
    async with Pool(standby.rpc) as pool:
        assert await pool.exists("nothing") is False


def test_certificates_that_expire_soon_are_found_by_handshake(cluster: Cluster) -> None:
    """Those of this cluster are valid for two days: of both admin ports, the store and the storage host."""
    done = cluster.run("doctor", "--json", "--admin", cluster.primary().admin)
    assert done.returncode == 3, done.stdout + done.stderr
    found = [each for each in json.loads(done.stdout)["findings"] if each["check"] == "certificate"]
    assert len(found) == 4, found
    assert all("leasehold certs DIRECTORY --server" in each["remedy"] for each in found)


def context(folder: Path, name: str) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=folder / "ca.pem")
    if name:
        made.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return made


def talks(port: int, with_context: ssl.SSLContext | None) -> bool:
    """Whether a server answers with anything; a refusal may come only after the client's side of the handshake."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
        try:
            sock = with_context.wrap_socket(plain, server_hostname="127.0.0.1") if with_context else plain
            sock.sendall(b"GET /api/status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            return bool(sock.recv(100).removeprefix(b"HTTP/1.1 401")) and sock is not plain
        except OSError:
            return False


def test_a_wrong_certificate_is_refused_on_every_port(cluster: Cluster, pki: Path, foreign: Path) -> None:
    trusting = context(pki, "")
    trusting.load_cert_chain(foreign / "operator.pem", foreign / "operator.key")
    callers = {"plain": None, "missing": context(pki, ""), "expired": context(pki, "expired"), "foreign": trusting}
    for port, number in cluster.ports.items():
        for caller, made in callers.items():
            if (port.startswith("admin"), caller) == (True, "missing"):
                continue  # below
            assert not talks(number, made), (port, caller)
        with pytest.raises(OSError), socket.create_connection(("127.0.0.1", number)) as plain:
            context(foreign, "operator").wrap_socket(plain, server_hostname="127.0.0.1")


def test_probes_work_without_a_certificate_and_nothing_else_does(cluster: Cluster) -> None:
    """As kubelet sends them: over HTTPS, without a client certificate."""

    def code(path: str) -> int:
        url = f"https://{cluster.nodes[0].admin}{path}"
        try:
            with urllib.request.urlopen(url, timeout=20, context=context(cluster.pki, "")) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    assert [code(path) for path in ("/health", "/ready")] == [200, 200]
    assert [code(path) for path in ("/api/status", "/metrics", "/api/export")] == [401, 401, 401]


async def test_certificates_are_replaced_under_load(cluster: Cluster, pki: Path) -> None:
    """New certificates of the same authority: no call fails, and new connections get the new ones."""
    calls, stop = 0, asyncio.Event()

    async def load(name: str) -> None:
        nonlocal calls
        tls = Tls(**files(pki, "operator"))
        while not stop.is_set():
            async with Pool(cluster.secure_masters, tls=tls) as pool:
                key = f"{name}{calls % 10}"
                await pool.put(key, b"v", replace=True)
                assert await pool.get(key) == b"v"
            calls += 1

    def has_more_than(count: int) -> bool:
        return calls > count or any(each.done() for each in loads)

    def serial(port: int) -> str:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
            context(pki, "operator").wrap_socket(plain, server_hostname="127.0.0.1") as sock,
        ):
            return str((sock.getpeercert() or {}).get("serialNumber"))

    primary = cluster.primary().node_name[-1]
    served = {
        name: port
        for name, port in cluster.ports.items()
        if not name.startswith(("rpc", "door")) or name[-1] == primary
    }
    before = {name: serial(port) for name, port in served.items()}
    loads = [asyncio.create_task(load(name)) for name in "ab"]
    authority = CertificateFolder(pki)
    for _ in range(2):
        for name, hosts in (("server", ["127.0.0.1", "localhost"]), ("operator", [])):
            await asyncio.to_thread(authority.issue, name, hosts, 2)
        await until(functools.partial(has_more_than, calls + 5), "the load goes on")

    def all_new() -> bool:
        return all(serial(port) != before[name] for name, port in served.items())

    await asyncio.to_thread(wait_until, all_new, "every port serves the new certificate")
    stop.set()
    await asyncio.gather(*loads)


def test_no_secret_is_in_any_output(cluster: Cluster, pki: Path) -> None:
    secrets = [line for name in ("server", "operator") for line in (pki / f"{name}.key").read_text().splitlines()[1:-1]]
    node = cluster.nodes[0]
    output = node.log_path.read_text() + Path(f"/proc/{node.pid}/cmdline").read_text()
    for path in ("/api/status", "/api/history", "/metrics", "/api/cluster"):
        output += node.http(path)[1].decode()
    assert not [secret for secret in secrets if secret in output]


def test_wrong_files_are_named(tmp_path: Path, pki: Path) -> None:
    def refusal(*arguments: str) -> str:
        command = [sys.executable, "-m", "leasehold", "node", "--data-dir", str(tmp_path / "data"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=dict(os.environ))
        assert done.returncode in (1, 2), done.stdout
        return done.stderr

    assert "tls_cert and tls_key belong together" in refusal("--tls-cert", str(pki / "server.pem"))
    swapped = refusal("--tls-cert", str(pki / "server.pem"), "--tls-key", str(pki / "operator.key"))
    assert "are not a certificate and its key" in swapped
    assert "tls_ca" in refusal("--tls-ca", str(tmp_path / "none"))
    assert "needs tls_cert and tls_key" in refusal("--rpc-tls", "127.0.0.1:0")
    assert json.dumps(swapped).count("PRIVATE") == 0
