"""The worker's side of its guardian: it beats, it listens, and it dies with it."""

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

from leasehold.node.boot import BeatPage, Boot

BEAT_S: Final = 0.1
ORPHANED: Final = 75  # exit status: the guardian is gone, and with it the door
_PR_SET_PDEATHSIG: Final = 1


def die_with_guardian(boot: Boot) -> None:
    """Never outlive the guardian: the kernel's signal at its death, and a thread that waits for its pipe to close.

    Two ways, because each has a gap: the signal is lost if the guardian died before it was asked for, and a pipe end
    could be held open by somebody else's child.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != boot.guardian_pid:
        os._exit(ORPHANED)

    def wait_for_the_end() -> None:
        with contextlib.suppress(OSError):
            os.read(boot.life_fd, 1)
        os._exit(ORPHANED)

    threading.Thread(target=wait_for_the_end, name="lifeline", daemon=True).start()


class Lifeline:
    """Beats from the loop (so that a stuck loop is noticed), tells the guardian who accepts, hears `stop`."""

    def __init__(self, boot: Boot, on_stop: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._page = BeatPage(boot.beat_fd)
        self._control = socket.socket(fileno=boot.control_fd)
        self._control.setblocking(False)
        self._on_stop = on_stop
        self._page.be_patient(True)
        self._beat()
        self._loop.add_reader(self._control.fileno(), self._hear)

    def say_serving(self, serving: bool) -> None:
        with contextlib.suppress(OSError):
            self._control.send(b"serving\n" if serving else b"not serving\n")

    def be_patient(self, patient: bool) -> None:
        """Whether the guardian should bear long silence: while loading or catching up, not while others wait for us."""
        self._page.be_patient(patient)

    def beat(self) -> None:
        """One beat: also called between the steps of long work, which is slow but not stuck."""
        self._page.beat()

    def close(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._control.fileno())

    def _beat(self) -> None:
        self._page.beat()
        self._timer = self._loop.call_later(BEAT_S, self._beat)

    def _hear(self) -> None:
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
