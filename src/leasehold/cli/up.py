"""`leasehold up`: run a complete local cluster on loopback: a store, two nodes, two storage hosts."""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import msgspec

from leasehold.admin.status import NodeStatus
from leasehold.base.errors import LeaseholdError, PeerError
from leasehold.base.units import parse_bytes
from leasehold.cli.help import Explained
from leasehold.cli.operate import ADMIN_DEFAULT, addresses, call, opened
from leasehold.cli.previous_up import Pids, remove_state, wait_for_previous, write_pids
from leasehold.runtime.private_files import make_files_private

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
POLL_S = 0.05
PORT = click.IntRange(0, 65534)  # the second node uses the next port
_PR_SET_PDEATHSIG = 1


class DidNotStart(LeaseholdError):
    """A process of the cluster did not start; the message names its log."""


class StopRequested(Exception):
    """SIGINT or SIGTERM arrived."""


class SignalWaiter:
    """Waits for a time or a signal. The signal handler itself raises nothing: an exception during a fork is lost."""

    def __init__(self) -> None:
        self._signalled = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: self._signalled.set())

    def wait(self, wait_s: float) -> None:
        if self._signalled.wait(wait_s):
            raise StopRequested


class Up(msgspec.Struct):
    """All addresses; written to DATA/up.json while `up` runs, for programs."""

    coord: str
    cluster: str
    rpc: list[str]
    admin: list[str]
    data: str


class Part:
    """One process of the local cluster."""

    def __init__(self, name: str, arguments: Sequence[str], log: Path, *, module: str = "leasehold") -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C must not reach the parts: `up` stops them in order
                preexec_fn=_die_with_parent,  # noqa: PLW1509 -- this process has one thread
            )

    def wait(self, waiter: SignalWaiter, ready: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not ready():
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-5:])
                raise DidNotStart(f"{self.name} did not start; the last lines of its log '{self.log}' are:\n{tail}")
            waiter.wait(POLL_S)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()

    def end(self, deadline_s: float) -> None:
        try:
            self.process.wait(max(0.1, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def _answers_200(address: str, path: str) -> bool:
    try:
        with opened(address, path, timeout_s=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, http.client.HTTPException):
        return False


def _segments(where: Up) -> int:
    """Number of segments mounted at the primary."""
    found = 0
    for admin in where.admin:
        with contextlib.suppress(PeerError):
            status = call(admin, "/api/status", NodeStatus)
            found = max(found, status.index.segments if status.may_serve else 0)
    return found


def _addresses(*ports: int) -> list[str]:
    """Loopback addresses; port 0 picks a free one, and none is picked twice."""
    with contextlib.ExitStack() as probes:
        chosen = []
        for port in ports:
            if port == 0:
                probe = probes.enter_context(socket.socket())  # open until all are chosen
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            chosen.append(f"127.0.0.1:{port}")
    return chosen


def _start(where: Up, store: str, segment: str, parts: list[Part], waiter: SignalWaiter) -> None:
    """Start all parts in order, and print a line for each as soon as it answers."""
    data = Path(where.data)
    data.mkdir(parents=True, exist_ok=True)
    remove_state(data)
    parts.append(Part("store", ["store", "--listen", store, "--data", str(data / "store")], data / "store.log"))
    _save_pids(data, parts)
    parts[-1].wait(waiter, lambda: _listens(store))
    click.echo(f"store    {where.coord}   (also for etcdctl --endpoints {store})")
    for name, rpc, admin, path in zip("ab", where.rpc, where.admin, ("primary", "standby"), strict=True):
        arguments = ["node", "--name", name, "--cluster", where.cluster, "--coord", where.coord, "--rpc", rpc]
        arguments += ["--admin", admin, "--data-dir", str(data / f"node-{name}")]
        parts.append(Part(f"node {name}", arguments, data / f"node-{name}.log"))
        _save_pids(data, parts)
        # one after the other, so that node a leads, as the docs show it
        parts[-1].wait(waiter, lambda at=admin, path=f"/{path}": _answers_200(at, path))  # type: ignore[misc]  # early binding
        click.echo(f"{parts[-1].name}   clients at {rpc}, admin at http://{admin}/api/status")
    for number in (1, 2):
        arguments = ["host", "--segment", segment, "--coord", where.coord, "--cluster", where.cluster]
        parts.append(Part(f"host {number}", arguments, data / f"host-{number}.log"))
        _save_pids(data, parts)
    for number, host in enumerate(parts[-2:], start=1):
        host.wait(waiter, lambda mounted=number: _segments(where) >= mounted)  # type: ignore[misc]  # early binding
        click.echo(f"host {number}   lends {segment}")


@click.command(
    cls=Explained,
    examples=(
        ("leasehold up", "then run `leasehold status` in another terminal"),
        ("leasehold up --load --open", "with a little load, and the dashboard in a browser"),
        (
            "leasehold up --data /tmp/try --store-port 0 --rpc-port 0 --admin-port 0",
            "a second one, on free ports (listed in /tmp/try/up.json)",
        ),
    ),
)
@click.option(
    "--data",
    default="leasehold-data",
    show_default=True,
    type=click.Path(path_type=Path),
    help="directory for all data and logs",
)
@click.option("--cluster", default="mooncake_cluster", show_default=True, help="name of the cluster")
@click.option("--store-port", default=2379, show_default=True, type=PORT, help="port of the store; 0 picks a free one")
@click.option(
    "--rpc-port",
    default=50051,
    show_default=True,
    type=PORT,
    help="port of node a for clients; node b uses the next one; 0 picks free ones",
)
@click.option(
    "--admin-port",
    default=8700,
    show_default=True,
    type=PORT,
    help="admin port of node a; node b uses the next one; 0 picks free ones",
)
@click.option("--segment", default="256MiB", show_default=True, help="memory that each storage host lends")
@click.option("--load", is_flag=True, help="add a little load (20 puts a second), so that there is something to see")
@click.option("--open", "open_page", is_flag=True, help="open the dashboard in a browser")
def up(
    data: Path,
    cluster: str,
    store_port: int,
    rpc_port: int,
    admin_port: int,
    segment: str,
    load: bool,
    open_page: bool,
) -> None:
    """Run a complete local cluster: a store, two nodes and two storage hosts, on loopback. Ctrl-C stops everything."""
    make_files_private()
    _check_size(segment)
    wait_for_previous(data)
    pairs = [(port, port + 1 if port else 0) for port in (rpc_port, admin_port)]
    store, *others = _addresses(store_port, *pairs[0], *pairs[1])
    where = Up(coord=f"etcd://{store}", cluster=cluster, rpc=others[:2], admin=others[2:], data=str(data))
    for address in (store, *where.rpc, *where.admin):
        if _listens(address):
            raise DidNotStart(
                f"the port at {address} is in use, perhaps by another `leasehold up`: choose others with "
                "--store-port, --rpc-port and --admin-port (0 picks a free one)"
            )
    waiter = SignalWaiter()
    parts: list[Part] = []
    try:
        _start(where, store, segment, parts, waiter)
        if load:
            parts.append(Part("load", [",".join(where.rpc)], data / "load.log", module="leasehold.cli.load"))
            _save_pids(data, parts)
            click.echo("load     puts and reads, about 2 MB a second")
        (data / "up.json").write_bytes(msgspec.json.format(msgspec.json.encode(where)))
        admin = "" if where.admin == addresses(ADMIN_DEFAULT) else f" --admin {','.join(where.admin)}"
        click.echo(f"dashboard http://{where.admin[0]}/ shows it live, as does `{_command_name()} top{admin}`")
        click.echo(
            f"ready    `{_command_name()} status{admin}` shows it, Ctrl-C stops it; data and logs are in {data}/"
        )
        if open_page:
            _open(f"http://{where.admin[0]}/")
        _watch(parts, waiter)
    except StopRequested:
        click.echo("stopping: hosts, nodes, store")
    finally:
        _end(parts)
        if parts:
            remove_state(data)


def _save_pids(data: Path, parts: list[Part]) -> None:
    write_pids(data, Pids(os.getpid(), {part.name: part.process.pid for part in parts}))


def _open(page: str) -> None:
    import webbrowser

    if not webbrowser.open(page):
        click.echo(f"no browser was found on this machine: open {page} in one", err=True)


def _check_size(segment: str) -> None:
    """Check the size here, so that the error is not hidden in the log of a host."""
    try:
        parse_bytes(segment)
    except ValueError as error:
        raise click.BadParameter(f"{segment!r}: {error}", param_hint="--segment") from None


def _command_name() -> str:
    """How to call this command: by name if it is on the PATH, else by path."""
    called = Path(sys.argv[0])
    if shutil.which(called.name) or called.name != "leasehold":
        return "leasehold"
    here = Path.cwd()
    return str(called.relative_to(here) if called.is_relative_to(here) else called)


def _watch(parts: list[Part], waiter: SignalWaiter) -> None:
    """Wait for a signal; report a part that exits, once."""
    reported: set[str] = set()
    while True:
        for part in parts:
            if part.process.poll() is not None and part.name not in reported:
                reported.add(part.name)
                click.echo(f"{part.name} exited with status {part.process.returncode}; see '{part.log}'", err=True)
        waiter.wait(0.5)


def _end(parts: list[Part]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    deadline_s = time.monotonic() + STOP_TIMEOUT_S
    for kind in ("load", "host", "node", "store"):
        for part in (ours := [part for part in parts if part.name.startswith(kind)]):
            part.stop()
        for part in ours:
            with contextlib.suppress(OSError):
                part.end(deadline_s)
