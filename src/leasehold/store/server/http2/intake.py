"""When the frames of a connection are read: in short turns, and only as fast as its client reads and pays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from leasehold.http2.frame_reader import FrameReader
from leasehold.http2.rate_limit import WorkBudget

# Work beyond that of calls, in decoded header fields: a burst, and a rate per second. A client that needs more waits.
WORK_MAX, WORK_PER_S = 10_000, 50_000
# After this time in one turn, the other connections get theirs.
TURN_S = 0.001


class Intake:
    """Passes frames to `take`. `go_on` is called when held frames may be read: it calls `feed(b"")`."""

    __slots__ = ("_go_on", "_loop", "_reader", "_transport", "_turn_end_s", "_waiting", "_work", "paused")

    def __init__(self, take: Callable[[int, int, int, bytes], None], go_on: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(take)
        self._go_on = go_on
        self._transport: asyncio.Transport | None = None
        self._work = WorkBudget(WORK_MAX, WORK_PER_S)
        self._turn_end_s = 0.0
        self._waiting = False  # nothing is read until a timer
        self.paused = False  # the client does not read

    def made(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def lost(self) -> None:
        self._transport = None

    def feed(self, data: bytes) -> None:
        """Process received bytes. Raises `ProtocolBroken`, after which it must not be called again."""
        self._turn_end_s = time.perf_counter() + TURN_S
        self._reader.feed(data)

    def taken(self, work: int) -> None:
        """A frame was processed, and cost `work` beyond that of an ordinary call."""
        now_s = time.perf_counter()
        if work > 0:
            wait_s = self._work.pay(now_s, work)
            if wait_s > 0:
                self._wait(wait_s)
                return
        if now_s > self._turn_end_s:
            self._wait(0)

    def _wait(self, wait_s: float) -> None:
        """Read nothing for `wait_s`; with 0, until the other connections had their turn."""
        self._reader.held = True
        if not self._waiting and self._transport is not None and not self._transport.is_closing():
            self._waiting = True
            self._transport.pause_reading()
            if wait_s > 0:
                self._loop.call_later(wait_s, self._waited)
            else:
                self._loop.call_soon(self._waited)

    def _waited(self) -> None:
        self._waiting = False
        self.release()

    def hold(self) -> None:
        """Process no more frames until `release`: too much has to be written first."""
        self._reader.held = True

    def release_soon(self) -> None:
        """The pending output was written."""
        if self._reader.held:
            self._loop.call_soon(self.release)

    def pause(self) -> None:
        """Stop reading from a client that does not read: otherwise its answers would grow without limit."""
        self.paused = self._reader.held = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        self.paused = False
        self.release()

    def release(self) -> None:
        """Read on, unless the client does not read, or still has to wait."""
        if self.paused or self._waiting or self._transport is None or self._transport.is_closing():
            return
        self._transport.resume_reading()
        self._reader.held = False
        self._go_on()
