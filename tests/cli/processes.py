"""Run commands as a terminal does: in a process group, so that Ctrl-C reaches all of their child processes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from leasehold.testing.ports import free_ports
from leasehold.testing.process import START_TIMEOUT_S

END_S = 8.0  # 2 s on an idle machine; commands that used to hang took 9 s and more


class Command:
    """A running command. `output` is complete once it has exited."""

    def __init__(self, *arguments: str, stdin: int = subprocess.DEVNULL, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "leasehold", *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, **(env or {})},
        )
        self.output = ""

    def wait_for(self, words: str) -> str:
        """Wait until it prints a line with these words; returns the line."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line
            if words in line:
                return line
        raise AssertionError(f"never printed: {words}\n{self.output}")

    def send(self, number: signal.Signals) -> tuple[int, float]:
        """Send SIGINT to the whole group, or SIGTERM to the process; returns the exit code and the seconds it took."""
        started_s = time.monotonic()
        if number is signal.SIGINT:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        return self.exit_code(), time.monotonic() - started_s

    def catches_sigterm(self) -> bool:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        return bool(caught >> (signal.SIGTERM - 1) & 1)

    def exit_code(self) -> int:
        """Wait until it exits."""
        rest, _ = self.process.communicate(timeout=START_TIMEOUT_S)
        self.output += rest
        return self.process.returncode

    def left(self) -> list[str]:
        """Command lines of its child processes that still run."""
        return [args for pid, args in _of_session(self.process.pid) if pid != self.process.pid]

    def left_nothing(self) -> bool:
        return not self.left()

    def close(self) -> None:
        for pid, _ in _of_session(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.communicate()


def _of_session(session: int) -> list[tuple[int, str]]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
            if after_name[0] != "Z" and int(after_name[3]) == session:
                found.append((int(folder.name), (folder / "cmdline").read_text().replace("\0", " ")))
    return found


def family(pid: int) -> list[int]:
    """A process and all its descendants, also those in sessions of their own."""
    found = [pid]
    for each in found:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just exited
            found += [int(child) for child in Path(f"/proc/{each}/task/{each}/children").read_text().split()]
    return found


def runs(pid: int) -> bool:
    """Whether it is there, and not only waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextlib.contextmanager
def running(*arguments: str, env: Mapping[str, str] | None = None) -> Iterator[Command]:
    command = Command(*arguments, env=env)
    try:
        yield command
    finally:
        command.close()


class Silent:
    """A frozen server: accepts connections and never answers. `reached` waits for a connection."""

    def __init__(self) -> None:
        self._sock = socket.create_server(("127.0.0.1", 0))
        self._sock.settimeout(START_TIMEOUT_S)
        self.address = f"127.0.0.1:{self._sock.getsockname()[1]}"
        self._taken: list[socket.socket] = []

    def reached(self) -> None:
        self._taken.append(self._sock.accept()[0])

    def close(self) -> None:
        for sock in (*self._taken, self._sock):
            sock.close()


@contextlib.contextmanager
def silent() -> Iterator[Silent]:
    server = Silent()
    try:
        yield server
    finally:
        server.close()


def closed_address() -> str:
    """An unused address that no other test will use: a port that was bound and closed could be reused."""
    return f"127.0.0.1:{free_ports(1)[0]}"
