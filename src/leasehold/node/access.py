"""Who may use the HTTP ports of a node, from its settings."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from leasehold.admin.access import Access, AccessPolicy, parse_tokens
from leasehold.base.hosts import HostPolicy
from leasehold.ha.signing import Signer
from leasehold.node.settings import EVERYWHERE, NodeConfig, split_address
from leasehold.runtime.reloaded import Reloaded, read_small
from leasehold.runtime.secret_file import secrets_in
from leasehold.runtime.tls import Tls


def access_policy(config: NodeConfig) -> Callable[[], AccessPolicy]:
    """A function that returns the present policy: the token file is read again when it changes."""
    security = config.security
    file, mutual = security.token_file, bool(config.tls.tls_ca)

    def policy() -> AccessPolicy:
        tokens = parse_tokens(read_small(file, "token_file"), file) if file else ()
        return AccessPolicy(tokens, operators=security.operators, readers=security.readers, certificates=mutual)

    return Reloaded([file] if file else [], policy).value


def signer(config: NodeConfig) -> Signer:
    """Signs with the first secret of the file, which is read again when it changes."""
    return Signer(secrets_in(config.security.cluster_secret_file))


def host_policy(config: NodeConfig) -> HostPolicy:
    """The names of this node: its host, the hosts of its addresses, and those that the settings add."""
    node = config.node
    addresses = [node.rpc, node.admin, node.advertise, node.metadata_server]
    hosts = [split_address(address, "address")[0] for address in addresses if address]
    own = [node.name, socket.gethostname(), *(host for host in hosts if host not in EVERYWHERE)]
    return HostPolicy([*own, *config.security.allowed_hosts])


class PeerAccess:
    """How this node addresses the admin ports of the others.

    It sends the first token of its file with the role `read`. So the nodes of a cluster share one token file, or each
    accepts the first token of the others. A token with the role `operate` is never sent.
    """

    def __init__(self, config: NodeConfig) -> None:
        file = config.security.token_file
        self.tls = Tls.of(config.tls)
        self._tokens = Reloaded([file], lambda: parse_tokens(read_small(file, "token_file"), file)) if file else None

    def url(self, admin: str, path: str) -> str:
        return f"{'https' if self.tls else 'http'}://{admin}{path}"

    def tls_options(self, admin: str) -> dict[str, Any]:
        """Arguments for opening a connection, as aiohttp and asyncio name them."""
        if self.tls is None:
            return {}
        return {"ssl": self.tls.client(), "server_hostname": self.tls.server_name(split_address(admin, "admin")[0])}

    def headers(self) -> dict[str, str]:
        readers = (grant for grant in (self._tokens.value() if self._tokens else ()) if grant.access is Access.READ)
        first = next(readers, None)
        return {"Authorization": f"Bearer {first.token}"} if first is not None else {}
