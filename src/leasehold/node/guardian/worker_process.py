"""One worker process, as its parent sees it: spawned with its sockets, reaped by waitpid, spoken to by lines."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

from leasehold.node.boot import BeatPage, Boot, HoldsBoot, write_boot
from leasehold.node.guardian.handoff import Holding, OnHandedOver
from leasehold.runtime.signals import blocked


class Child:
    """A running worker. `on_reaped(how)` is called once, after waitpid; `on_line` for what the worker says."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        run: str,
        beats: BeatPage,
        control: socket.socket,
        holding: Holding | None,
    ) -> None:
        self.run = run
        self.beats = beats
        self.holding = holding
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
        if self.holding is not None:
            self.holding.started(on_handed_over)
        loop.add_reader(self._pidfd, self._reap, on_reaped)
        loop.add_reader(self._control.fileno(), self._read_lines, on_line)

    def say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a dying worker need not hear it: the reaping follows
            self._control.send(line.encode() + b"\n")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _reap(self, on_reaped: Callable[[str], None]) -> None:
        status = self._process.wait()  # the pidfd is readable: this returns at once
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pidfd)
        loop.remove_reader(self._control.fileno())
        os.close(self._pidfd)
        self._control.close()
        self.beats.close()
        on_reaped(f"killed by signal {-status}" if status < 0 else f"exit status {status}")

    def _read_lines(self, on_line: Callable[[str], None]) -> None:
        try:
            data = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # a closed pipe proves nothing (schedule 7a): only stop listening to it
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            on_line(line.decode(errors="replace"))


def spawn(
    make_boot: Callable[[int, int, int, HoldsBoot | None], Boot],
    slots: int = 0,
    module: str = "leasehold.node.worker",
) -> Child:
    """Start a worker. `make_boot(beat_fd, life_fd, control_fd, holds)` says what it is told.

    `slots` of its connections are held here, too.

    The life pipe's writing end stays open in the guardian alone: it closes with it, however it ends.
    Raises OSError where the host has no process, memory or descriptor for it; then nothing is left behind.
    """
    with contextlib.ExitStack() as passing, contextlib.ExitStack() as undo:
        ours, theirs = socket.socketpair()
        undo.callback(ours.close)
        passing.callback(theirs.close)
        ours.setblocking(False)
        beat_fd = BeatPage.create()
        passing.callback(os.close, beat_fd)
        beats = BeatPage(beat_fd)
        undo.callback(beats.close)
        holding = Holding(slots) if slots else None
        if holding is not None:
            undo.callback(holding.never_started)
        boot = make_boot(beat_fd, _life_pipe(), theirs.fileno(), holding.boot() if holding is not None else None)
        boot_fd = write_boot(boot)
        passing.callback(os.close, boot_fd)
        # The terminal's Ctrl-C reaches the whole group: the guardian decides what becomes of it. The worker inherits
        # the mask, so that none can hit it while it still loads.
        with blocked(signal.SIGINT):
            process = subprocess.Popen(
                [sys.executable, "-m", module, str(boot_fd)],
                pass_fds=(*boot.fds(), boot_fd),
                stdin=subprocess.DEVNULL,
                start_new_session=False,
            )
        undo.callback(_end, process)  # nobody may watch over it: it must not live
        child = Child(process, boot.run, beats, ours, holding)
        undo.pop_all()  # from here on all of it is the child's
        return child


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
