"""Real Mooncake masters and clients for tests and comparisons: what `scripts/mooncake` has installed.

Clients run in the virtual environment of their wheel, as processes of their own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from leasehold.testing.node import NodeProcess
from leasehold.testing.ports import free_ports, listens
from leasehold.testing.process import MissingServer, ServerProcess, cpu_s, wait_until

NEWEST = "0.3.13.post1"
OLDER = "0.3.12.post1"


def cache_dir() -> Path:
    """Where the environments are: `.cache` of the checkout, or `LEASEHOLD_MOONCAKE_CACHE`."""
    given = os.environ.get("LEASEHOLD_MOONCAKE_CACHE")
    return Path(given) if given else Path(__file__).resolve().parents[3] / ".cache"


def why_missing(version: str = NEWEST) -> str | None:
    """Why this release cannot be run here, or None if it can."""
    note = cache_dir() / f"mooncake-{version}.missing"
    if note.exists():
        return note.read_text().strip()
    if not (cache_dir() / f"mooncake-{version}" / "bin" / "python").exists():
        return f"Mooncake {version} is not installed: run scripts/mooncake"
    return None


def venv(version: str = NEWEST) -> Path:
    """The virtual environment of a release; `MissingServer` says why it is not there."""
    if (reason := why_missing(version)) is not None:
        raise MissingServer(reason)
    return cache_dir() / f"mooncake-{version}"


def client_environment(version: str = NEWEST) -> dict[str, str]:
    """What a client process needs: everything on loopback, and the libraries that some wheels want."""
    libraries = [str(path) for path in venv(version).glob("lib/python*/site-packages/nvidia/cuda_runtime/lib")]
    return {"MC_TCP_BIND_ADDRESS": "127.0.0.1", "GLOG_minloglevel": "3", "LD_LIBRARY_PATH": ":".join(libraries)}


def run_client(
    script: Path,
    *arguments: str,
    version: str = NEWEST,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run a script with the real client; its output is text. Failing is the caller's to judge."""
    return subprocess.run(
        [str(venv(version) / "bin" / "python"), str(script), *arguments],
        env={**os.environ, **client_environment(version), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


class _Master(ServerProcess):
    """Something that answers Mooncake's RPC on `rpc`."""

    def __init__(self, name: str, argv: Sequence[str], rpc_port: int, env: Mapping[str, str] | None = None) -> None:
        self.rpc_port = rpc_port
        self._directory = tempfile.TemporaryDirectory(prefix="leasehold-mooncake-")
        super().__init__(
            name, argv, log_path=Path(self._directory.name) / "log", probe=lambda: listens(rpc_port), env=env
        )

    @property
    def rpc(self) -> str:
        return f"127.0.0.1:{self.rpc_port}"

    def cpu_s(self) -> float:
        """Processor time used so far, by all its threads."""
        return cpu_s(self.pid)

    def kill(self) -> None:
        """kill -9 of the whole group: an older wheel's `mooncake_master` is a script that starts the real one."""
        if self.running:
            os.killpg(self.pid, signal.SIGKILL)
        super().kill()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._directory.cleanup()


class MooncakeMaster(_Master):
    """The C++ master of the wheel."""

    def __init__(self, *flags: str, version: str = NEWEST) -> None:
        rpc_port, metrics_port, self.metadata_port = free_ports(3)
        argv = [str(venv(version) / "bin" / "mooncake_master"), f"--rpc_port={rpc_port}"]
        argv += [f"--metrics_port={metrics_port}", "--rpc_address=127.0.0.1", *flags]
        argv += ["--http_metadata_server_host=127.0.0.1", f"--http_metadata_server_port={self.metadata_port}"]
        super().__init__("mooncake_master", argv, rpc_port, client_environment(version))


class StandaloneMaster(_Master):
    """Ours without journal and standby, with a second port for clients of 0.3.12."""

    def __init__(self, *arguments: str) -> None:
        rpc_port, self.compat_port, self.metadata_port = free_ports(3)
        argv = [sys.executable, "-m", "leasehold.node.standalone", "--rpc", f"127.0.0.1:{rpc_port}", *arguments]
        argv += ["--rpc-compat", f"0.3.12=127.0.0.1:{self.compat_port}"]
        argv += ["--metadata", f"127.0.0.1:{self.metadata_port}"]
        super().__init__("leasehold standalone", argv, rpc_port)


class OwnNode(NodeProcess):
    """`leasehold node` by itself, as a drop-in for the C++ master, with a port for 0.3.12 and a metadata server."""

    def __init__(self, *arguments: str) -> None:
        self.compat_port, self.metadata_port = free_ports(2)
        compat = f"0.3.12=127.0.0.1:{self.compat_port},cluster=older"
        metadata = f"127.0.0.1:{self.metadata_port}"
        given = ["--rpc-compat", compat, "--metadata-server", metadata, *arguments]
        super().__init__("memory://", "alone", arguments=given)

    def start(self) -> None:
        """Start it and wait until it serves."""
        super().start()
        wait_until(self.is_primary, "the node leads")

    def cpu_s(self) -> float:
        """Processor time used so far, guardian and worker."""
        return cpu_s(self.pid)
