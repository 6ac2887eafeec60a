"""The worker's link to its guardian: heartbeats, commands, and dying with it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import Final

from leasehold.node.boot import Boot, GuardianCounts, HeartbeatPage

HEARTBEAT_S: Final = 0.1
ORPHANED: Final = 75  # exit status: the guardian is dead, so no client could connect
_PR_SET_PDEATHSIG: Final = 1


def die_with_guardian(boot: Boot) -> None:
    """Exit when the guardian dies: by a signal from the kernel, and by a thread that waits for its pipe to close.

    Each of the two has a gap: the signal is not sent if the guardian died before it was requested, and another child
    process could keep the pipe open.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != boot.guardian_pid:
        os._exit(ORPHANED)

    def wait_for_the_end() -> None:
        with contextlib.suppress(OSError):
            os.read(boot.life_fd, 1)
        os._exit(ORPHANED)

    threading.Thread(target=wait_for_the_end, name="guardian-pipe", daemon=True).start()


class GuardianLink:
    """Sends heartbeats from the loop (so that a stuck loop is detected) and the serving state; receives `stop`."""

    def __init__(self, boot: Boot, on_stop: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._page = HeartbeatPage(boot.heartbeat_fd)
        self._control = socket.socket(fileno=boot.control_fd)
        self._control.setblocking(False)
        self._on_stop = on_stop
        self._page.be_patient(True)
        self._beat()
        self._loop.add_reader(self._control.fileno(), self._receive)

    def say_serving(self, serving: bool) -> None:
        with contextlib.suppress(OSError):
            self._control.send(b"serving\n" if serving else b"not serving\n")

    def be_patient(self, patient: bool) -> None:
        """Set whether the guardian allows long gaps between heartbeats: while loading or catching up."""
        self._page.be_patient(patient)

    def beat(self) -> None:
        """Send one heartbeat; also called between the steps of long work, which is slow but not stuck."""
        self._page.beat()

    def guardian_counts(self) -> GuardianCounts:
        """The counters of the guardian: restarts of workers, connections held and forwarded."""
        return self._page.guardian_counts()

    def close(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._control.fileno())

    def _beat(self) -> None:
        self._page.beat()
        self._timer = self._loop.call_later(HEARTBEAT_S, self._beat)

    def _receive(self) -> None:
        try:
            data = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._control.fileno())
        elif b"stop" in data:
            self._on_stop()
