"""Errors on the command line: one readable line that states what to do next, never a traceback."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.cli.processes import closed_address

from leasehold.base import renamed
from leasehold.base.settings import specs
from leasehold.cli.help import Explained
from leasehold.cli.main import COMMANDS, leasehold
from leasehold.cli.node import SECTIONS as NODE_SECTIONS
from leasehold.cli.settings import SECTIONS, SettingOption
from leasehold.testing.store import StoreProcess


def run(*arguments: str) -> tuple[int, str]:
    """Run the command as a user would; returns its exit code and everything it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "leasehold", *arguments], capture_output=True, text=True, timeout=90, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def taken() -> Iterator[str]:
    """An address that is in use."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield f"127.0.0.1:{sock.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    return closed_address()


NODE = ("node", "--rpc", "127.0.0.1:0", "--admin", "127.0.0.1:0")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (("--coord", "bogus://x"), 2, "coord: not the address of a store: 'bogus://x'; it looks like etcd://host:2379"),
        (("--coord", "etcd://h:2379?ca=/x.pem"), 2, "ca, cert and key are for TLS: write etcds://"),
        (("--coord", "etcds://h:2379?ca=/no/x.pem"), 2, "coord: ca = /no/x.pem: cannot be read: No such file"),
        (("--coord", f"etcds://h:2379?ca={__file__}"), 2, "test_errors.py holds no certificate in PEM"),
        (("--rpc-compat", "0.3.99=127.0.0.1:0"), 2, "no table for Mooncake 0.3.99; there are: 0.3.11, 0.3.12, 0.3.13"),
        (("--rpc", "localhost"), 2, "rpc = 'localhost' is not HOST:PORT; write for example 127.0.0.1:50051"),
        (("--leader-ttl", "1s"), 2, "leader_ttl (1000 ms) must be at least two flush intervals"),
        (("--buffer", "tape"), 2, "buffer = 'tape' is not a buffer; write disk or redis://HOST:PORT"),
        (("--data-dir", __file__), 2, "is a file; give a directory"),
        (("--data-dir", "/proc/nowhere"), 1, "data_dir = '/proc/nowhere' is not writable"),
    ],
)
def test_a_node_that_cannot_start_exits_with_the_reason(
    arguments: tuple[str, str], exit_code: int, message: str, tmp_path: Path
) -> None:
    """Exit code 2: it can never start like this (`RestartPreventExitStatus=2` in systemd); 1: perhaps later."""
    code, output = run(*NODE, "--data-dir", str(tmp_path), *arguments)
    assert (code, "Traceback" in output) == (exit_code, False), output
    assert message in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("status", "--admin", "127.0.0.1"), "--admin '127.0.0.1' is not HOST:PORT; write for example 127.0.0.1:8700"),
        (("host", "--master", "etcd://127.0.0.1:2379"), "'etcd://127.0.0.1:2379' is not an address of a master"),
        (("cache", "serve", "--store", "postgres://u:pw@h/x"), "store = 'postgres://u:***@h/x': memory://, sqlite://"),
    ],
)
def test_an_address_of_the_wrong_kind_is_rejected_with_the_right_form(arguments: tuple[str, ...], message: str) -> None:
    code, output = run(*arguments)
    assert (code, "Traceback" in output) == (2, False), output
    assert message in output


def test_two_nodes_cannot_share_a_directory(tmp_path: Path) -> None:
    data = tmp_path / "node"
    first = subprocess.Popen(
        [sys.executable, "-m", "leasehold", *NODE, "--data-dir", str(data)], stderr=subprocess.PIPE, text=True
    )
    try:
        assert first.stderr is not None
        for line in first.stderr:
            if "started a worker" in line:
                break
        code, output = run(*NODE, "--data-dir", str(data))
        assert code == 1
        assert f"is in use by another node (pid {first.pid}); give each node its own directory" in output
    finally:
        first.terminate()
        first.communicate(timeout=60)


@pytest.mark.parametrize(
    "arguments",
    [
        ("store", "--data", "/proc/nowhere", "--listen", "127.0.0.1:0"),
        ("up", "--data", "/proc/nowhere", "--store-port", "0", "--rpc-port", "0", "--admin-port", "0"),
    ],
)
def test_a_directory_that_cannot_be_created_is_named(arguments: tuple[str, ...]) -> None:
    assert run(*arguments) == (1, "leasehold: /proc/nowhere: No such file or directory\n")


def test_a_port_in_use_is_named(taken: str, closed: str) -> None:
    port = taken.rpartition(":")[2]
    for arguments, message in (
        (("store", "--listen", taken), f"cannot listen on {taken}: Address already in use"),
        (("cache", "serve", "--listen", taken), f"cannot listen on {taken}: Address already in use; name another"),
        (("host", "--listen", taken, "--segment", "64KiB", "--master", closed), f"listen = {taken}: cannot listen"),
        (("up", "--store-port", port), f"the port at {taken} is in use, perhaps by another `leasehold up`"),
    ):
        code, output = run(*arguments)
        assert (code, "Traceback" in output) == (1, False), output
        assert message in output


def test_more_memory_than_the_machine_has(closed: str) -> None:
    code, output = run("host", "--segment", "64TiB", "--listen", "127.0.0.1:0", "--master", closed)
    assert code == 1
    assert "segment = 64TiB: this machine cannot provide that much memory" in output


def test_an_invalid_certificate(tmp_path: Path) -> None:
    paper = tmp_path / "paper.pem"
    paper.write_text("not a certificate")
    code, output = run("store", "--listen", "127.0.0.1:0", "--tls-cert", str(paper), "--tls-key", str(paper))
    assert (code, "Traceback" in output) == (2, False), output
    assert f"TLS: no certificate with its key can be read from {paper}" in output


@pytest.mark.parametrize("store", ["sqlite:///proc/nowhere/cache.db", "redis://{closed}", "etcd://{closed}"])
def test_an_unreachable_backing_store_of_the_cache(store: str, closed: str) -> None:
    code, output = run("cache", "serve", "--listen", "127.0.0.1:0", "--store", store.format(closed=closed))
    assert (code, "Traceback" in output) == (1, False), output
    assert store.format(closed=closed).partition("://")[2] in output


def test_a_node_that_does_not_answer(closed: str) -> None:
    for command in ("status", "history", "switchover", "pause", "resume", "feature-level show"):
        code, output = run(*command.split(), "--admin", f"http://{closed}/")
        assert code == 1
        assert f"no node answers at {closed} (Connection refused): check that it runs, or name other nodes" in output


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('[noode]\nname = "a"', "{file}:1: unknown section [noode]; did you mean 'node'?"),
        ('# ours\nname = "a"', "{file}:2: 'name' is outside any section; move it below a [section] line"),
        ('[node]\nclustr = "a"', "{file}:2: unknown setting 'clustr' in [node]; did you mean 'cluster'?"),
        ('[store]\nquota = "1GiB"\n[index]\nlease_ttl = 10', "{file}:4: lease_ttl = 10: not a number with a unit"),
        ('[node]\nname = "a', "{file}: not valid TOML"),
        ("\udc97", "'{file}' cannot be read as a TOML file"),
        ('[node]\nname = "a"\n[node]\n', "{file}: not valid TOML: Cannot declare ('node',) twice (at line 3"),
        ('[node]\nname = "a"\nname = "b"\n', "{file}: not valid TOML: Cannot overwrite a value (at line 3"),
        ("[node]\nname = 5", "{file}:2: name = 5: expected a text; write it in quotes"),
        ("[ha]\ndurability = true", "{file}:2: durability = True: expected a text; write it in quotes"),
        ('[node]\nname = ["a"]', "{file}:2: name = ['a']: expected text, not a list"),
        (
            '[index]\nlease_ttl = "5MiB"',
            "{file}:2: lease_ttl = '5MiB': not a number with a unit; write for example 10s",
        ),
        ('[wire]\nframe = "5s"', "{file}:2: frame = '5s': not a number with a unit; write for example 64MiB"),
        ('node.name = "a"\nindex.lease_ttl = "x"', "{file}:2: lease_ttl = 'x'"),
        ('# ours\n[[node]]\nname = "a"', "{file}:2: [[node]] is a list of sections; write [node]"),
        ('[index]\nlease_ttl = "0s"', "{file}:2: lease_ttl = '0s' is out of bounds; use 10ms to 1h"),
    ],
)
def test_a_settings_file_with_a_mistake(toml: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "leasehold.toml"
    file.write_text(toml, errors="surrogateescape")
    result = CliRunner().invoke(leasehold, ["node", "--config", str(file)])
    assert result.exit_code == 2, result.output
    assert message.format(file=file) in result.output


def test_every_renamed_setting_works_as_a_flag_and_warns() -> None:
    for section, names in renamed.SETTINGS.items():
        for old, new in names.items():
            _, spec = specs(NODE_SECTIONS[section])[new]
            value = spec.show(spec.high) if spec.unit != "text" else "127.0.0.1:1"
            result = CliRunner().invoke(leasehold, ["node", f"--{old.replace('_', '-')}", value, "--show-settings"])
            assert result.exit_code == 0, result.output
            assert f"flag --{old.replace('_', '-')} was renamed to --{new.replace('_', '-')}" in result.output
            (line,) = [line for line in result.output.splitlines() if line.startswith(f"{section}.{new} ")]
            assert line.split()[1] == value


def test_a_renamed_command_and_flag_work_and_warn(served_store: StoreProcess, tmp_path: Path) -> None:
    for old, new in renamed.COMMANDS.items():
        result = CliRunner().invoke(leasehold, [*old.split(), "--data-dir", str(tmp_path)])
        assert result.exit_code == 0, result.output
        assert f"`leasehold {old}` was renamed to `leasehold {new}`" in result.output
    code, output = run("journal", "show", f"--{renamed.UNLOGGED_FLAG}", "--coord", served_store.url)
    assert code == 0
    assert "was renamed to --unlogged" in output


def test_the_environment_with_a_mistake() -> None:
    for variable, value, message in (
        ("LEASEHOLD_INDEX_LEASE_TTL", "5", "environment variable LEASEHOLD_INDEX_LEASE_TTL: lease_ttl = '5': not a"),
        ("LEASEHOLD_NODE_NMAE", "a", "LEASEHOLD_NODE_NMAE: unknown setting 'nmae' in [node]; did you mean 'name'?"),
        ("LEASEHOLD_HA_COPIES", "99", "LEASEHOLD_HA_COPIES: copies = '99' is out of bounds; use 1 to 7"),
    ):
        result = CliRunner(env={variable: value}).invoke(leasehold, ["node", "--show-settings"])
        assert result.exit_code == 2, result.output
        assert message in result.output


def test_malformed_addresses(tmp_path: Path) -> None:
    for words, message in (
        ("cache get k --server nonsense", "'nonsense' is not an address: write HOST:PORT"),
        ("cache get k --server 127.0.0.1:99999", "'127.0.0.1:99999' is not an address: write HOST:PORT"),
        ("cache serve --listen nonsense", "'nonsense' is not an address: write HOST:PORT"),
        ("host --segment 64KiB --master nonsense", "'nonsense' is not an address: write HOST:PORT"),
        ("store --listen 127.0.0.1:99999", "'127.0.0.1:99999' is not an address to listen on"),
        ("node --rpc nonsense", "rpc = 'nonsense' is not HOST:PORT"),
        ("journal quarantined --buffer nonsense", "buffer = 'nonsense' is not a buffer; write disk or redis://"),
        (f"journal quarantined --data-dir {tmp_path}/none", "is not a directory: run this on the node's host"),
        ("lock x --coord nonsense -- true", "not the address of a store: 'nonsense'"),
    ):
        code, output = run(*words.split())
        assert (code, "Traceback" in output) == (2, False), output
        assert message in output


def test_flags_with_a_mistake() -> None:
    for arguments, message in (
        (["sim", "--seeds", "5:1"], "'5:1' is an empty range"),
        (["sim", "--events", "0"], "0 is not in the range x>=1"),
        (["lock", "x", "--ttl", "0"], "0 is not in the range x>=1"),
        (["up", "--store-port", "99999"], "99999 is not in the range 0<=x<=65534"),
        (["up", "--segment", "much"], "'much': not a number with a unit; write for example 64MiB or 1GiB"),
        (["node", "--held-connections-max", "many"], "held_connections_max = 'many': not a whole number"),
        (["node", "--drift", "1%"], "drift = '1%': not a fraction; write for example 0.9"),
    ):
        result = CliRunner().invoke(leasehold, arguments)
        assert result.exit_code == 2, result.output
        assert message in result.output


@pytest.mark.parametrize(
    "words",
    [
        "lock x --coord memory:// -- true",
        "elect x me --coord memory://here",
        "elect x --listen --coord memory://",
        "journal show --coord memory://",
        "import --coord memory:// --data-dir {tmp}/new {tmp}",
        "host --coord memory://",
        "cache serve --elect memory://",
    ],
)
def test_a_store_in_memory_is_rejected_where_processes_must_share_it(words: str, tmp_path: Path) -> None:
    (tmp_path / "index.lsx").write_text("")
    arguments = words.format(tmp=tmp_path).replace(f" {tmp_path}", f" {tmp_path}/index.lsx").split()
    result = CliRunner().invoke(leasehold, [part.replace("/index.lsx/new", "/new") for part in arguments])
    assert result.exit_code == 2, result.output
    assert "a store in memory exists only within this process" in result.output


@pytest.mark.parametrize("group", ["", "cache", "journal"])
def test_help_lists_commands_with_whole_sentences(group: str) -> None:
    output = CliRunner().invoke(leasehold, [*group.split(), "--help"]).output
    assert "..." not in output.partition("\n")[2], output


def every_command() -> dict[str, click.Command]:
    context = click.Context(leasehold)
    found: dict[str, click.Command] = {}
    for name in COMMANDS:
        command = leasehold.get_command(context, name)
        assert command is not None
        below = command.commands if isinstance(command, click.Group) else {}
        found |= {f"{name} {sub}": each for sub, each in below.items()} or {name: command}
    return found


def test_every_command_has_examples() -> None:
    for name in every_command():
        result = CliRunner().invoke(leasehold, [*name.split(), "--help"])
        assert result.exit_code == 0, result.output
        assert name == "version" or "Examples:" in result.output, name


def examples() -> list[str]:
    return [line for each in every_command().values() if isinstance(each, Explained) for line, _ in each.examples]


def test_the_examples_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse every example and check its settings; files that the examples name are created first."""
    monkeypatch.chdir(tmp_path)
    for line in examples():
        words = shlex.split(line.partition("|")[0])
        for place, word in enumerate(words):
            if word.endswith((".toml", ".snap", ".lsx")):
                words[place] = str(tmp_path / Path(word).name)
                Path(words[place]).write_text("")
        name = next(each for each in sorted(every_command(), key=len, reverse=True) if line[10:].startswith(each))
        arguments = words[1 + len(name.split()) :]
        command = every_command()[name]
        command.make_context(name, list(arguments))
        if any(isinstance(option, SettingOption) for option in command.params):
            shown = CliRunner().invoke(leasehold, [*name.split(), *arguments, "--show-settings"])
            assert shown.exit_code == 0, shown.output


def test_the_examples_that_need_only_a_store_run(served_store: StoreProcess, tmp_path: Path) -> None:
    script = tmp_path / "nightly.sh"
    script.write_text("#!/bin/sh\necho $LEASEHOLD_LOCK_TOKEN\n")
    script.chmod(0o755)
    environment = {
        **os.environ,
        "LEASEHOLD_COORD": served_store.url,
        "LEASEHOLD_NODE_COORD": served_store.url,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    chosen = [
        line for line in examples() if line.split()[1] in ("plan", "lock") or line.startswith("leasehold journal show")
    ]
    assert len(chosen) == 6
    for line in chosen:
        done = subprocess.run(
            line, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)


def test_every_section_of_the_settings_file_is_known() -> None:
    found = set()
    for name in COMMANDS:
        command = leasehold.get_command(leasehold.make_context("leasehold", ["version"]), name)
        commands = [command, *getattr(command, "commands", {}).values()]
        found |= {option.section for each in commands for option in each.params if isinstance(option, SettingOption)}
    assert found == set(SECTIONS)


def test_show_settings_prints_each_value_and_its_origin(tmp_path: Path) -> None:
    file = tmp_path / "leasehold.toml"
    file.write_text('[index]\nlease_ttl = "5s"\n')
    arguments = ["node", "--config", str(file), "--drift", "0.02", "--show-settings"]
    result = CliRunner(env={"LEASEHOLD_NODE_NAME": "a"}).invoke(leasehold, arguments)
    assert result.exit_code == 0, result.output
    shown = {line.split()[0]: line.split(maxsplit=2)[1:] for line in result.output.splitlines()}
    assert shown["index.lease_ttl"] == ["5s", f"{file}:2"]
    assert shown["ha.drift"] == ["0.02", "flag --drift"]
    assert shown["node.name"] == ["a", "environment variable LEASEHOLD_NODE_NAME"]
    assert shown["wire.idle"] == ["10m", "default"]
