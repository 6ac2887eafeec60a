"""What the operator's commands share: how to reach a node's admin port, and how to print."""

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
    help="admin ports of nodes; the first that answers is asked",
)
json_option = click.option("--json", "as_json", is_flag=True, help="print JSON, for programs")


class Problem(msgspec.Struct):
    """What the admin port says when it cannot."""

    error: str = ""
    sentence: str = ""


def call(
    address: str, path: str, kind: type[T], *, body: dict[str, str] | None = None, timeout_s: float = TIMEOUT_S
) -> T:
    """GET, or POST if there is a `body`; `Unavailable` if nobody answers, `Refused` with what was said."""
    data = None if body is None else msgspec.json.encode(body)
    request = urllib.request.Request(f"http://{address}{path}", data=data)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return _decoded(answer.read(), kind, address)
    except urllib.error.HTTPError as error:
        raise Refused(f"{address}: {error_said(error)}") from None
    except http.client.HTTPException:
        raise Refused(
            f"{address}: what answers there does not speak HTTP: `--admin` wants the admin ports of nodes, not their "
            "clients' ports, nor the store's"
        ) from None
    except OSError as error:
        reason = getattr(error, "reason", error)  # urllib wraps what happened
        reason = getattr(reason, "strerror", None) or reason
        raise Unavailable(
            f"no node answers at {address} ({reason}): is it running? `--admin HOST:PORT,...` names other nodes"
        ) from None


def _decoded(raw: bytes, kind: type[T], address: str) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError as error:
        raise Refused(
            f"{address}: what answers there is no node of this release ({error}): "
            "`--admin` wants the admin ports of nodes"
        ) from None


def error_said(error: urllib.error.HTTPError) -> str:
    """What came with an answer that is an error, in one line."""
    raw = error.read()
    try:
        problem = msgspec.json.decode(raw, type=Problem)
    except msgspec.MsgspecError:
        return f"what answers there is no node: it says {error.code} {_printable(raw)}"
    return problem.sentence or problem.error or str(error.code)


def _printable(raw: bytes) -> str:
    """The beginning of what a stranger says, in one line."""
    return "".join(c if c.isprintable() else " " for c in raw[:200].decode(errors="replace")).strip()


def addresses(admin: str) -> list[str]:
    """`--admin` taken apart; a URL's `http://` and a slash at its end are forgiven."""
    parts = (part.strip().removeprefix("http://").rstrip("/") for part in admin.split(","))
    found = [part for part in parts if part]
    for part in found:
        if not part.rpartition(":")[2].isdecimal() or ":" not in part:
            raise InvalidArgument(f"--admin {part}: HOST:PORT is wanted, such as 127.0.0.1:8700")
    return found


def first_answering(admin: str, path: str, kind: type[T]) -> tuple[str, T]:
    """The first of several nodes that answers, and what it says; else the most telling of what went wrong."""
    last: PeerError | None = None
    for address in addresses(admin):
        try:
            return address, call(address, path, kind)
        except Refused as error:
            last = error
        except Unavailable as error:
            last = last or error
    raise last or Unavailable("no admin port was named: --admin HOST:PORT")


def print_json(value: object) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def fail(message: str) -> NoReturn:
    raise click.ClickException(message)
