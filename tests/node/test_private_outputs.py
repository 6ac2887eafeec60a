"""Passwords appear in no output, and files are readable by their owner only."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from leasehold.base.errors import InvalidArgument
from leasehold.base.text import without_password
from leasehold.coord.url import parse_url
from leasehold.testing.node import NodeProcess
from leasehold.testing.process import wait_until
from leasehold.testing.store import StoreProcess

PASSWORDS = ["hunter2", "hun/ter2", "hun?ter2", "hun#ter2", "hun@ter2", "h:un/t?er2", "hun%2Fter2"]


def parse_error(url: str) -> str:
    """The message for an address that is refused, or ""."""
    try:
        parse_url(url)
    except InvalidArgument as error:
        return str(error)
    return ""


@pytest.mark.parametrize("password", PASSWORDS)
def test_a_password_is_masked_in_settings_and_errors(password: str) -> None:
    url = f"etcd://root:{password}@127.0.0.1:2379"
    assert without_password(url) == "etcd://root:***@127.0.0.1:2379"
    shown = parse_error(url)
    assert not [part for part in ("hun", "ter2") if part in shown], shown
    environment = {**os.environ, "LEASEHOLD_NODE_COORD": url, "LEASEHOLD_NODE_BUFFER": url.replace("etcd", "redis")}
    done = subprocess.run(
        [sys.executable, "-m", "leasehold", "node", "--show-settings"],
        env=environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "etcd://root:***@127.0.0.1:2379" in done.stdout
    assert not [part for part in ("hun", "ter2") if part in done.stdout + done.stderr]


def test_addresses_without_a_password_are_shown_whole() -> None:
    for url in ("etcd://h1:2379,h2:2379", "etcds://h:2379?ca=/a/b", "redis://h:6379/0", "embedded:///var/x"):
        assert without_password(url) == url


def test_the_log_of_a_node_has_no_password(tmp_path: Path) -> None:
    node = NodeProcess("etcd://root:hunter2@127.0.0.1:1", "a", data_dir=tmp_path)
    node.spawn()
    try:
        wait_until(lambda: "the node is starting" in node.log_path.read_text(), "the node logs its start")
        wait_until(lambda: "waiting for the store" in node.log_path.read_text(), "it logs that the store is away")
    finally:
        node.kill()
    assert "hunter2" not in node.log_path.read_text()
    assert "root:***@" in node.log_path.read_text()


def open_to_others(folder: Path) -> list[str]:
    every = [folder, *folder.rglob("*")]
    return [str(path) for path in every if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_files_are_private_under_a_common_umask(tmp_path: Path) -> None:
    """Data, logs and the index of all names were readable for every user of the machine."""
    before = os.umask(0o022)
    try:
        store_dir, node_dir = tmp_path / "store", tmp_path / "node"
        with StoreProcess(data_dir=store_dir) as store:
            arguments = ["--durability", "buffered"]
            with NodeProcess(store.url, "a", data_dir=node_dir, arguments=arguments) as node:
                wait_until(node.is_primary, "the node leads")
                assert open_to_others(node_dir / "data") == []
                assert open_to_others(store.data_dir) == []
    finally:
        os.umask(before)
