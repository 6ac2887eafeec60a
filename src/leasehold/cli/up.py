"""`leasehold up`: everything on this machine, on loopback: a store, two nodes, two storage hosts."""

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
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import msgspec

from leasehold.admin.status import NodeStatus
from leasehold.base.errors import LeaseholdError, PeerError
from leasehold.base.units import parse_bytes
from leasehold.cli.earlier import Pids, after_the_earlier_one, forget, write_pids
from leasehold.cli.help import Explained
from leasehold.cli.operate import ADMIN_DEFAULT, addresses, call

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
POLL_S = 0.05
PORT = click.IntRange(0, 65534)  # there must be a next one
_PR_SET_PDEATHSIG = 1


class DidNotStart(LeaseholdError):
    """A part did not come up; the message names its log."""


class AskedToEnd(Exception):
    """Somebody has asked for the end."""


class Patience:
    """Waits, until a signal comes. Its handler raises nothing: an exception in the middle of a fork would be lost."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: self._asked.set())

    def wait(self, wait_s: float) -> None:
        if self._asked.wait(wait_s):
            raise AskedToEnd


class Up(msgspec.Struct):
    """Where everything is: also in DATA/up.json while it runs, for programs."""

    coord: str
    cluster: str
    rpc: list[str]
    admin: list[str]
    data: str


class Part:
    """One process of the whole."""

    def __init__(self, name: str, arguments: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "leasehold", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is ours: we end the parts in order
                preexec_fn=_die_with_parent,  # noqa: PLW1509 -- this process has one thread
            )

    def wait(self, patience: Patience, ready: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not ready():
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-5:])
                raise DidNotStart(f"{self.name} did not start; see {self.log}, which ends with:\n{tail}")
            patience.wait(POLL_S)

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


def _says_200(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, http.client.HTTPException):
        return False


def _segments(where: Up) -> int:
    """How many segments the primary knows of."""
    found = 0
    for admin in where.admin:
        with contextlib.suppress(PeerError):
            status = call(admin, "/api/status", NodeStatus)
            found = max(found, status.index.segments if status.may_serve else 0)
    return found


def _addresses(*ports: int) -> list[str]:
    """Loopback addresses; port 0 takes a free one, and none is taken twice."""
    with contextlib.ExitStack() as probes:
        chosen = []
        for port in ports:
            if port == 0:
                probe = probes.enter_context(socket.socket())  # open until all are chosen
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            chosen.append(f"127.0.0.1:{port}")
    return chosen


def _start(where: Up, store: str, segment: str, parts: list[Part], patience: Patience) -> None:
    """Start everything in order; a line for each as soon as it answers."""
    data = Path(where.data)
    data.mkdir(parents=True, exist_ok=True)
    forget(data)
    parts.append(Part("store", ["store", "--listen", store, "--data", str(data / "store")], data / "store.log"))
    _note(data, parts)
    parts[-1].wait(patience, lambda: _listens(store))
    click.echo(f"store    {where.coord}   (etcdctl --endpoints {store} works on it)")
    for name, rpc, admin, path in zip("ab", where.rpc, where.admin, ("primary", "standby"), strict=True):
        arguments = ["node", "--name", name, "--cluster", where.cluster, "--coord", where.coord, "--rpc", rpc]
        arguments += ["--admin", admin, "--data-dir", str(data / f"node-{name}")]
        parts.append(Part(f"node {name}", arguments, data / f"node-{name}.log"))
        _note(data, parts)
        # one after the other, so that it is a that leads: what the tour says is what people see
        parts[-1].wait(patience, lambda url=f"http://{admin}/{path}": _says_200(url))  # type: ignore[misc]  # early binding
        click.echo(f"{parts[-1].name}   clients at {rpc}, admin at http://{admin}/api/status")
    for number in (1, 2):
        arguments = ["host", "--segment", segment, "--coord", where.coord, "--cluster", where.cluster]
        parts.append(Part(f"host {number}", arguments, data / f"host-{number}.log"))
        _note(data, parts)
    for number, host in enumerate(parts[-2:], start=1):
        host.wait(patience, lambda mounted=number: _segments(where) >= mounted)  # type: ignore[misc]  # early binding
        click.echo(f"host {number}   lends {segment}")


@click.command(
    cls=Explained,
    examples=(
        ("leasehold up", "then, in another terminal: leasehold status"),
        ("leasehold up --data /tmp/try --store-port 0 --rpc-port 0 --admin-port 0", "beside another one; see up.json"),
    ),
)
@click.option(
    "--data",
    default="leasehold-data",
    show_default=True,
    type=click.Path(path_type=Path),
    help="directory for all data and logs",
)
@click.option("--cluster", default="mooncake_cluster", show_default=True, help="the cluster's name")
@click.option("--store-port", default=2379, show_default=True, type=PORT, help="the store's port; 0 takes a free one")
@click.option(
    "--rpc-port",
    default=50051,
    show_default=True,
    type=PORT,
    help="node a's port, node b takes the next; 0: free ones",
)
@click.option("--admin-port", default=8700, show_default=True, type=PORT, help="the same for the admin ports")
@click.option("--segment", default="256MiB", show_default=True, help="how much memory each storage host lends")
def up(data: Path, cluster: str, store_port: int, rpc_port: int, admin_port: int, segment: str) -> None:
    """Run a store, two nodes and two storage hosts here, on loopback only. Ctrl-C ends all of it."""
    _check_size(segment)
    after_the_earlier_one(data)
    pairs = [(port, port + 1 if port else 0) for port in (rpc_port, admin_port)]
    store, *others = _addresses(store_port, *pairs[0], *pairs[1])
    where = Up(coord=f"etcd://{store}", cluster=cluster, rpc=others[:2], admin=others[2:], data=str(data))
    for address in (store, *where.rpc, *where.admin):
        if _listens(address):
            raise DidNotStart(
                f"something listens at {address} already: is another `leasehold up` running? "
                "--store-port, --rpc-port and --admin-port choose other ports, 0 any free one"
            )
    patience = Patience()
    parts: list[Part] = []
    try:
        _start(where, store, segment, parts, patience)
        (data / "up.json").write_bytes(msgspec.json.format(msgspec.json.encode(where)))
        admin = "" if where.admin == addresses(ADMIN_DEFAULT) else f" --admin {','.join(where.admin)}"
        click.echo(f"ready    `{_myself()} status{admin}` shows it, Ctrl-C ends it, data and logs are in {data}/")
        _watch(parts, patience)
    except AskedToEnd:
        click.echo("ending: hosts, nodes, store")
    finally:
        _end(parts)
        if parts:
            forget(data)


def _note(data: Path, parts: list[Part]) -> None:
    write_pids(data, Pids(os.getpid(), {part.name: part.process.pid for part in parts}))


def _check_size(segment: str) -> None:
    """Here, and not by a host that has begun to start and whose log somebody must read."""
    try:
        parse_bytes(segment)
    except ValueError as error:
        raise click.BadParameter(f"{segment!r}: {error}", param_hint="--segment") from None


def _myself() -> str:
    """How this command is called from here: by its name if the shell finds it, else by its path."""
    called = Path(sys.argv[0])
    if shutil.which(called.name) or called.name != "leasehold":
        return "leasehold"
    here = Path.cwd()
    return str(called.relative_to(here) if called.is_relative_to(here) else called)


def _watch(parts: list[Part], patience: Patience) -> None:
    """Wait; say once if a part has ended by itself."""
    told: set[str] = set()
    while True:
        for part in parts:
            if part.process.poll() is not None and part.name not in told:
                told.add(part.name)
                click.echo(f"{part.name} has ended with status {part.process.returncode}; see {part.log}", err=True)
        patience.wait(0.5)


def _end(parts: list[Part]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    deadline_s = time.monotonic() + STOP_TIMEOUT_S
    for kind in ("host", "node", "store"):
        for part in (ours := [part for part in parts if part.name.startswith(kind)]):
            part.stop()
        for part in ours:
            with contextlib.suppress(OSError):
                part.end(deadline_s)
