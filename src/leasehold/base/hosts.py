"""The names under which an HTTP port may be addressed."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable


class HostPolicy:
    """The names under which a port may be addressed, against DNS rebinding.

    A page of an attacker may let its own name resolve to the address of this port; then a browser sends this port's
    answers to that page. But the `Host` header still has the attacker's name. IP addresses cannot be rebound.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {name.lower().rstrip(".") for name in names if name} | {"localhost"}

    def allows(self, header: str | None) -> bool:
        """Judge a `Host` header. Without one the caller is no browser."""
        if header is None:
            return True
        host = _without_port(header.strip()).lower().rstrip(".")
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return host in self._names
        return True

    def allows_origin(self, origin: str, host_header: str | None, peers: Iterable[str] = ()) -> bool:
        """Whether a page of this origin may send commands: only one that this port served, or the port of a peer."""
        scheme, separator, rest = origin.partition("://")
        if not separator or scheme not in ("http", "https") or host_header is None:
            return False
        if rest.lower() == host_header.strip().lower():
            return self.allows(rest)
        return _plain(rest) in map(_plain, peers)


def _plain(address: str) -> str:
    """HOST:PORT in one spelling: `localhost` is 127.0.0.1 here."""
    host, _, port = address.lower().rpartition(":")
    return f"127.0.0.1:{port}" if host == "localhost" else f"{host}:{port}"


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
