"""The address of a coordination store.

    etcd://h1:2379,h2:2379          a cluster; etcds:// with TLS
    etcd://user:password@h1:2379    with a user
    memory://  memory://name        in this process, not durable; the same name is the same store
    embedded:///var/lib/leasehold   in this process, durable in that directory

After a `?`: `namespace=/app/`, `timeout=5s`, `attempt_timeout=1s`, and for etcds:// the files `ca=`, `cert=`, `key=`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from leasehold.base.errors import InvalidArgument
from leasehold.base.text import without_password
from leasehold.base.units import parse_duration_ms

SCHEMES = ("etcd", "etcds", "memory", "embedded")
DEFAULT_PORT = 2379
_URL = re.compile(r"(?P<scheme>[a-z]+)://(?P<authority>[^/?#]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?")


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """How to connect to the store.

    `ca`, `cert` and `key` are PEM bytes or the path of a PEM file. `attempt_timeout_s` limits the wait for one endpoint
    of several before the client tries the next one.
    """

    namespace: bytes = b""
    timeout_s: float = 5.0
    attempt_timeout_s: float = 1.0
    user: str = ""
    password: str = field(default="", repr=False)
    ca: bytes | str | Path | None = None
    cert: bytes | str | Path | None = None
    key: bytes | str | Path | None = field(default=None, repr=False)
    watch_queue_events_max: int = 20_000

    def __post_init__(self) -> None:
        if self.timeout_s <= 0 or self.attempt_timeout_s <= 0:
            raise InvalidArgument("timeout_s and attempt_timeout_s must be more than 0")
        if bool(self.cert) != bool(self.key):
            raise InvalidArgument("a client certificate needs both cert and key")
        if self.watch_queue_events_max < 1:
            raise InvalidArgument("watch_queue_events_max must be at least 1")


@dataclass(frozen=True, slots=True)
class CoordUrl:
    """A parsed address. `endpoints` are `host:port`; `path` is for `embedded://`, `name` for `memory://`."""

    scheme: str
    endpoints: tuple[str, ...] = ()
    name: str = ""
    path: Path | None = None


def parse_url(url: str, options: ConnectOptions | None = None) -> tuple[CoordUrl, ConnectOptions]:
    """Parse `url`. Options after the `?` override `options`."""
    match = _URL.fullmatch(url)
    if match is None or match["scheme"] not in SCHEMES:
        known = "etcd://host:2379, etcds://host:2379, memory:// or embedded:///directory"
        raise InvalidArgument(f"not the address of a store: {without_password(url)!r}; it looks like {known}")
    url = without_password(url)  # used only in messages below
    scheme, authority, path = match["scheme"], match["authority"], match["path"] or ""
    query = match["query"] or ""
    if "@" not in authority and ("@" in path or "@" in query.partition("=")[0]):
        # Part of the password would be taken for a path or an option, and the error for that would show it.
        raise InvalidArgument(
            f"{url!r}: the password has a character that must be escaped: write %2F for /, %3F for ?, %23 for #"
        )
    options = _with_query(url, options or ConnectOptions(), query)
    if scheme != "etcds" and (options.ca or options.cert):
        # The user expects TLS: connecting without it would send secrets in the clear.
        raise InvalidArgument(f"{url!r}: ca, cert and key are for TLS: write etcds://")
    if scheme == "memory":
        return CoordUrl(scheme, name=authority + path), options
    if scheme == "embedded":
        if authority or len(path) < 2:
            raise InvalidArgument(f"{url!r} names no directory; it looks like embedded:///directory")
        return CoordUrl(scheme, path=Path(unquote(path))), options
    if path not in ("", "/"):
        raise InvalidArgument(f"{url!r}: an etcd address has no path; for a key prefix write ?namespace={path}")
    user, _, hosts = authority.rpartition("@")
    if user:
        name, _, password = user.partition(":")
        options = replace(options, user=unquote(name), password=unquote(password))
    return CoordUrl(scheme, endpoints=tuple(_endpoint(url, host) for host in hosts.split(","))), options


def _endpoint(url: str, host: str) -> str:
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::(\d+))?", host.strip())
    if match is None:
        raise InvalidArgument(f"{url!r}: {host!r} is not a host with a port; several have commas between them")
    return f"{match[1]}:{match[2] or DEFAULT_PORT}"


def _with_query(url: str, options: ConnectOptions, query: str) -> ConnectOptions:
    given: dict[str, Any] = {}  # applied in one step: `cert` without `key` is an error
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "namespace":
            given[name] = value.encode()
        elif name in ("timeout", "attempt_timeout"):
            try:
                given[f"{name}_s"] = parse_duration_ms(value) / 1000
            except ValueError as error:
                raise InvalidArgument(f"{url!r}: {name}={value}: {error}") from None
        elif name in ("ca", "cert", "key"):
            given[name] = value
        else:
            known = "namespace, timeout, attempt_timeout, ca, cert, key"
            raise InvalidArgument(f"{url!r}: unknown option {name!r}; known are {known}")
    return replace(options, **given)
