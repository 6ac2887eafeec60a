"""Namespaces of a run: its own network, mounts and processes. When it ends, the kernel removes all of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from leasehold.testing.process import MissingServer

_STOP_S = 60.0
_TOOLS = {"unshare": "util-linux", "ip": "iproute2", "mount": "mount"}


def namespace_command() -> list[str]:
    """The command that runs another one in new namespaces. Without root it also takes a user namespace."""
    for tool, package in _TOOLS.items():
        if shutil.which(tool) is None:
            raise MissingServer(f"'{tool}' is not installed: apt-get install {package}")
    user = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--net", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc"]


def run_inside(arguments: Sequence[str]) -> int:
    """Run `leasehold ARGUMENTS` in new namespaces and return its exit code.

    If this process stops, all processes inside are killed. A namespace has loopback only after `prepare`.
    """
    command = [*namespace_command(), sys.executable, "-m", "leasehold", *arguments]
    process = subprocess.Popen(command)
    try:
        return process.wait()
    except BaseException:  # Ctrl-C reached the process inside too: it writes its report before it exits
        try:
            process.wait(_STOP_S)
        finally:
            process.kill()
        raise


def prepare() -> None:
    """Start loopback and a private directory for the names of network namespaces."""
    run("ip", "link", "set", "lo", "up")
    run("mount", "-t", "tmpfs", "none", "/run")


def run(*command: str) -> None:
    """Run a system command. A failure is raised with its output."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise MissingServer(
            f"'{' '.join(command)}' failed: {done.stderr.strip()}; run it as root, on a kernel with namespaces"
        )
