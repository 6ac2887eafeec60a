"""A real server process, with its faults as methods."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec import Struct

from leasehold.base.errors import LeaseholdError
from leasehold.runtime.child_process import dying_with_parent

# Ends a hang. It is no limit for how long something should take: a busy machine is slow.
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.02


class ServerFailed(LeaseholdError):
    """A server of the test kit did not start, or stopped unexpectedly."""


class MissingServer(LeaseholdError):
    """A server that the tests need is not installed; the message names the package."""


def cpu_s(pid: int) -> float:
    """CPU time used so far by a process and its children, in all threads."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    used_ns = sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return used_ns / 1e9 + sum(cpu_s(int(each)) for each in children)


def wait_until(
    condition: Callable[[], bool], what: str | Callable[[], str], timeout_s: float = START_TIMEOUT_S
) -> None:
    """Wait for `condition`. `what` names it in the error; a callable is evaluated when the time is up."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise ServerFailed(f"not within {timeout_s:g} s: {what() if callable(what) else what}")
        time.sleep(POLL_S)


class Place(Struct, frozen=True):
    """Where a server runs: its address, and a command that starts programs there, such as `ip netns exec NAME`."""

    host: str = "127.0.0.1"
    launcher: tuple[str, ...] = ()


HERE = Place()


class ServerProcess:
    """One server process: `start`, `stop`, and the faults `kill`, `freeze`, `thaw`, `restart`.

    `probe` is called until it returns True: the server answers. Output goes to `log_path`. `kill_group` kills the whole
    process group, for a script that starts the real server. `owned` is deleted when the block is left.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log_path: Path,
        probe: Callable[[], bool],
        env: Mapping[str, str] | None = None,
        kill_group: bool = False,
        place: Place = HERE,
        owned: tempfile.TemporaryDirectory[str] | None = None,
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self.place = place
        self.log_path = log_path
        self._probe = probe
        self._env = dict(env or {})
        self._kill_group, self._owned = kill_group, owned
        self._process: subprocess.Popen[bytes] | None = None
        self._finalizer: weakref.finalize[[subprocess.Popen[bytes]], ServerProcess] | None = None

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def die_with_parent(self) -> Self:
        """Let the kernel kill it when this process dies, even by SIGKILL. Spawn it from the main thread then."""
        self.argv = dying_with_parent(self.argv)
        return self

    def spawn(self) -> None:
        """Start the process without waiting until it answers."""
        if self.running:
            raise ServerFailed(f"{self.name} is running already")
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*self.place.launcher, *self.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._env},
                start_new_session=True,  # Ctrl-C in the terminal stops the test, and the test stops its servers
            )
        self._finalizer = weakref.finalize(self, _end, self._process)

    def reconfigure(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Set the command and the environment of the next start."""
        self.argv, self._env = list(argv), dict(env)

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        def answered() -> bool:
            if not self.running:
                raise ServerFailed(f"{self.name} ended at start; its log ends with:\n{self.log_tail()}")
            return self._probe()

        wait_until(answered, lambda: f"{self.name} answers; its log ends with:\n{self.log_tail()}", timeout_s)

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.spawn()
        self.wait_ready()

    def stop(self) -> None:
        """Stop it with SIGTERM, or with SIGKILL after STOP_TIMEOUT_S."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        self.thaw()
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL and wait until the process is dead."""
        process = self._process
        if process is not None and process.poll() is None:
            if self._kill_group:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
            process.wait()

    def cpu_s(self) -> float:
        """CPU time used so far, by all its threads and children."""
        return cpu_s(self.pid)

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, no request is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT: the process continues."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Kill it, then start it again on the same data."""
        self.kill()
        self.start()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # __exit__ is not called for a block that was never entered
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if self._owned is not None:
            self._owned.cleanup()

    def log_tail(self, lines: int = 20) -> str:
        if not self.log_path.exists():
            return "(no output)"
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise ServerFailed(f"{self.name} is not running; its log ends with:\n{self.log_tail()}")
        return self._process


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
