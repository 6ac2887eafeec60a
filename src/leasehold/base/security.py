"""Settings about identities: roles on the admin port, and TLS for every command that serves or connects."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.base.settings import flag, text, texts


@dataclass(frozen=True)
class SecuritySettings:
    """Section `[security]`."""

    token_file: str = text(
        "", help="file with lines 'read NAME TOKEN' or 'operate NAME TOKEN' for the admin port; re-read when it changes"
    )
    cluster_secret_file: str = text(
        "",
        help="file with one secret in each line; the first signs what nodes write in the store, all are accepted",
    )
    allowed_hosts: tuple[str, ...] = texts(
        help="names under which the HTTP ports may be addressed, besides IP addresses, localhost and their own names"
    )
    operators: tuple[str, ...] = texts(
        "operator", help="names in client certificates that may operate; * is every certificate of tls_ca"
    )
    readers: tuple[str, ...] = texts("*", help="names in client certificates that may read; * is every certificate")


@dataclass(frozen=True)
class TlsSettings:
    """Section `[tls]`. The same three files protect all ports of a process, and its connections to others."""

    tls_cert: str = text("", help="PEM file with this process's certificate; its ports serve TLS then")
    tls_key: str = text("", help="PEM file with the key of tls_cert")
    tls_ca: str = text("", help="PEM file with the authority of all certificates: both sides must have one of it")
    tls_peer_name: str = text("", help="name that the certificates of servers have, if not the host in their address")
    tls_metadata: bool = flag(False, help="whether the metadata server uses TLS; Mooncake's own clients cannot")
