"""The operator's commands: failures that need no cluster."""

from __future__ import annotations

import http.server
import io
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import click
import pytest
from rich.console import Console

from leasehold.admin.status import ClusterStatus
from leasehold.base.errors import Refused, Unavailable
from leasehold.cli.operate import call, first_answering
from leasehold.cli.previous_up import Pids, StillRunning, wait_for_previous, write_pids
from leasehold.cli.status import Everything, show
from leasehold.cli.up import _addresses


def remains() -> subprocess.Popen[bytes]:
    """A process that looks like a part of ours, until it is killed."""
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "-m", "leasehold"])


def test_processes_of_a_killed_up_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its nodes are still stopping: the next `up` failed because their directories were in use."""
    wait_for_previous(tmp_path)  # nothing was left
    part = remains()
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    write_pids(tmp_path, Pids(gone.pid, {"node a": part.pid, "store": gone.pid}))
    story: list[str] = []

    def end() -> None:
        story.append("it ends")
        part.kill()
        part.wait()

    ending = threading.Timer(0.3, end)

    def tell(sentence: str, err: bool) -> None:
        """The part exits some time after the message that it is waited for."""
        story.append(sentence)
        ending.start()

    monkeypatch.setattr(click, "echo", tell)
    wait_for_previous(tmp_path)
    story.append("go on")
    assert f"node a (process {part.pid})" in story[0]
    assert story[1:] == ["it ends", "go on"]
    ending.join()


def test_a_running_up_is_named(tmp_path: Path) -> None:
    other = remains()
    try:
        write_pids(tmp_path, Pids(other.pid))
        while b"leasehold" not in Path(f"/proc/{other.pid}/cmdline").read_bytes():
            time.sleep(0.01)  # it has not become another program yet
        with pytest.raises(StillRunning, match=str(other.pid)):
            wait_for_previous(tmp_path)
        write_pids(tmp_path, Pids(os.getppid()))  # a process id that another process has now
        if b"leasehold" not in Path(f"/proc/{os.getppid()}/cmdline").read_bytes():
            wait_for_previous(tmp_path)
    finally:
        other.kill()
        other.wait()


def test_free_ports_of_up_are_all_different() -> None:
    """Each was looked for when the one before was free again: two could be the same."""
    for _ in range(100):
        assert len(set(_addresses(*[0] * 50))) == 50
    assert _addresses(2379, 0)[0] == "127.0.0.1:2379"


def test_user_texts_are_not_interpreted_as_markup() -> None:
    """A pause for the reason "[/]" made `leasehold status` end in a traceback."""
    out = io.StringIO()
    cluster = ClusterStatus(cluster="c[/x]", paused="by a: [/] see [bold]ticket")
    show(Everything(cluster, {}), Console(file=out, highlight=False, width=200))
    assert "[/] see [bold]ticket" in out.getvalue()
    assert "c[/x]" in out.getvalue()


class Stranger(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>hello</html>")

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def test_another_server_at_the_admin_port_gives_a_clear_error() -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), Stranger)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        address = f"127.0.0.1:{server.server_port}"
        with pytest.raises(Refused, match="is not a node of this release"):
            call(address, "/api/cluster", ClusterStatus)
        with pytest.raises(Refused):  # more specific than the other address being unreachable
            first_answering(f"{address},127.0.0.1:1", "/api/cluster", ClusterStatus)
        with pytest.raises(Unavailable):
            first_answering("127.0.0.1:1", "/api/cluster", ClusterStatus)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
