"""Real processes: a master and storage hosts, each on a port of its own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leasehold.testing.ports import free_ports

START_S = 120.0


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        assert process.poll() is None, "the process ended instead of listening"
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        time.sleep(0.02)
    raise AssertionError("nothing listens")


class Stage:
    """A master and its hosts, by verbs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master_port = free_ports(1)[0]
        self.master = f"127.0.0.1:{self.master_port}"

    def _run(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._directory / f"{name}.log").open("ab") as output:
            process = subprocess.Popen([sys.executable, *arguments], stdout=output, stderr=output)
        self._processes.append(process)
        return process

    def start_master(self, *arguments: str) -> subprocess.Popen[bytes]:
        patient = ("--client-ttl", "60s", "--lease-ttl", "60s")  # a busy machine may keep a host from its pings
        process = self._run("master", "-m", "leasehold.node.standalone", "--rpc", self.master, *patient, *arguments)
        wait_for_port(self.master_port, process)
        return process

    def start_host(self, name: str, *, segment: str = "16MiB", port: int | None = None) -> subprocess.Popen[bytes]:
        port = port or free_ports(1)[0]
        process = self._run(
            name, "-m", "leasehold", "host", "--segment", segment, "--listen", f"127.0.0.1:{port}", "--name", name,
            "--master", self.master, "--ping-interval", "100ms",
        )  # fmt: skip
        wait_for_port(port, process)
        return process

    def end(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.end()


Eventually = Callable[[Callable[[], bool]], None]
