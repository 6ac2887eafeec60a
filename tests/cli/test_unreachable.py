"""Servers that are down, frozen or of another kind: one line with the diagnosis and what to do, within seconds."""

from __future__ import annotations

import http.server
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.processes import Command, closed_address, running, silent

from leasehold.etcd import diagnosis
from leasehold.etcd.diagnosis import why_silent
from leasehold.index.index import Index
from leasehold.index.settings import IndexSettings
from leasehold.node.index_files import whole_index
from leasehold.testing.certificates import CertificateAuthority
from leasehold.testing.store import StoreProcess

STORE_IS_AWAY = (
    "the store at etcd://{at} does not answer (nothing listens there): check that it runs, "
    "or name another store with {flag}"
)


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    do_POST = do_GET  # noqa: N815 -- the name is http.server's

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def web() -> Iterator[str]:
    """An unrelated HTTP server."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


async def test_the_diagnosis_of_a_store_address(
    web: str, served_store: StoreProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_s = diagnosis.PROBE_TIMEOUT_S
    monkeypatch.setattr(diagnosis, "PROBE_TIMEOUT_S", 30)  # servers and DNS may be slow on a busy machine
    closed = closed_address()
    assert await why_silent(f"etcd://{closed}") == "nothing listens there"
    assert await why_silent(f"etcd://{web}") == "an HTTP/1 server answers there, not an etcd"
    assert await why_silent(served_store.url) == "it speaks gRPC, but did not answer in time"
    assert await why_silent(served_store.url.replace("etcd://", "etcds://")) == ("it does not use TLS: write etcd://")
    assert await why_silent("etcd://no-such-host.invalid") == "no such host"
    cert, key = CertificateAuthority().server_files(tmp_path)
    with StoreProcess(arguments=["--tls-cert", str(cert), "--tls-key", str(key)]) as secret:
        assert await why_silent(f"etcd://{secret.endpoint}") == "it requires TLS: write etcds://"
    monkeypatch.setattr(diagnosis, "PROBE_TIMEOUT_S", look_s)
    with silent() as frozen:
        both = await why_silent(f"etcd://{closed},{frozen.address}")
    assert both == (
        f"{closed}: nothing listens there; "
        f"{frozen.address}: it accepts connections but does not answer: frozen, or not an etcd"
    )


def test_every_command_names_an_unreachable_store(tmp_path: Path) -> None:
    at = closed_address()
    file = tmp_path / "index.lsx"
    file.write_bytes(whole_index(Index(IndexSettings(), lambda _: 0), "mooncake_cluster", lambda: None))
    words = {
        f"lock x --coord etcd://{at} -- true": "--coord URL",
        f"elect x me --endpoints {at}": "--coord URL",
        f"journal show --coord etcd://{at}": "--coord URL",
        f"import --coord etcd://{at} --data-dir {tmp_path}/new {file}": "--coord URL",
        f"cache serve --listen 127.0.0.1:0 --store etcd://{at}": "--store URL",
    }
    started = [(Command(*line.split()), flag) for line, flag in words.items()]  # in parallel: each waits some seconds
    for command, flag in started:
        assert command.exit_code() == 1
        assert STORE_IS_AWAY.format(at=at, flag=flag) in command.output
        assert "Traceback" not in command.output
    assert not (tmp_path / "new").exists()


def test_a_node_waits_for_its_store_and_logs_it_once(tmp_path: Path) -> None:
    at = closed_address()
    words = ("node", "--rpc", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", str(tmp_path))
    with running(*words, "--coord", f"etcd://{at}") as node:
        line = node.wait_for("waiting for the store")
        assert f"the store at etcd://{at} does not answer (nothing listens there)" in line
        # two more attempts of 2 s each: they log nothing
        with pytest.raises(subprocess.TimeoutExpired):
            node.process.wait(5)
        node.send(signal.SIGTERM)
    assert node.output.count("waiting for the store") == 1
    assert node.output.count("cannot be deleted yet") <= 1


@pytest.mark.parametrize(
    "words",
    [
        "status",
        "doctor",
        "nodes list",
        "objects list",
        "hosts list",
        "config diff",
        "log level",
        "history",
        "switchover",
        "pause",
        "resume",
        "feature-level show",
        "export out.lsx",
    ],
)
def test_a_port_that_is_not_the_admin_port(words: str, served_store: StoreProcess, web: str) -> None:
    for at, message in (
        (served_store.endpoint, "does not speak HTTP: give --admin the admin addresses of the nodes"),
        (web, "is not a node of this release"),
    ):
        command = Command(*words.split(), "--admin", at)
        assert command.exit_code() == 1
        assert len(command.output.splitlines()) == 1, command.output
        assert message in command.output or "this server is not a node" in command.output, command.output


def test_a_port_without_a_cache_authority(served_store: StoreProcess, web: str) -> None:
    for at in (closed_address(), served_store.endpoint, web):
        commands = [Command("cache", *words, "--server", at) for words in (("get", "k"), ("put", "k", "v"))]
        for command in commands:
            assert command.exit_code() == 1
            assert command.output == (
                f"leasehold: no cache authority answers at {at}: is `leasehold cache serve` running?\n"
            )
