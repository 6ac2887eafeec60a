"""Real Mooncake masters and clients for tests and comparisons, as installed by `scripts/mooncake`.

Clients run in the virtual environment of their wheel, as separate processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from leasehold.testing.node import NodeProcess
from leasehold.testing.ports import free_ports, listens
from leasehold.testing.process import MissingServer, ServerProcess, wait_until

NEWEST = "0.3.13.post1"
OLDER = "0.3.12.post1"
OLDEST = "0.3.11.post1"


def cache_dir() -> Path:
    """The folder of the environments: `.cache` of the checkout, or `LEASEHOLD_MOONCAKE_CACHE`."""
    given = os.environ.get("LEASEHOLD_MOONCAKE_CACHE")
    return Path(given) if given else Path(__file__).resolve().parents[3] / ".cache"


def why_missing(version: str = NEWEST) -> str | None:
    """Why this release cannot run here, or None if it can."""
    reason = cache_dir() / f"mooncake-{version}.missing"
    if reason.exists():
        return reason.read_text().strip()
    if not (cache_dir() / f"mooncake-{version}" / "bin" / "python").exists():
        return f"Mooncake {version} is not installed: run scripts/mooncake"
    return None


def venv(version: str = NEWEST) -> Path:
    """The virtual environment of a release; `MissingServer` has the reason if it is missing."""
    if (reason := why_missing(version)) is not None:
        raise MissingServer(reason)
    return cache_dir() / f"mooncake-{version}"


def client_environment(version: str = NEWEST) -> dict[str, str]:
    """Environment of a client process: everything on loopback, and the libraries that some wheels need."""
    libraries = [str(path) for path in venv(version).glob("lib/python*/site-packages/nvidia/cuda_runtime/lib")]
    return {"MC_TCP_BIND_ADDRESS": "127.0.0.1", "GLOG_minloglevel": "3", "LD_LIBRARY_PATH": ":".join(libraries)}


def run_client(
    script: Path,
    *arguments: str,
    version: str = NEWEST,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run a script with the real client; its output is text. The caller checks its exit status."""
    return subprocess.run(
        [str(venv(version) / "bin" / "python"), str(script), *arguments],
        env={**os.environ, **client_environment(version), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


class MooncakeMaster(ServerProcess):
    """The C++ master of the wheel."""

    def __init__(self, *flags: str, version: str = NEWEST) -> None:
        self.rpc_port, self.admin_port, self.metadata_port = free_ports(3)
        self.rpc = f"127.0.0.1:{self.rpc_port}"
        argv = [str(venv(version) / "bin" / "mooncake_master"), f"--rpc_port={self.rpc_port}"]
        argv += [f"--metrics_port={self.admin_port}", "--rpc_address=127.0.0.1", *flags]
        argv += ["--http_metadata_server_host=127.0.0.1", f"--http_metadata_server_port={self.metadata_port}"]
        folder = tempfile.TemporaryDirectory(prefix="leasehold-mooncake-")
        super().__init__(
            "mooncake_master",
            argv,
            log_path=Path(folder.name) / "log",
            probe=lambda: listens(self.rpc_port),
            env=client_environment(version),
            kill_group=True,  # an older wheel's `mooncake_master` is a script that starts the real one
            owned=folder,
        )


class StandaloneMaster(ServerProcess):
    """Our master without journal and standby, with a second port for clients of 0.3.12."""

    def __init__(self, *arguments: str) -> None:
        self.rpc_port, self.compat_port, self.metadata_port = free_ports(3)
        self.rpc = f"127.0.0.1:{self.rpc_port}"
        argv = [sys.executable, "-m", "leasehold.node.standalone", "--rpc", self.rpc, *arguments]
        argv += ["--rpc-compat", f"0.3.12=127.0.0.1:{self.compat_port}"]
        argv += ["--metadata", f"127.0.0.1:{self.metadata_port}"]
        folder = tempfile.TemporaryDirectory(prefix="leasehold-mooncake-")
        super().__init__(
            "leasehold standalone",
            argv,
            log_path=Path(folder.name) / "log",
            probe=lambda: listens(self.rpc_port),
            kill_group=True,
            owned=folder,
        )


class OwnNode:
    """A single `leasehold node` in place of the C++ master, with ports for older releases and a metadata server."""

    def __init__(self, *arguments: str) -> None:
        self.compat_port, self.oldest_port, self.metadata_port = free_ports(3)
        compat = f"0.3.12=127.0.0.1:{self.compat_port},cluster=older,0.3.11=127.0.0.1:{self.oldest_port},cluster=oldest"
        metadata = f"127.0.0.1:{self.metadata_port}"
        given = ["--rpc-compat", compat, "--metadata-server", metadata, *arguments]
        self.process = NodeProcess("memory://", "alone", arguments=given)
        self.rpc, self.rpc_port, self.log_path = self.process.rpc, self.process.rpc_port, self.process.log_path
        self.admin_port = self.process.admin_port

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def worker_pid(self) -> int:
        return self.process.worker_pid

    def log_tail(self, lines: int = 20) -> str:
        return self.process.log_tail(lines)

    def cpu_s(self) -> float:
        """CPU time used so far by guardian and worker."""
        return self.process.cpu_s()

    def __enter__(self) -> Self:
        self.process.__enter__()
        try:
            wait_until(self.process.is_primary, "the node leads")
        except BaseException:  # __exit__ is not called for a block that was never entered
            self.process.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.__exit__(kind, error, trace)
