"""`leasehold top`: what it shows, in a real pseudo-terminal, while the node that it was given dies."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator

import pytest
from rich.console import Console

from leasehold.admin.live import LiveCluster, LiveNode
from leasehold.admin.samples import Sample
from leasehold.admin.status import ClusterStatus, HistoryLine, IndexCounts, NodeStatus, Peer
from leasehold.admin.worries import Worry
from leasehold.cli.top.model import SILENT_MS, Model
from leasehold.cli.top.view import draw, sparkline
from leasehold.index.survey import KINDS, SegmentUse
from leasehold.testing.node import NodeGroup
from leasehold.testing.process import wait_until
from leasehold.testing.store import StoreProcess

NOW_MS, WALL_MS = 1_000_000, 1_763_000_000_000
PEERS = tuple(Peer(name, "standby", True, 7, f"10.0.0.{at}:1", f"10.0.0.{at}:2") for at, name in enumerate("ab", 1))


def frame(name: str, *, leads: bool = False, left_ms: int = -1, calls: dict[str, float] | None = None) -> LiveNode:
    status = NodeStatus(
        name=name,
        run="r",
        cluster="kv\x1b[2J",
        version="1",
        role="primary" if leads else "standby",
        reason="",
        may_serve=leads,
        ready=True,
        epoch=42,
        rpc="10.0.0.1:1",
        index=IndexCounts(objects=5, bytes_used=60, bytes_total=100),
    )
    sample = Sample(WALL_MS - 3_000, calls or {}, 1.0, 0.0, 30.0, 10.0, 4.0, 2.0, 1.0, 2.0, 5, 60, 3)
    parts = {kind: 10 * (kind in ("leased", "evictable")) for kind in KINDS}
    pool = (SegmentUse("host-1", "10.0.0.9:1", 100, 20, parts, 2, draining=True),)
    return LiveNode(wall_ms=WALL_MS, status=status, lease_ms=3_000, lease_left_ms=left_ms, sample=sample, pool=pool)


def reported(*frames: LiveNode) -> Model:
    model = Model()
    line = HistoryLine((WALL_MS - 5_000) * 1_000, "a", 42, "primary", "Epoch 42 begins")
    cluster = ClusterStatus(cluster="kv", leader="a", epoch=42, nodes=PEERS)
    model.cluster_reported(LiveCluster(cluster, (line,), (Worry("no standby is ready", "start another"),)))
    for each in frames:
        model.node_reported(NOW_MS, each)
    return model


def text_of(model: Model, *, now_ms: int = NOW_MS, width: int = 120) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(draw(model, now_ms, WALL_MS, width))
    return console.export_text()


def test_it_shows_nodes_lease_pool_rates_worries_and_history() -> None:
    calls = {f"Function{number}": float(number) for number in range(1, 10)}
    text = text_of(reported(frame("a", leads=True, left_ms=2_000, calls=calls), frame("b")))
    for part in ("a leads, epoch 42", "2.0 s", "host-1", "20% of 100B draining", "Function9", "hits (75%)", "30.0"):
        assert part in text
    assert re.search(r"store writes +4\.0", text)
    assert re.search(r"evictions +2\.0", text)
    assert re.search(r"others +3\.0", text), "the smaller functions together"
    assert "! no standby is ready: start another" in text
    assert "Epoch 42 begins" in text
    assert "\x1b" not in text, "names from outside cannot control the terminal"


def test_a_node_without_frames_is_shown_as_dead() -> None:
    model = reported(frame("a", leads=True, left_ms=2_000), frame("b"))
    assert [node.name for node in model.nodes(NOW_MS) if node.leads] == ["a"]
    assert not any(node.leads for node in model.nodes(NOW_MS + 2_000)), "its lease expired since its last frame"
    assert "no node leads" in text_of(model, now_ms=NOW_MS + 2_000)
    model.node_lost("a")
    assert [node.name for node in model.nodes(NOW_MS) if not node.answers] == ["a"]
    assert any("a does not answer at 10.0.0.1:2" in worry.what for worry in model.worries(NOW_MS))
    assert "no node answers" in text_of(model, now_ms=NOW_MS + SILENT_MS)


def test_a_store_that_does_not_answer_is_a_serious_worry() -> None:
    model = reported(frame("a"))
    model.cluster_reported(LiveCluster(problem="the store did not answer"))
    assert model.worries(NOW_MS)[0].serious
    assert [node.name for node in model.nodes(NOW_MS)] == ["a", "b"], "the last known nodes stay"


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = text_of(reported(frame("a", leads=True, left_ms=2_000), frame("b")), width=width)
    assert max(map(len, text.splitlines())) <= width


def test_curves() -> None:
    assert sparkline([0, 1, 2, 4]) == "▁▂▄█"
    assert sparkline([0, 0]) == "▁▁"


class Terminal:
    """A command in a pseudo-terminal of 34 lines; a thread reads what it draws."""

    def __init__(self, *arguments: str) -> None:
        self._fd, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 34, 110, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "leasehold", *arguments],
            stdin=child,
            stdout=child,
            stderr=child,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color"},
        )
        os.close(child)
        self._drawn = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # EIO: the command has exited
            while data := os.read(self._fd, 1 << 16):
                self._drawn += data

    @property
    def frame(self) -> str:
        """The last complete frame: each begins at the top left."""
        frames = self._drawn.decode(errors="replace").split("\x1b[H")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frames[-2] if len(frames) > 1 else "")

    def until(self, *parts: str) -> None:
        wait_until(lambda: all(part in self.frame for part in parts), lambda: f"{parts} in:\n{self.frame}")

    def press(self, key: bytes) -> None:
        os.write(self._fd, key)

    def end(self) -> bytes:
        """Wait until it exits; returns everything that it drew."""
        self.process.wait(60)
        self._reader.join(10)
        return self._drawn

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(10)
        os.close(self._fd)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeGroup]:
    with (
        StoreProcess() as store,
        NodeGroup(store.url, 2, cluster="top", folder=tmp_path_factory.mktemp("top")) as made,
    ):
        yield made


@pytest.mark.xdist_group("top")
def test_one_frame_without_a_terminal(nodes: NodeGroup) -> None:
    primary = nodes.primary()
    command = [sys.executable, "-m", "leasehold", "top", "--admin", nodes.standbys()[0].admin]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert f"{primary.node_name} leads, epoch {primary.status().epoch}" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.xdist_group("top")
def test_it_continues_when_its_node_dies(nodes: NodeGroup) -> None:
    primary, standby = nodes.primary(), nodes.standbys()[0]
    terminal = Terminal("top", "--admin", primary.admin)  # the only address that it is given
    try:
        terminal.until(f"{primary.node_name} leads", standby.rpc)
        primary.kill_host()
        terminal.until(f"{standby.node_name} leads", f"{primary.node_name} does not answer")
        primary.start()
        terminal.until(f"{standby.node_name} leads", "standby")
        terminal.press(b"q")
        drawn = terminal.end()
        assert terminal.process.returncode == 0
        assert b"\x1b[?1049h" in drawn, "the alternate screen"
        assert drawn.rindex(b"\x1b[?1049l") > drawn.rindex(b"\x1b[?1049h"), "which it leaves at the end"
        assert b"Traceback" not in drawn
    finally:
        terminal.close()


def test_nothing_there_is_an_error_before_the_screen_is_taken() -> None:
    terminal = Terminal("top", "--admin", "127.0.0.1:1")
    try:
        drawn = terminal.end()
        assert terminal.process.returncode == 1
        assert b"no node answers at 127.0.0.1:1" in drawn
        assert b"\x1b[?1049h" not in drawn
    finally:
        terminal.close()
