"""Ctrl-C and SIGTERM: every command ends soon, without a traceback, with the right code, and leaves nothing behind."""

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

# What each command is called with while a server that it needs is silent; {at} is that server, {tmp} a directory.
NODE = "node --rpc 127.0.0.1:0 --admin 127.0.0.1:0 --data-dir {tmp}/node --coord etcd://{at}"
SERVERS = {  # told to end they end in order: 0
    "node": NODE,
    "host": "host --segment 64KiB --listen 127.0.0.1:0 --coord etcd://{at}",
    "host of a named master": "host --segment 64KiB --listen 127.0.0.1:0 --master {at}",
    "cache serve": "cache serve --listen 127.0.0.1:0 --store etcd://{at}",
    "cache serve, elected": "cache serve --listen 127.0.0.1:0 --elect etcd://{at}",
}
WAITING = {  # they were interrupted: 128 + the signal
    "lock": "lock x --coord etcd://{at} -- sleep 60",
    "elect": "elect x me --coord etcd://{at}",
    "elect --listen": "elect x --listen --coord etcd://{at}",
    "journal show": "journal show --coord etcd://{at}",
    "import": "import --coord etcd://{at} --data-dir {tmp}/new {tmp}/index.lsx",
    "export": "export --admin {at} {tmp}/out.lsx",
    "status": "status --admin {at}",
    "history": "history --admin {at}",
    "switchover": "switchover --admin {at}",
    "pause": "pause --admin {at}",
    "resume": "resume --admin {at}",
    "cache get": "cache get key --server {at}",
    "cache put": "cache put key value --server {at}",
    "cache delete": "cache delete key --server {at}",
}
INSTANT = {"plan", "version", "journal aside"}  # nothing to wait for
ELSEWHERE = {"store", "up", "sim"}  # tests of their own, below
BY_SIGTERM = ("node", "host", "cache serve", "lock", "journal show", "import", "status", "cache put")


TOOK = "s from the signal to the end of the command"


def told(command: Command, number: signal.Signals, took_s: list[float]) -> int:
    """Give it the signal; its exit code, and how long it took, at the end of `took_s`."""
    code, ended_s = command.told(number)
    assert "Traceback" not in command.said, command.said
    took_s.append(ended_s)
    return code


def cases() -> list[tuple[str, signal.Signals]]:
    every = [(name, signal.SIGINT) for name in (*SERVERS, *WAITING)]
    return every + [(name, signal.SIGTERM) for name in BY_SIGTERM]


@pytest.mark.parametrize(("name", "number"), cases())
def test_while_it_waits_for_a_server_that_is_silent(name: str, number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "index.lsx").write_bytes(
        whole_index(Index(IndexSettings(), lambda _: 0), "mooncake_cluster", lambda: None)
    )
    words = {**SERVERS, **WAITING}[name]
    for took_s in until_met(END_S, TOOK):
        with silent() as server, running(*words.format(at=server.address, tmp=tmp_path).split()) as command:
            server.reached()
            code = told(command, number, took_s)
            assert code == (0 if name in SERVERS else 128 + number), command.said
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
def test_while_it_still_loads(after_s: float, tmp_path: Path) -> None:
    """The terminal's Ctrl-C also hits a worker, and the processes of a search, that have hardly begun."""
    for words in (NODE.format(at="127.0.0.1:1", tmp=tmp_path), "sim --seeds 0:1000"):
        for took_s in until_met(END_S, TOOK):
            with running(*words.split()) as command:
                wait_until(command.catches_sigterm, "the first line of ours has run: until then Python answers for it")
                time.sleep(after_s)  # no condition: any moment must do
                assert told(command, signal.SIGINT, took_s) in (0, 128 + signal.SIGINT)
                wait_until(command.left_nothing, "everything that it has started ends")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_search_ends_its_processes(number: signal.Signals) -> None:
    for took_s in until_met(END_S, TOOK):
        with running("sim", "--seeds", "0:2000", "--jobs", "2") as command:
            wait_until(three_run(command), "two workers and the one who tracks their resources")
            assert told(command, number, took_s) == 128 + number, command.said
            wait_until(command.left_nothing, "everything that it has started ends")


def three_run(command: Command) -> Callable[[], bool]:
    return lambda: len(command.left()) >= 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_store(number: signal.Signals, tmp_path: Path) -> None:
    with running("store", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "store")) as command:
        command.wait_for("serves")
        assert told(command, number, []) == 0


def test_up_in_the_middle_of_its_start(tmp_path: Path) -> None:
    ports = ["--store-port", "0", "--rpc-port", "0", "--admin-port", "0", "--segment", "64KiB"]
    for took_s in until_met(2 * END_S, TOOK):
        with running("up", "--data", str(tmp_path / "up"), *ports) as command:
            command.wait_for("store ")
            pids = (tmp_path / "up" / "up.pids").read_text()
            assert told(command, signal.SIGINT, took_s) == 0, command.said
        assert '"store"' in pids
        assert not (tmp_path / "up" / "up.pids").exists()


SLEEPS = ("sleep", "60.5")  # not of a shell: one that is interrupted while it starts a command may lose that
HELD: dict[str, Callable[[str], tuple[str, ...]]] = {
    "a lock": lambda url: ("lock", "x", "--coord", url),
    "a lock with a command": lambda url: ("lock", "x", "--coord", url, "--", *SLEEPS),
    "a leadership": lambda url: ("elect", "x", "me", "--coord", url),
}


@pytest.mark.parametrize("kind", HELD)
def test_what_is_held_is_let_go_also_if_the_store_is_gone(kind: str) -> None:
    """It used to wait for the store for 15 s: as long as a lease and a call."""
    for took_s in until_met(END_S, TOOK):
        with StoreProcess() as store, running(*HELD[kind](store.url)) as command:
            if "command" in kind:
                wait_until(sleeps(command), "the command runs")
            else:
                command.wait_for("x/")
            store.kill()
            assert told(command, signal.SIGINT, took_s) == 130, command.said
            assert "what is held here ends by itself" in command.said
            assert command.left() == []


def sleeps(command: Command) -> Callable[[], bool]:
    return lambda: " ".join(SLEEPS) in map(str.strip, command.left())


def test_a_command_under_a_lock_ends_with_the_terminal_and_the_lock_is_free(served_store: StoreProcess) -> None:
    words = ("lock", "signals/1", "--coord", served_store.url, "--")
    with running(*words, *SLEEPS) as command:
        wait_until(sleeps(command), "the command runs")
        assert told(command, signal.SIGINT, []) == 130
        assert command.left() == []
    assert Command(*words, "sh", "-c", "exit 7").ended() == 7, "at once, not after the lease"
