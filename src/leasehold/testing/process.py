"""A real server process, with the faults that can befall it as verbs."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from leasehold.base.errors import LeaseholdError

# Ends a hang. It says nothing about how long something should take: a busy machine takes its time.
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.02


class ServerFailed(LeaseholdError):
    """A server of the test kit did not come up, or ended when nobody asked it to."""


class MissingServer(LeaseholdError):
    """A server that the tests need is not installed; the message says what to install."""


def cpu_s(pid: int) -> float:
    """Processor time that a process and its children have used so far, by all their threads."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    used_ns = sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return used_ns / 1e9 + sum(cpu_s(int(each)) for each in children)


def wait_until(
    condition: Callable[[], bool], what: str | Callable[[], str], timeout_s: float = START_TIMEOUT_S
) -> None:
    """Wait for `condition`; `what` says in the error what did not happen, as it is then if it is called."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise ServerFailed(f"not within {timeout_s:g} s: {what() if callable(what) else what}")
        time.sleep(POLL_S)


class ServerProcess:
    """One server process: `start`, `stop`, and the faults `kill`, `freeze`, `thaw`, `restart`.

    `probe` says whether it answers; it is asked until it does. Output goes to `log_path`.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log_path: Path,
        probe: Callable[[], bool],
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self.log_path = log_path
        self._probe = probe
        self._env = dict(env or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._finalizer: weakref.finalize[[subprocess.Popen[bytes]], ServerProcess] | None = None

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def spawn(self) -> None:
        """Start the process without waiting until it answers."""
        if self.running:
            raise ServerFailed(f"{self.name} is running already")
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._env},
                start_new_session=True,  # a ^C in the terminal ends the test, and the test ends its servers
            )
        self._finalizer = weakref.finalize(self, _end, self._process)

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
        """End it in an orderly way (SIGTERM), or after STOP_TIMEOUT_S in the other."""
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
        """kill -9, and wait until it is gone."""
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT: it goes on as if nothing had happened."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """kill -9, then start again on the same data."""
        self.kill()
        self.start()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # nobody leaves a block that was never entered
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

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
