"""`leasehold up`: everything on loopback, with our own client and a real one, also after kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.cli.processes import family, runs
from tests.cli.processes import running as running_command

from leasehold.admin.status import ClusterStatus, NodeStatus
from leasehold.base.errors import PeerError
from leasehold.cli.operate import first_answering
from leasehold.cli.previous_up import Pids
from leasehold.cli.status import gather, problems
from leasehold.pool import Pool
from leasehold.testing import mooncake
from leasehold.testing.ports import free_ports
from leasehold.testing.process import wait_until

pytestmark = pytest.mark.xdist_group("up")  # its processes are shared by the module

PUT_GET = Path(__file__).parent / "clients" / "put_get.py"


class Where(msgspec.Struct):
    coord: str
    cluster: str
    rpc: list[str]
    admin: list[str]


PROCESSES = 8  # `up` itself, the store, two guardians with a worker each, two hosts


class Running:
    """A running `leasehold up`, and what it printed until it was ready."""

    def __init__(self, process: subprocess.Popen[str], lines: list[str], data: Path) -> None:
        self.process = process
        self.lines = lines
        self.data = data
        self.where = msgspec.json.decode((data / "up.json").read_bytes(), type=Where)

    def pids(self) -> list[int]:
        """All its processes, itself first."""
        return family(self.process.pid)

    def settle(self) -> ClusterStatus:
        """Wait until every process is there, one node leads and the other is ready; how the cluster is then."""
        found: list[ClusterStatus] = []

        def settled() -> bool:
            # A killed worker's registration outlives it by its lease, and says "ready" for it: count heads first.
            if len(self.pids()) < PROCESSES:
                return False
            try:
                _, cluster = first_answering(",".join(self.where.admin), "/api/cluster", ClusterStatus)
            except PeerError:  # no answer yet, or not soon enough
                return False
            found[:] = [cluster]
            return bool(cluster.leader) and sum(peer.ready for peer in cluster.nodes) == 2

        wait_until(settled, "one leads and the other is ready")
        return found[0]

    def kill_the_primarys_worker(self) -> None:
        leader = self.settle().leader
        for pid in self.pids():
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"leasehold.node.worker" in command:
                guardian = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
                words = Path(f"/proc/{guardian}/cmdline").read_bytes().split(b"\0")
                if words[words.index(b"--name") + 1].decode() == leader:
                    os.kill(pid, signal.SIGKILL)
                    return
        raise AssertionError("the primary's worker was not found")


def two_ports() -> str:
    """The first of two ports in a row: each node has one."""
    first, second = free_ports(2)
    while second != first + 1:
        first, second = second, free_ports(1)[0]
    return str(first)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("up")
    data = folder / "leasehold-data"
    ports = ["--store-port", str(free_ports(1)[0]), "--rpc-port", two_ports(), "--admin-port", two_ports()]
    process = subprocess.Popen(
        [sys.executable, "-m", "leasehold", "up", "--data", str(data), "--segment", "64MiB", *ports],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
    )
    lines: list[str] = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            if line.startswith("ready"):
                break
        assert lines[-1].startswith("ready"), lines
        yield Running(process, lines, data)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        finally:
            process.kill()


def test_it_prints_one_line_per_process(running: Running) -> None:
    assert [line.split()[0] for line in running.lines] == [
        "store",
        "node",
        "node",
        "host",
        "host",
        "dashboard",
        "ready",
    ]


def test_nothing_listens_beyond_loopback(running: Running) -> None:
    inodes = set()
    for pid in running.pids():
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(fd) if fd.is_symlink() else ""
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    listening = []
    for table, loopback in (("tcp", "0100007F"), ("tcp6", "00000000000000000000000001000000")):
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == "0A" and fields[9] in inodes:
                listening.append((fields[1].split(":")[0], loopback))
    assert len(listening) >= 9, "store, four ports of each node (clients, forward, admin), two hosts"
    assert all(address == loopback for address, loopback in listening)


async def test_our_own_client_puts_and_gets_also_after_kill_9(running: Running) -> None:
    async with Pool(",".join(running.where.rpc)) as pool:
        await pool.put("ours", b"bytes" * 1000)
        assert await pool.get("ours") == b"bytes" * 1000
        running.kill_the_primarys_worker()
        assert await pool.get("ours") == b"bytes" * 1000
        await pool.put("later", b"more")
        assert await pool.get("later") == b"more"


EXAMPLES = Path(__file__).parents[2] / "examples" / "pool"


def test_the_tour_of_the_readme(running: Running) -> None:
    """Run the commands of the README: an example, then the worker's pid out of its status."""
    command = [sys.executable, str(EXAMPLES / "put_get.py"), ",".join(running.where.rpc), "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert [line.split(" in ")[0] for line in done.stdout.splitlines()] == [
        "tour/0: put and got 1000 bytes",
        "tour/1: put and got 1000 bytes",
    ]
    _, status = first_answering(running.where.admin[0], "/api/status", NodeStatus)
    assert status.pid in running.pids()


@pytest.mark.usefixtures("wheel")
def test_the_tour_with_mooncakes_client(running: Running) -> None:
    done = subprocess.run(
        [str(mooncake.venv() / "bin" / "python"), str(EXAMPLES / "mooncake_client.py"), running.where.rpc[0]],
        env={**os.environ, **mooncake.client_environment()},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert [line for line in done.stdout.splitlines() if line.startswith(("put", "get"))] == ["put 0", "get b'world'"]


@pytest.mark.usefixtures("wheel")
def test_a_real_client_puts_and_gets_also_after_kill_9(running: Running) -> None:
    process = subprocess.Popen(
        [str(mooncake.venv() / "bin" / "python"), str(PUT_GET), running.where.coord, "4"],
        env={**os.environ, **mooncake.client_environment(), "MC_STORE_CLUSTER_ID": running.where.cluster},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        for number in range(4):
            if number == 2:
                running.kill_the_primarys_worker()
            print(file=process.stdin, flush=True)
            assert process.stdout.readline().split() == ["ok", str(number)]
    finally:
        process.kill()
        process.wait()


def test_a_second_up_in_the_same_directory_is_rejected(running: Running) -> None:
    again = [sys.executable, "-m", "leasehold", "up", "--data", str(running.data), "--store-port", "0"]
    done = subprocess.run(again, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert f"another `leasehold up` (process {running.process.pid}) uses" in done.stderr


def test_status_while_the_store_does_not_answer(running: Running) -> None:
    """It reported that no node answers, although they did: the operator must see that the store is unavailable."""
    running.settle()
    store = msgspec.json.decode((running.data / "up.pids").read_bytes(), type=Pids).parts["store"]
    os.kill(store, signal.SIGSTOP)
    try:
        found = gather(",".join(running.where.admin))
    finally:
        os.kill(store, signal.SIGCONT)
    assert sorted(found.nodes) == ["a", "b"]
    assert "store did not answer" in found.store_problem
    assert found.store_problem in problems(found)[0]
    running.settle()


def test_ctrl_c_stops_every_process(running: Running) -> None:
    running.settle()
    pids = running.pids()
    assert len(pids) == PROCESSES
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(60) == 0
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "every process exits")
    assert not (running.data / "up.json").exists()  # it is no longer true


def test_a_little_load_and_the_page_in_a_browser(tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o700)
    ports = ["--store-port", "0", "--rpc-port", "0", "--admin-port", "0", "--segment", "64MiB"]
    with running_command(
        "up", "--load", "--open", "--data", str(tmp_path / "up"), *ports, env={"BROWSER": f"{browser} %s"}
    ) as command:
        command.wait_for("ready ")
        where = msgspec.json.decode((tmp_path / "up" / "up.json").read_bytes(), type=Where)
        wait_until((tmp_path / "opened").exists, "the browser was started")
        wait_until(lambda: (tmp_path / "opened").read_text() == f"http://{where.admin[0]}/\n", "with the page")

        def some_objects() -> bool:
            _, status = first_answering(where.admin[0], "/api/status", NodeStatus)
            return status.index.objects > 10

        wait_until(some_objects, "the load puts objects")
        pids = family(command.process.pid)
        assert command.send(signal.SIGINT)[0] == 0, command.output
        assert "Traceback" not in command.output
        wait_until(lambda: not any(map(runs, pids)), "every process exits")
