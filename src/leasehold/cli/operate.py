"""Shared by the operator's commands: calls to a node's admin port, and printing."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import click
import msgspec

from leasehold.base.errors import InvalidArgument, PeerError, Refused, Unavailable

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
ADMIN_DEFAULT = "127.0.0.1:8700,127.0.0.1:8701"
TIMEOUT_S = 3.0
OPERATE_TIMEOUT_S = 40.0

admin_option = click.option(
    "--admin",
    default=ADMIN_DEFAULT,
    show_default=True,
    envvar="LEASEHOLD_ADMIN",
    metavar="HOST:PORT,...",
    help="admin addresses of the nodes; the first one that answers is used (LEASEHOLD_ADMIN)",
)
json_option = click.option("--json", "as_json", is_flag=True, help="print JSON, for programs")


class Problem(msgspec.Struct):
    """Body of an error response of the admin port."""

    error: str = ""
    sentence: str = ""


def call(
    address: str, path: str, kind: type[T], *, body: dict[str, str] | None = None, timeout_s: float = TIMEOUT_S
) -> T:
    """GET, or POST if there is a `body`. Raises `Unavailable` without an answer, `Refused` with the server's reason."""
    data = None if body is None else msgspec.json.encode(body)
    request = urllib.request.Request(f"http://{address}{path}", data=data)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return _decoded(answer.read(), kind, address)
    except urllib.error.HTTPError as error:
        raise Refused(f"{address}: {error_text(error)}") from None
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
    except msgspec.MsgspecError as error:
        raise Refused(
            f"the server at {address} is not a node of this release ({error}): "
            "give --admin the admin addresses of the nodes"
        ) from None


def error_text(error: urllib.error.HTTPError) -> str:
    """The reason in an error response, in one line."""
    raw = error.read()
    try:
        problem = msgspec.json.decode(raw, type=Problem)
    except msgspec.MsgspecError:
        return f"this server is not a node: it answers {error.code} {_printable(raw)}"
    return problem.sentence or problem.error or str(error.code)


def _printable(raw: bytes) -> str:
    """The beginning of an unknown server's response, in one line."""
    return "".join(c if c.isprintable() else " " for c in raw[:200].decode(errors="replace")).strip()


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


def print_json(value: object) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def fail(message: str) -> NoReturn:
    raise click.ClickException(message)
