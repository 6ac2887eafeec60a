"""The worker process, seen from its guardian: spawned with its sockets, controlled by text lines, reaped by waitpid."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

from leasehold.node.boot import Boot, HandoffBoot, HeartbeatPage, write_boot
from leasehold.node.guardian.handoff import HeldConnections, OnHandedOver
from leasehold.runtime.signals import blocked


class WorkerProcess:
    """A running worker. `on_reaped(how)` is called once, after waitpid; `on_line` for each line from the worker."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        run: str,
        heartbeats: HeartbeatPage,
        control: socket.socket,
        held: HeldConnections | None,
    ) -> None:
        self.run = run
        self.heartbeats = heartbeats
        self.held = held
        self._process = process
        self._control = control
        self._pidfd = os.pidfd_open(process.pid)
        self._unread = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def watch(
        self, on_reaped: Callable[[str], None], on_line: Callable[[str], None], on_handed_over: OnHandedOver
    ) -> None:
        loop = asyncio.get_running_loop()
        if self.held is not None:
            self.held.started(on_handed_over)
        loop.add_reader(self._pidfd, self._reap, on_reaped)
        loop.add_reader(self._control.fileno(), self._read_lines, on_line)

    def send(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the worker is dying: it will be reaped
            self._control.send(line.encode() + b"\n")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _reap(self, on_reaped: Callable[[str], None]) -> None:
        status = self._process.wait()  # returns immediately, because the pidfd is readable
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pidfd)
        loop.remove_reader(self._control.fileno())
        os.close(self._pidfd)
        self._control.close()
        self.heartbeats.close()
        on_reaped(f"killed by signal {-status}" if status < 0 else f"exit status {status}")

    def _read_lines(self, on_line: Callable[[str], None]) -> None:
        try:
            data = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # a closed pipe does not prove a death (schedule 7a): only stop reading it
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            on_line(line.decode(errors="replace"))


def spawn(
    make_boot: Callable[[int, int, int, HandoffBoot | None], Boot],
    slots: int = 0,
    module: str = "leasehold.node.worker",
) -> WorkerProcess:
    """Start a worker with the boot document from `make_boot(heartbeat_fd, life_fd, control_fd, handoff)`.

    The guardian keeps up to `slots` of its connections open, too. Only the guardian has the writing end of the life
    pipe, so it closes when the guardian dies. Raises OSError if the host lacks a process, memory or descriptor; then
    nothing is left behind.
    """
    with contextlib.ExitStack() as passing, contextlib.ExitStack() as undo:
        ours, theirs = socket.socketpair()
        undo.callback(ours.close)
        passing.callback(theirs.close)
        ours.setblocking(False)
        heartbeat_fd = HeartbeatPage.create()
        passing.callback(os.close, heartbeat_fd)
        heartbeats = HeartbeatPage(heartbeat_fd)
        undo.callback(heartbeats.close)
        held = HeldConnections(slots) if slots else None
        if held is not None:
            undo.callback(held.never_started)
        boot = make_boot(heartbeat_fd, _life_pipe(), theirs.fileno(), held.boot() if held is not None else None)
        boot_fd = write_boot(boot)
        passing.callback(os.close, boot_fd)
        # The terminal's Ctrl-C reaches the whole process group, but only the guardian may react to it. The worker
        # inherits the mask, so that no signal can reach it while it still loads.
        with blocked(signal.SIGINT):
            process = subprocess.Popen(
                [sys.executable, "-m", module, str(boot_fd)],
                pass_fds=(*boot.fds(), boot_fd),
                stdin=subprocess.DEVNULL,
                start_new_session=False,
            )
        undo.callback(_end, process)  # a worker without a supervisor must not run
        worker = WorkerProcess(process, boot.run, heartbeats, ours, held)
        undo.pop_all()  # the worker object owns everything now
        return worker


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


_life: tuple[int, int] | None = None


def _life_pipe() -> int:
    """One pipe for all workers of this guardian. Nothing is ever written to it."""
    global _life
    if _life is None:
        _life = os.pipe2(os.O_CLOEXEC)
    return _life[0]
