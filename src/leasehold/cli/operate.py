"""Shared by the operator's commands: calls to a node's admin port, and printing."""

from __future__ import annotations

import contextlib
import http.client
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
import msgspec

from leasehold.admin.access import COMMAND_HEADER, first_token
from leasehold.admin.status import ClusterStatus, Operated, Peer
from leasehold.base.decoding import UNDECODABLE
from leasehold.base.errors import InvalidArgument, NotFound, PeerError, Refused, Unavailable
from leasehold.base.text import printable
from leasehold.runtime.reloaded import read_small
from leasehold.runtime.tls import Tls

T = TypeVar("T")
A = TypeVar("A")
F = TypeVar("F", bound=Callable[..., Any])
ADMIN_DEFAULT = "127.0.0.1:8700,127.0.0.1:8701"
TIMEOUT_S = 3.0
OPERATE_TIMEOUT_S = 40.0
PARALLEL_MAX = 16

TLS_OPTIONS = {
    "--tls-ca": "PEM file with the authority of the servers' certificates; TLS is used then",
    "--tls-cert": "PEM file with the certificate that identifies you",
    "--tls-key": "PEM file with its key",
    "--tls-peer-name": "name that the servers' certificates have, if not the host in their address",
}
_CREDENTIALS = f"{__name__}.credentials"  # in the click context, so that every call of a command finds them


@dataclass
class Credentials:
    """How a command identifies itself to the nodes."""

    token: str = ""
    files: dict[str, str] = field(default_factory=dict)  # of TLS, by the parameter of `Tls`

    def tls(self) -> Tls | None:
        """None: the nodes are addressed without TLS."""
        return Tls(**self.files) if self.files else None

    def opener(self) -> urllib.request.OpenerDirector:
        """For requests to nodes: never through a proxy that the environment names for web pages."""
        tls = self.tls()
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if tls is not None:
            handlers.append(NamedHttps(tls))
        return urllib.request.build_opener(*handlers)

    @property
    def scheme(self) -> str:
        return "https" if self.files else "http"

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


class NamedHttps(urllib.request.HTTPSHandler):
    """HTTPS to servers whose certificates have the name that `tls` expects."""

    def __init__(self, tls: Tls) -> None:
        super().__init__()
        self._tls = tls

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        def connection(host: str, **options: Any) -> NamedConnection:
            return NamedConnection(host, self._tls, options["timeout"])

        return self.do_open(connection, req)


class NamedConnection(http.client.HTTPSConnection):
    """One connection of `NamedHttps`."""

    def __init__(self, host: str, tls: Tls, timeout_s: float) -> None:
        super().__init__(host, timeout=timeout_s)
        self._tls = tls

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.client().wrap_socket(self.sock, server_hostname=self._tls.server_name(self.host))


def credentials() -> Credentials:
    """Those of the running command, or none."""
    context = click.get_current_context(silent=True)
    if context is None:
        return Credentials()
    found: Credentials = context.meta.setdefault(_CREDENTIALS, Credentials())
    return found


def _take_token(context: click.Context, _: click.Parameter, file: Path | None) -> None:
    if file is not None:
        credentials().token = first_token(read_small(file, "--token-file"))


_admin_address_option = click.option(
    "--admin",
    default=ADMIN_DEFAULT,
    show_default=True,
    envvar="LEASEHOLD_ADMIN",
    metavar="HOST:PORT,...",
    help="admin addresses of the nodes; the first one that answers is used (LEASEHOLD_ADMIN)",
)
_token_option = click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="LEASEHOLD_TOKEN_FILE",
    expose_value=False,
    callback=_take_token,
    help="file with the token to send to the nodes, if they require one (LEASEHOLD_TOKEN_FILE)",
)


def _take_file(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value:
        credentials().files[(parameter.name or "").removeprefix("tls_")] = value


def tls_options(command: F) -> F:
    """Add the options for TLS, which `tls_files` and `call` use."""
    for name, what in reversed(TLS_OPTIONS.items()):
        variable = f"LEASEHOLD_{name.removeprefix('--').replace('-', '_').upper()}"
        command = click.option(
            name, envvar=variable, expose_value=False, callback=_take_file, help=f"{what} ({variable})"
        )(command)
    return command


def tls_files() -> Tls | None:
    """TLS as the options of the running command give it."""
    return credentials().tls()


def admin_option(command: F) -> F:
    """Add `--admin` and the options for the caller's identity, which `call` uses."""
    return _admin_address_option(_token_option(tls_options(command)))


json_option = click.option("--json", "as_json", is_flag=True, help="print JSON, for programs")


class Problem(msgspec.Struct):
    """Body of an error response of the admin port."""

    error: str = ""
    sentence: str = ""
    error_message: str = ""  # of Mooncake's routes
    paths: tuple[str, ...] = ()  # if this path is unknown


def opened(address: str, path: str, *, data: bytes | None = None, timeout_s: float) -> http.client.HTTPResponse:
    """Send a request with the command's credentials; raises the errors of urllib."""
    known = credentials()
    request = urllib.request.Request(f"{known.scheme}://{address}{path}", data=data, headers=known.headers())
    if data is not None:
        request.add_header(COMMAND_HEADER, "1")
    answer: http.client.HTTPResponse = known.opener().open(request, timeout=timeout_s)
    return answer


def call(
    address: str, path: str, kind: type[T], *, body: Mapping[str, object] | None = None, timeout_s: float = TIMEOUT_S
) -> T:
    """GET, or POST if there is a `body`. Raises `Unavailable` without an answer, `Refused` with the server's reason."""
    data = None if body is None else msgspec.json.encode(body)
    try:
        with opened(address, path, data=data, timeout_s=timeout_s) as answer:
            return _decoded(answer.read(), kind, address)
    except urllib.error.HTTPError as error:
        raise refusal(address, error) from None
    except http.client.HTTPException:
        raise Refused(
            f"the server at {address} does not speak HTTP: give --admin the admin addresses of the nodes, "
            "not the addresses for clients or the store"
        ) from None
    except OSError as error:
        reason = getattr(error, "reason", error)  # urllib wraps the original error
        reason = getattr(reason, "strerror", None) or reason
        raise Unavailable(
            f"no node answers at {address} ({reason}): check that it runs, or name other nodes with "
            "--admin HOST:PORT,..."
        ) from None


def _decoded(raw: bytes, kind: type[T], address: str) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except UNDECODABLE as error:
        raise Refused(
            f"the server at {address} is not a node of this release ({error}): "
            "give --admin the admin addresses of the nodes"
        ) from None


def error_text(error: urllib.error.HTTPError) -> str:
    """The reason in an error response, in one line."""
    return str(refusal("", error)).removeprefix(": ")


def refusal(address: str, error: urllib.error.HTTPError) -> Refused:
    """The error for an error response, with its reason in one line."""
    raw = error.read()
    try:
        problem = msgspec.json.decode(raw, type=Problem)
    except UNDECODABLE:
        shown = printable(raw.decode(errors="replace"), 200)
        return Refused(f"{address}: this server is not a node: it answers {error.code} {shown}")
    reason = printable(problem.sentence or problem.error or problem.error_message) or str(error.code)
    if problem.paths:
        return Refused(f"{address}: {reason}: this node is of an older release, which does not have this command")
    return (NotFound if error.code == HTTPStatus.NOT_FOUND else Refused)(f"{address}: {reason}")


def addresses(admin: str) -> list[str]:
    """Split `--admin`; `http://` and a trailing slash are accepted."""
    parts = (part.strip().removeprefix("http://").rstrip("/") for part in admin.split(","))
    found = [part for part in parts if part]
    for part in found:
        if not part.rpartition(":")[2].isdecimal() or ":" not in part:
            raise InvalidArgument(f"--admin '{part}' is not HOST:PORT; write for example 127.0.0.1:8700")
    return found


def first_answering(admin: str, path: str, kind: type[T]) -> tuple[str, T]:
    """The address and the answer of the first node that answers; otherwise raises the most specific error."""
    last: PeerError | None = None
    for address in addresses(admin):
        try:
            return address, call(address, path, kind)
        except Refused as error:
            last = error
        except Unavailable as error:
            last = last or error
    raise last or Unavailable("--admin is empty: give the admin address of a node, HOST:PORT")


def leader_of(admin: str) -> tuple[ClusterStatus, Peer]:
    """The cluster, and its leader; fails if there is none."""
    _, cluster = first_answering(admin, "/api/cluster", ClusterStatus)
    leaders = [peer for peer in cluster.nodes if peer.leads]
    if not leaders:
        fail("the cluster has no leader, which is needed for this command; see `leasehold status`")
    return cluster, leaders[0]


def node_named(admin: str, name: str) -> str:
    """The admin address of a registered node."""
    _, cluster = first_answering(admin, "/api/cluster", ClusterStatus)
    found = {peer.name: peer.admin for peer in cluster.nodes}
    if name not in found:
        raise NotFound(f"no node '{name}' is registered; registered nodes: {', '.join(found) or 'none'}")
    return found[name]


yes_option = click.option("--yes", is_flag=True, help="do it without a question, for scripts")


def confirm(question: str, yes: bool) -> None:
    """Ask the operator, unless `--yes` is given."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail(f"{question} There is no terminal to answer on: add --yes")
    if not click.confirm(question, default=False):
        fail("nothing was changed")


def print_outcome(outcome: Operated, as_json: bool) -> None:
    """The result of an order."""
    if as_json:
        print_json(outcome)
    else:
        click.echo(printable(outcome.sentence))


def in_parallel(work: Callable[[A], T], each: Sequence[A]) -> list[T]:
    """Call `work` for each, in threads that have the credentials of the running command: silent nodes cost time.

    The threads do not delay a command that is interrupted.
    """
    context = click.get_current_context(silent=True)
    slots = threading.BoundedSemaphore(PARALLEL_MAX)
    results: dict[int, T] = {}
    failures: list[BaseException] = []

    def run(at: int, one: A) -> None:
        with slots, contextlib.nullcontext() if context is None else context.scope(cleanup=False):
            try:
                results[at] = work(one)
            except BaseException as error:
                failures.append(error)

    threads = [threading.Thread(target=run, args=(at, one), daemon=True) for at, one in enumerate(each)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [results[at] for at in range(len(each))]


def print_json(value: object) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def fail(message: str) -> NoReturn:
    raise click.ClickException(message)
