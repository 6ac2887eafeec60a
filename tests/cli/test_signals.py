"""Ctrl-C and SIGTERM: every command exits soon, without a traceback, with the right code, and leaves no process."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from tests.cli.processes import END_S, Command, running, silent
from tests.measured import until_met

from leasehold.cli.main import COMMANDS, leasehold
from leasehold.index.index import Index
from leasehold.index.settings import IndexSettings
from leasehold.node.index_files import whole_index
from leasehold.testing.process import wait_until
from leasehold.testing.store import StoreProcess

# Arguments of each command while a server that it needs does not answer; {at} is that server, {tmp} a directory.
NODE = "node --rpc 127.0.0.1:0 --admin 127.0.0.1:0 --data-dir {tmp}/node --coord etcd://{at}"
SERVERS = {  # they shut down cleanly: exit code 0
    "node": NODE,
    "host": "host --segment 64KiB --listen 127.0.0.1:0 --coord etcd://{at}",
    "host of a named master": "host --segment 64KiB --listen 127.0.0.1:0 --master {at}",
    "cache serve": "cache serve --listen 127.0.0.1:0 --store etcd://{at}",
    "cache serve, elected": "cache serve --listen 127.0.0.1:0 --elect etcd://{at}",
}
WAITING = {  # they are interrupted: exit code 128 + signal
    "lock": "lock x --coord etcd://{at} -- sleep 60",
    "elect": "elect x me --coord etcd://{at}",
    "elect --listen": "elect x --listen --coord etcd://{at}",
    "journal show": "journal show --coord etcd://{at}",
    "import": "import --coord etcd://{at} --data-dir {tmp}/new {tmp}/index.lsx",
    "export": "export --admin {at} {tmp}/out.lsx",
    "status": "status --admin {at}",
    "top": "top --admin {at}",
    "adopt": "adopt --from {at} --from-admin {at} --dry-run",
    "doctor": "doctor --admin {at}",
    "objects list": "objects list --admin {at}",
    "objects show": "objects show key --admin {at}",
    "objects why": "objects why key --admin {at}",
    "hosts list": "hosts list --admin {at}",
    "hosts drain": "hosts drain host --admin {at}",
    "hosts cancel": "hosts cancel 1-2 --admin {at}",
    "hosts remove": "hosts remove host --admin {at}",
    "nodes list": "nodes list --admin {at}",
    "nodes remove": "nodes remove a --admin {at}",
    "nodes restart": "nodes restart a --admin {at}",
    "nodes reinit": "nodes reinit a --yes --admin {at}",
    "failover": "failover --force --yes --admin {at}",
    "log level": "log level --admin {at}",
    "config show": "config show --admin {at}",
    "config diff": "config diff --admin {at}",
    "history": "history --admin {at}",
    "switchover": "switchover --admin {at}",
    "feature-level show": "feature-level show --admin {at}",
    "feature-level raise": "feature-level raise 1 --admin {at}",
    "feature-level lower": "feature-level lower 0 --admin {at}",
    "pause": "pause --admin {at}",
    "resume": "resume --admin {at}",
    "cache get": "cache get key --server {at}",
    "cache put": "cache put key value --server {at}",
    "cache delete": "cache delete key --server {at}",
}
INSTANT = {"certs", "config check", "plan", "version", "journal quarantined"}  # they wait for nothing
ELSEWHERE = {"chaos", "demo", "store", "up", "sim", "mooncake-master"}  # tests of their own; the last runs `node`
BY_SIGTERM = ("node", "host", "cache serve", "lock", "journal show", "import", "status", "cache put")


TOOK = "s from the signal to the exit of the command"


def interrupt(command: Command, number: signal.Signals, took_s: list[float]) -> int:
    """Send the signal; returns the exit code, and appends the time it took to `took_s`."""
    code, exit_s = command.send(number)
    assert "Traceback" not in command.output, command.output
    took_s.append(exit_s)
    return code


def cases() -> list[tuple[str, signal.Signals]]:
    every = [(name, signal.SIGINT) for name in (*SERVERS, *WAITING)]
    return every + [(name, signal.SIGTERM) for name in BY_SIGTERM]


@pytest.mark.parametrize(("name", "number"), cases())
def test_a_signal_during_a_wait_for_a_frozen_server(name: str, number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "index.lsx").write_bytes(
        whole_index(Index(IndexSettings(), lambda _: 0), "mooncake_cluster", lambda: None)
    )
    words = {**SERVERS, **WAITING}[name]
    for took_s in until_met(END_S, TOOK):
        with silent() as server, running(*words.format(at=server.address, tmp=tmp_path).split()) as command:
            server.reached()
            code = interrupt(command, number, took_s)
            assert code == (0 if name in SERVERS else 128 + number), command.output
            assert command.left() == []
        assert not list(tmp_path.glob("*.part")), "nothing half written"
        assert not (tmp_path / "new").exists()


def test_every_command_is_in_the_table() -> None:
    context = click.Context(leasehold)
    names = set()
    for name in COMMANDS:
        command = leasehold.get_command(context, name)
        subcommands = getattr(command, "commands", {})
        names |= {f"{name} {sub}" for sub in subcommands} or {name}
    assert names == ({*SERVERS, *WAITING, *INSTANT, *ELSEWHERE}) & names
    assert names <= {*SERVERS, *WAITING, *INSTANT, *ELSEWHERE}


@pytest.mark.parametrize("after_s", [0, 0.2, 0.5, 1])
def test_a_signal_while_the_command_still_loads(after_s: float, tmp_path: Path) -> None:
    """The terminal's Ctrl-C also reaches workers and search processes that have just started."""
    for words in (NODE.format(at="127.0.0.1:1", tmp=tmp_path), "sim --seeds 0:1000"):
        for took_s in until_met(END_S, TOOK):
            with running(*words.split()) as command:
                wait_until(command.catches_sigterm, "our first line has run: before that Python handles signals")
                time.sleep(after_s)  # no condition: any moment must work
                assert interrupt(command, signal.SIGINT, took_s) in (0, 128 + signal.SIGINT)
                wait_until(command.left_nothing, "all child processes exit")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_search_stops_its_processes(number: signal.Signals) -> None:
    for took_s in until_met(END_S, TOOK):
        with running("sim", "--seeds", "0:2000", "--jobs", "2") as command:
            wait_until(three_run(command), "two workers and the resource tracker run")
            assert interrupt(command, number, took_s) == 128 + number, command.output
            wait_until(command.left_nothing, "all child processes exit")


def three_run(command: Command) -> Callable[[], bool]:
    return lambda: len(command.left()) >= 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_a_store(number: signal.Signals, tmp_path: Path) -> None:
    with running("store", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "store")) as command:
        command.wait_for("serves")
        assert interrupt(command, number, []) == 0


def test_a_signal_while_up_starts(tmp_path: Path) -> None:
    ports = ["--store-port", "0", "--rpc-port", "0", "--admin-port", "0", "--segment", "64KiB"]
    for took_s in until_met(2 * END_S, TOOK):
        with running("up", "--data", str(tmp_path / "up"), *ports) as command:
            command.wait_for("store ")
            pids = (tmp_path / "up" / "up.pids").read_text()
            assert interrupt(command, signal.SIGINT, took_s) == 0, command.output
        assert '"store"' in pids
        assert not (tmp_path / "up" / "up.pids").exists()


SLEEPS = ("sleep", "60.5")  # without a shell: a shell that is interrupted while it starts a command may lose it
HELD: dict[str, Callable[[str], tuple[str, ...]]] = {
    "a lock": lambda url: ("lock", "x", "--coord", url),
    "a lock with a command": lambda url: ("lock", "x", "--coord", url, "--", *SLEEPS),
    "a leadership": lambda url: ("elect", "x", "me", "--coord", url),
}


@pytest.mark.parametrize("kind", HELD)
def test_a_lock_holder_exits_soon_when_the_store_is_dead(kind: str) -> None:
    """It used to wait 15 s for the store: the lease plus one call."""
    for took_s in until_met(END_S, TOOK):
        with StoreProcess() as store, running(*HELD[kind](store.url)) as command:
            if "command" in kind:
                wait_until(sleeps(command), "the command runs")
            else:
                command.wait_for("x/")
            store.kill()
            assert interrupt(command, signal.SIGINT, took_s) == 130, command.output
            assert "is released when its lease expires" in command.output
            assert command.left() == []


def sleeps(command: Command) -> Callable[[], bool]:
    return lambda: " ".join(SLEEPS) in map(str.strip, command.left())


def test_ctrl_c_ends_a_command_under_a_lock_and_releases_the_lock(served_store: StoreProcess) -> None:
    words = ("lock", "signals/1", "--coord", served_store.url, "--")
    with running(*words, *SLEEPS) as command:
        wait_until(sleeps(command), "the command runs")
        assert interrupt(command, signal.SIGINT, []) == 130
        assert command.left() == []
    assert Command(*words, "sh", "-c", "exit 7").exit_code() == 7, "immediately, not after the lease"
