"""The processes of a run: three etcd members, three nodes, storage hosts and Mooncake's clients."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from leasehold.runtime.clock import boot_ns
from leasehold.testing import mooncake
from leasehold.testing.chaos.network import CLIENTS, Network
from leasehold.testing.chaos.sandbox import run
from leasehold.testing.etcd import EtcdCluster, etcd_binary
from leasehold.testing.node import NodeGroup, NodeProcess
from leasehold.testing.ports import free_ports
from leasehold.testing.process import ServerFailed, ServerProcess, wait_until
from leasehold.wire.finder import parse_address

NODES = 3
DISK = "96m"  # of each node's snapshots, on a file system of its own
FLAGS = (
    "--lease-ttl", "4s", "--client-ttl", "60s", "--hold-timeout", "60s", "--snapshot", "5s",
    "--snapshot-records", "3000",
)  # fmt: skip
OPERATOR = "operate chaos {token}\n"
SEGMENT = "256MiB"
_FAKETIME = "*/faketime/libfaketimeMT.so.1"


class StorageHost(ServerProcess):
    """`leasehold host` at a fixed address: a new process there supersedes the old one's memory."""

    def __init__(self, name: str, masters: Sequence[str], folder: Path) -> None:
        self.endpoint = f"{CLIENTS}:{free_ports(1)[0]}"
        command = [sys.executable, "-m", "leasehold", "host", "--name", name, "--segment", SEGMENT]
        command += ["--listen", self.endpoint, "--master", ",".join(masters)]
        super().__init__(name, command, log_path=folder / f"{name}.log", probe=self._listens)

    def _listens(self) -> bool:
        host, port = parse_address(self.endpoint)
        try:
            socket.create_connection((host, port), timeout=1).close()
        except OSError:
            return False
        return True

    def is_mounted(self) -> bool:
        """Whether the master has taken its memory, since the first start."""
        return "the segment is mounted" in self.log_tail(1000)


class MooncakeClient:
    """One real client in the environment of its wheel."""

    def __init__(self, name: str, master: str, seed: int, started_ns: int, folder: Path) -> None:
        self.name = name
        self.history = folder / f"{name}.jsonl"
        script = Path(__file__).with_name("mooncake_client.py")
        command = [str(mooncake.venv() / "bin" / "python"), str(script), master, name, str(seed), str(started_ns)]
        with (folder / f"{name}.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, str(self.history)],
                env={**os.environ, **mooncake.client_environment()},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def wait_ready(self) -> None:
        """Wait until it has stored its first object."""
        self._expect(b"ready", "stored nothing")

    def read_everything(self) -> None:
        """Let it stop writing, and read all keys once more."""
        self._next()
        self._expect(b"done", "did not read all keys")

    def close(self, timeout_s: float) -> None:
        """Let it give its memory back and exit; kill it if that takes too long."""
        self._next()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def _next(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(b"\n")
                self._process.stdin.flush()

    def _expect(self, line: bytes, otherwise: str) -> None:
        if self._process.stdout is None or self._process.stdout.readline().strip() != line:
            raise ServerFailed(f"{self.name}, a real Mooncake client, {otherwise}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class ChaosCluster:
    """All servers of a run. Use it with `with`. `other_release` is the source folder of another release, or None."""

    def __init__(self, folder: Path, other_release: Path | None) -> None:
        self.folder = folder
        self.other_release = other_release
        self.network = Network()
        self.etcd = EtcdCluster(
            3,
            binary=etcd_binary(survives_kills=True),
            data_dir=_made(folder / "etcd"),
            places=[self.network.add(f"etcd{number}") for number in range(3)],
        )
        self._token = secrets.token_hex(16)
        self._stack = ExitStack()
        self.on_other_release: set[str] = set()
        self.nodes = NodeGroup("", 0, cluster="chaos", folder=folder)
        self.stable: list[StorageHost] = []
        self.passing: StorageHost  # the host that is killed now and then

    def __enter__(self) -> Self:
        try:
            self._stack.enter_context(self.etcd)
            self._start_nodes()
            self._start_hosts()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    # --- nodes

    def _start_nodes(self) -> None:
        tokens = self.folder / "tokens"
        tokens.touch(mode=0o600)
        tokens.write_text(OPERATOR.format(token=self._token))
        for number in range(1, NODES + 1):
            folder = _made(self.folder / f"n{number}")
            run("mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(_made(folder / "data")))
            node = NodeProcess(
                self.etcd.url,
                f"n{number}",
                cluster="chaos",
                data_dir=folder,
                place=self.network.add(f"n{number}"),
                token=self._token,
            )
            self.nodes.nodes.append(node)
            self.use_release(node, other=False)
            self.set_wall_clock(node, 0)
        first = self.nodes.nodes[0]
        if self.other_release is not None:
            # A cluster that an older release began stays at its feature level, so both can take part.
            self.use_release(first, other=True)
        first.start()
        wait_until(first.is_primary, "the first node leads")
        self._stack.enter_context(self.nodes)

    def use_release(self, node: NodeProcess, *, other: bool) -> None:
        """Choose the code that a node runs from its next start on."""
        arguments, forward = [*FLAGS], f"{node.place.host}:0"
        env = {**self._clock_environment(node)}
        if other and self.other_release is not None:
            env["PYTHONPATH"] = str(self.other_release)
            arguments += ["--door", forward]  # the name of this flag in earlier releases
            self.on_other_release.add(node.node_name)
        else:
            arguments += ["--forward", forward, "--token-file", str(self.folder / "tokens"), "--newcomer-ramp", "0s"]
            self.on_other_release.discard(node.node_name)
        node.change_release(arguments, env)

    def settle(self, timeout_s: float) -> bool:
        """Start stopped nodes and wait until one serves and all others are ready. False if time is up."""
        try:
            self.nodes.revive(timeout_s)
        except ServerFailed:
            return False
        return True

    def _clock_environment(self, node: NodeProcess) -> dict[str, str]:
        library = next(Path("/usr/lib").glob(_FAKETIME), None)
        if library is None:
            return {}
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock_file(node)),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    @staticmethod
    def can_jump() -> bool:
        """Whether wall clocks can be changed here."""
        return next(Path("/usr/lib").glob(_FAKETIME), None) is not None

    def set_wall_clock(self, node: NodeProcess, offset_s: int) -> None:
        self._clock_file(node).write_text(f"{offset_s:+d}s")

    def _clock_file(self, node: NodeProcess) -> Path:
        return self.folder / f"{node.node_name}.clock"

    def wipe(self, node: NodeProcess) -> None:
        """Delete a node's snapshots and buffers; it must not be running."""
        for each in (node.data_dir / "data").iterdir():
            if each.is_dir():
                shutil.rmtree(each)
            else:
                each.unlink()

    # --- storage hosts and clients

    def _start_hosts(self) -> None:
        for name in ("h1", "h2", "passing"):
            host = StorageHost(name, self.nodes.addresses, self.folder)
            self._stack.enter_context(host)
            wait_until(host.is_mounted, f"the memory of {name} is mounted")
            if name == "passing":
                self.passing = host
            else:
                self.stable.append(host)

    def is_stable(self, endpoint: str) -> bool:
        """Whether the storage host there is never killed."""
        return any(host.endpoint == endpoint for host in self.stable)

    def start_mooncake(self, count: int, seed: int) -> list[MooncakeClient]:
        """Real Mooncake clients, each at one node's address: its guardian forwards them to the primary."""
        started_ns = boot_ns()
        clients = []
        for number in range(count):
            node = self.nodes.nodes[number % NODES]
            client = MooncakeClient(f"mooncake{number}", node.rpc, seed, started_ns, self.folder)
            self._stack.callback(client.kill)
            clients.append(client)
        for client in clients:
            client.wait_ready()
        return clients


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
