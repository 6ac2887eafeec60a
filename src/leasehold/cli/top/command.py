"""The command `leasehold top`."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from typing import Final

import click
from rich.console import Console, RenderableType
from rich.live import Live

from leasehold.admin.status import NodeStatus
from leasehold.base.errors import Unavailable
from leasehold.base.text import printable
from leasehold.cli.help import Explained
from leasehold.cli.operate import addresses, admin_option, first_answering
from leasehold.cli.top.model import Model
from leasehold.cli.top.streams import Streams
from leasehold.cli.top.view import draw
from leasehold.runtime.clock import BootClock, wall_us

REFRESH_S: Final = 0.25
FIRST_FRAME_S: Final = 10.0


@click.command(
    cls=Explained,
    examples=(
        ("leasehold top", "q or Ctrl-C ends it"),
        ("leasehold top --admin 10.0.0.11:8700,10.0.0.12:8700", "a remote cluster; one address is enough"),
        ("leasehold top --once", "print one frame, for example into a ticket"),
    ),
)
@admin_option
@click.option("--once", is_flag=True, help="print one frame and exit (as without a terminal)")
def top(admin: str, once: bool) -> None:
    """Show the cluster live: nodes, leader lease, pool, rates, and problems. It continues when a node dies."""
    first_answering(admin, "/api/status", NodeStatus)  # fails with the reason, before the screen is taken
    model = Model()
    streams = Streams(model, click.get_current_context())
    for address in addresses(admin):
        streams.open(address)
    console = Console(highlight=False)
    try:
        if once or not console.is_terminal:
            _wait_for_frame(model, streams)
            console.print(_frame(model, streams, console))
        else:
            with contextlib.suppress(KeyboardInterrupt):  # the usual way to end it
                _show(model, streams, console)
    finally:
        streams.stop()


def _frame(model: Model, streams: Streams, console: Console) -> RenderableType:
    with streams.lock:
        return draw(model, BootClock().now_ms(), wall_us() // 1_000, console.width)


def _show(model: Model, streams: Streams, console: Console) -> None:
    with Keyboard() as keyboard, Live(console=console, screen=True, auto_refresh=False) as live:
        while not keyboard.pressed(REFRESH_S, b"qQ"):
            live.update(_frame(model, streams, console), refresh=True)


def _wait_for_frame(model: Model, streams: Streams) -> None:
    """Wait until a node and the cluster have reported, and those of its nodes that answer."""
    clock = BootClock()
    until_ms = clock.now_ms() + int(FIRST_FRAME_S * 1000)
    while clock.now_ms() < until_ms:
        with streams.lock:
            nodes = model.nodes(clock.now_ms())
            known = model.cluster is not None or model.problem
            if known and any(node.answers for node in nodes) and all(node.frame or streams.errors for node in nodes):
                return
        time.sleep(REFRESH_S / 5)
    reasons = "; ".join(f"{address}: {printable(why)}" for address, why in streams.errors.items())
    raise Unavailable(f"no live stream within {FIRST_FRAME_S:g} s ({reasons}): see `leasehold status`")


class Keyboard:
    """Single key presses, if standard input is a terminal; it is restored at the end."""

    def __enter__(self) -> Keyboard:
        self._fd = sys.stdin.fileno() if sys.stdin.isatty() else -1
        if self._fd >= 0:
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def pressed(self, wait_s: float, keys: bytes) -> bool:
        """Wait, and return True as soon as one of these keys is pressed."""
        if self._fd < 0:
            time.sleep(wait_s)
            return False
        ready, _, _ = select.select([self._fd], [], [], wait_s)
        return bool(ready) and os.read(self._fd, 1) in [bytes([key]) for key in keys]
